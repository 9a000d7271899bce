//! The greatest number of rows of a claim, and rows that dlock cannot read.

use std::time::Duration;

use super::sql::Database;
use crate::support::{TestEnv, within};

/// Returns the options of a claim on as many names as allowed.
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

/// Another version may write entries that this one does not know.
#[test]
fn unreadable_entry_blocks_only_its_own_queue() {
    let database = Database::start();
    let env = database.env();
    let prefix = env.service().prefix.clone().expect("a prefix");
    let holder = env.held(&["-q", "--name", "a"]);
    let claim = "7".repeat(32);
    database.ask(&format!(
        "INSERT INTO {prefix}lock (name, fence) VALUES ('other', 5); \
         INSERT INTO {prefix}claim (name, seq, claim, mode, since, lease_until, about) \
         VALUES ('other', 1, '{claim}', 'exclusive', 0, 9000000000000000000, 'x')"
    ));
    let script = r#""$dlock" run -q --endpoint "$locks" --name a -- true"#;
    let nested = env.start(&mut env.run(["-q", "--name", "b", "--", "sh", "-c", script]));
    env.await_waiters("a", 1);
    let listed = env.finish(&mut env.verb("list", ["--json"])).silently(0).text();
    for lock in ["a", "b", "other"] {
        assert!(listed.contains(&format!("\"lock\":\"{lock}\"")), "{lock}: {listed}");
    }
    let shown = env.status("other");
    let entry = &shown["holders"][0];
    assert_eq!((&entry["claim"], &entry["mode"]), (&claim.as_str().into(), &"exclusive".into()), "{shown}");
    env.assert_busy("other");
    let refused = env.finish(&mut env.run(["--wait", "15s", "--slots", "3", "--name", "other", "--", "true"]));
    within(refused.took, Duration::from_secs(10));
    refused.failed(64, &["other", "exclusive"]);
    assert_eq!(holder.release().code(), Some(0));
    let ended = nested.finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    database.ask(&format!("DELETE FROM {prefix}claim WHERE name = 'other'"));
    env.assert_free("other");
}
