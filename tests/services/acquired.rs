//! A script that holds a lock and a service that takes it away.

use std::time::{Duration, Instant};

use crate::site;
use crate::support::process::is_alive;
use crate::support::scripts::{Overlap, Tree};
use crate::support::wait::until_true;
use crate::support::{Running, TestEnv, process, within};

/// Starts a script that acquires `x` and has a process tree. Returns it with the members of the tree when they all run.
fn script(env: &TestEnv, ttl: &str) -> (Running, Vec<process::Process>) {
    let (tree, words) = Tree::words(env, "tree");
    let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let text = format!(
        "c=$(\"$dlock\" acquire --endpoint \"$locks\" --name x --ttl {ttl} --grace 100ms --for-pid $$) || exit\n\
         eval \"$c\"; {} & wait",
        words.join(" ")
    );
    let running = env.start(env.command("bash").args(["-c", &text]));
    let members = tree.await_grown(env);
    (running, members)
}

#[test]
fn a_claim_taken_away_ends_the_script_and_its_tree_at_once() {
    let ttl = site::kind().ttl(Duration::from_secs(21));
    let env = TestEnv::new();
    let (running, members) = script(&env, &format!("{}s", ttl.as_secs()));
    let (overlap, words) = Overlap::words(&env, &members);
    site::lose(&env, "x");
    let lost = Instant::now();
    until_true("the end of the tree", || members.iter().all(|p| !is_alive(p.pid)));
    within(lost.elapsed(), (site::kind().facts.news_within)(ttl / 3) + Duration::from_millis(500));
    assert_eq!(running.finish().signal(), Some(9));
    env.finish(env.run(["--name", "x", "--"]).args(words)).silently(0);
    overlap.assert_none(&env);
    env.await_no_process();
}

#[test]
fn lost_service_ends_the_script_before_the_lease_expires() {
    let site = site::start();
    let env = TestEnv::on(site.part());
    let (running, members) = script(&env, "6s");
    site.freeze();
    let gone = Instant::now();
    until_true("the end of the tree", || members.iter().all(|p| !is_alive(p.pid)));
    within(gone.elapsed(), Duration::from_secs(6));
    assert!(matches!(running.finish().signal(), Some(15 | 9)));
    site.thaw();
    env.await_no_process();
}
