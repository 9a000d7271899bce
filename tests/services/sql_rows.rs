//! As many rows as a claim may have.

use crate::support::TestEnv;

/// Options of a claim on as many names as there may be.
fn on_all_names<'a>(names: &'a [String], kind: &[&'a str]) -> Vec<&'a str> {
    let names = names.iter().flat_map(|name| ["--name", name]);
    ["-q"].into_iter().chain(kind.iter().copied()).chain(names).collect()
}

#[test]
fn as_many_names_as_there_may_be_are_taken_together() {
    let env = TestEnv::new();
    let names: Vec<String> = (0..64).map(|n| format!("n{n}")).collect();
    for (first, second) in [(&["-x"][..], &["-x"][..]), (&["-x"], &["-s"]), (&["--slots", "1"], &["--slots", "1"])] {
        let words = on_all_names(&names, second);
        let ended = env.finish(env.run(words.iter()).args(["--", "true"]));
        assert_eq!(ended.code(), Some(0), "{second:?}: {}", ended.err);
        let holder = env.held(&on_all_names(&names, first));
        let mut waiter = env.hold(&words);
        env.await_waiters("n0", 1);
        env.await_waiters("n63", 1);
        assert!(!waiter.has_started(), "{second:?} beside {first:?}");
        assert_eq!(holder.release().code(), Some(0));
        waiter.await_start();
        assert_eq!(waiter.release().code(), Some(0));
    }
}
