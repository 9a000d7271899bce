//! `break --force` of a waiter. Not on ZooKeeper: there a removed entry leaves no note.

use crate::support::TestEnv;

#[test]
fn waiter_broken_by_force_stops_waiting() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    for options in [&["-q"][..], &["--supersede"]] {
        let waiter = env.start(env.run(["--name", "x"]).args(options).args(["--", "touch", "started"]));
        env.await_waiters("x", 1);
        let claim = env.status("x")["waiters"][0]["claim"].as_str().expect("a claim").to_owned();
        let breaking = env.finish(&mut env.verb("break", ["x", "--claim", &claim, "--yes", "--force"]));
        assert_eq!(breaking.code(), Some(0), "{}", breaking.err);
        assert!(!breaking.text().contains("command"), "{}", breaking.text());
        let ended = waiter.finish();
        assert_eq!(ended.code(), Some(75), "{}", ended.err);
        assert_eq!((env.holders("x"), env.waiters("x")), (1, 0));
    }
    holder.release().silently(0);
    assert!(!env.exists("started"));
}
