//! Ending somebody else's hold.

use crate::support::Bed;
use crate::support::scripts::{Overlap, Tree};

#[test]
fn a_broken_holder_ends_its_tree_before_the_next_starts_and_says_who_asked() {
    let bed = Bed::new();
    let (tree, words) = Tree::words(&bed, "tree");
    let running = bed.start(bed.run(["--name", "x", "--grace", "300ms", "--"]).args(words));
    let members = tree.await_grown(&bed);
    let (overlap, words) = Overlap::words(&bed, &members);
    let waiter = bed.start(bed.run(["-q", "--name", "x", "--"]).args(words));
    bed.await_waiters("x", 1);
    let claim = bed.status("x")["holders"][0]["claim"].as_str().expect("a claim").to_owned();
    let breaking = bed.finish(&mut bed.verb("break", ["x", "--claim", &claim, "--yes"]));
    assert_eq!(breaking.code(), Some(0), "{}", breaking.err);
    let ended = running.finish();
    ended.failed(76, &["x", "broke"]);
    waiter.finish().silently(0);
    overlap.assert_none(&bed);
    bed.assert_free("x");
    bed.await_no_process();
}

#[test]
fn a_claim_that_is_not_there_is_76() {
    let bed = Bed::new();
    let holder = bed.held(&["--name", "x"]);
    let other = "0123456789abcdef0123456789abcdef";
    bed.finish(&mut bed.verb("break", ["x", "--claim", other, "--yes"])).failed(76, &[]);
    assert_eq!(bed.holders("x"), 1);
    // The claim of an ended hold is never taken for the present one.
    let old = holder.claim().to_owned();
    holder.release().silently(0);
    let holder = bed.held(&["--name", "x"]);
    bed.finish(&mut bed.verb("break", ["x", "--claim", &old, "--yes"])).failed(76, &[]);
    holder.release().silently(0);
}

#[test]
fn a_claim_that_is_none_is_64() {
    let bed = Bed::new();
    bed.finish(&mut bed.verb("break", ["x", "--claim", "junk", "--yes"])).failed(64, &[]);
    bed.finish(&mut bed.verb("break", ["x", "--yes"])).failed(76, &["nobody"]);
}

#[test]
fn a_waiter_can_be_broken_too() {
    let bed = Bed::new();
    let holder = bed.held(&["--name", "x"]);
    let waiter = bed.start(&mut bed.run(["-q", "--name", "x", "--", "touch", "started"]));
    bed.await_waiters("x", 1);
    let claim = bed.status("x")["waiters"][0]["claim"].as_str().expect("a claim").to_owned();
    let breaking = bed.finish(&mut bed.verb("break", ["x", "--claim", &claim, "--yes"]));
    assert_eq!(breaking.code(), Some(0), "{}", breaking.err);
    let ended = waiter.finish();
    assert!(matches!(ended.code(), Some(75 | 76)), "{:?} {}", ended.status, ended.err);
    assert_eq!(bed.waiters("x"), 0);
    holder.release().silently(0);
    assert!(!bed.exists("started"));
}

#[test]
fn all_holders_can_be_broken_at_once() {
    let bed = Bed::new();
    let readers = [bed.held(&["--name", "x", "-s"]), bed.held(&["--name", "x", "-s"])];
    let breaking = bed.finish(&mut bed.verb("break", ["x", "--all", "--yes"]));
    assert_eq!(breaking.code(), Some(0), "{}", breaking.err);
    for reader in readers {
        reader.running.finish().failed(76, &["x"]);
    }
    bed.assert_free("x");
}

#[test]
fn without_a_terminal_to_ask_on_breaking_wants_yes() {
    let bed = Bed::new();
    let holder = bed.held(&["--name", "x"]);
    let asked = bed.finish(&mut bed.verb("break", ["x", "--claim", holder.claim()]));
    asked.failed(64, &["--yes"]);
    assert_eq!(bed.holders("x"), 1);
    holder.release().silently(0);
}
