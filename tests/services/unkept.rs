//! Leases of nobody's process that the service itself lets end.

use std::time::Duration;

use super::detached::acquire;
use crate::support::Bed;
use crate::support::wait::let_pass;

#[test]
fn no_process_stays_behind() {
    let bed = Bed::new();
    acquire(&bed, "4s", &[]).silently(0);
    bed.await_no_process();
    bed.assert_busy("x");
}

#[test]
fn one_that_has_waited_lasts_for_a_whole_ttl() {
    let bed = Bed::new();
    let holder = bed.held(&["--name", "x"]);
    let words = ["--detach", "-q", "--name", "x", "--ttl", "9s"];
    let waiter = bed.start(&mut bed.verb("acquire", words));
    bed.await_waiters("x", 1);
    // Not so long that it is renewed while it waits.
    let_pass(Duration::from_secs(2));
    holder.release().silently(0);
    waiter.finish().silently(0);
    bed.await_no_process();
    let left = bed.status("x")["holders"][0]["ttl_ms"].as_u64().expect("a time to live");
    assert!((7_500..=9_000).contains(&left), "{left}");
}

#[test]
fn a_broken_lease_is_removed_at_once_and_that_is_said() {
    let bed = Bed::new();
    acquire(&bed, "4s", &["--shared"]).silently(0);
    acquire(&bed, "4s", &["--shared"]).silently(0);
    let broken = bed.finish(&mut bed.verb("break", ["x", "--all", "--yes"])).silently(0).text();
    assert_eq!(broken.matches("a lease without a process").count(), 2, "{broken}");
    bed.assert_free("x");
}
