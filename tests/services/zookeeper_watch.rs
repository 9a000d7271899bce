//! Watchers whose server goes away and comes back without its data, and requests that need a process.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::servers::zookeeper;
use crate::support::wait::until_true;
use crate::support::within;
use crate::zookeeper::env_at;

#[test]
fn watch_shows_an_outage_and_follows_a_server_without_its_data() {
    let server = zookeeper::start();
    let env = env_at(format!("zk://127.0.0.1:{}", server.port()));
    // The watcher has seen the server work.
    env.finish(&mut env.run(["--name", "x", "--", "true"])).silently(0);
    let watch = env.start(&mut env.verb("watch", ["--json", "x"]));
    until_true("the first look", || watch.out_so_far().lines().count() == 1);
    server.down();
    let begun = Instant::now();
    until_true("a word about the outage", || watch.err_so_far().contains("trying again until interrupted"));
    within(begun.elapsed(), Duration::from_secs(5));
    assert!(watch.err_so_far().contains("refuse"), "{}", watch.err_so_far());
    std::fs::remove_dir_all(server.folder().join("data/version-2")).expect("removes");
    server.up();
    zookeeper::await_service(server.port());
    let holder = env.held(&["--quiet", "--name", "x"]);
    let begun = Instant::now();
    until_true("the holder", || watch.out_so_far().contains(holder.claim()));
    within(begun.elapsed(), Duration::from_secs(2));
    holder.release().silently(0);
    watch.signal(Signal::INT);
    watch.finish();
}

#[test]
fn an_interrupted_watch_leaves_no_session_behind() {
    let lines = vec!["4lw.commands.whitelist=srvr,dump".to_owned()];
    let server = zookeeper::start_with(&zookeeper::Setup { lines, ..zookeeper::Setup::default() });
    let env = env_at(format!("zk://127.0.0.1:{}", server.port()));
    for verb in [&["watch", "x"][..], &["leader", "x", "--follow", "--json"]] {
        let watch = env.start(&mut env.verb(verb[0], &verb[1..]));
        until_true("the first look", || !watch.out_so_far().is_empty());
        watch.signal(Signal::TERM);
        assert_eq!(watch.finish().signal(), Some(Signal::TERM.as_raw()));
        let left = zookeeper::said(server.port(), *b"dump").expect("answers");
        // The number of expiry times of sessions, and the number of sessions.
        assert!(left.lines().any(|l| l.starts_with("Session Sets") && l.ends_with("/(0):")), "{left}");
    }
}

#[test]
fn a_lease_without_a_process_is_refused() {
    let env = env_at(zookeeper::endpoint());
    let refused = env.finish(&mut env.verb("acquire", ["--detach", "--name", "x"]));
    assert_eq!((refused.code(), refused.text().as_str()), (Some(64), "sh -c 'exit 64'\n"), "{}", refused.err);
    assert!(refused.err.contains("--for-pid"), "{}", refused.err);
}
