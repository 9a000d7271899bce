//! Each message as users read it.

use super::*;
use std::time::Duration;

fn party() -> Party {
    Party {
        user: Some("ci".into()),
        host: Some("host7".into()),
        pid: Some(4121),
        command: Some("./deploy.sh".into()),
        since: Some(s(192)),
        ..Party::default()
    }
}

fn s(n: u64) -> Ms {
    Ms(Duration::from_secs(n))
}

fn lock() -> String {
    "deploy".into()
}

fn service(remark: &str) -> ServicePlace {
    ServicePlace { backend: "file", place: "/l".into(), remark: remark.into() }
}

/// Returns messages whose sentences have several forms, each with its golden sentence and level.
#[expect(clippy::too_many_lines, reason = "a table")]
fn golden() -> Vec<(Message, Level, &'static str)> {
    use Message as M;
    let why = || "reason".to_owned();
    vec![
        (M::LinesDropped { count: 1 }, Level::Warning, "1 message dropped: standard error was blocked"),
        (M::LinesDropped { count: 7 }, Level::Warning, "7 messages dropped: standard error was blocked"),
        (
            M::Waiting { lock: lock(), service: service(""), holder: Some(party()), ahead: Some(2) },
            Level::Info,
            "waiting for deploy (file /l): held by ci@host7 pid 4121 (./deploy.sh) for 3m12s, 2 ahead",
        ),
        (
            M::Waiting { lock: lock(), service: service(""), holder: None, ahead: None },
            Level::Info,
            "waiting for deploy (file /l)",
        ),
        (
            M::HoldCutShort { lock: lock(), by: Some(Party { since: None, ..party() }), reason: None },
            Level::Warning,
            "deploy was released early, after the command exited: broken by ci@host7 pid 4121 (./deploy.sh)",
        ),
        (
            M::HoldCutShort { lock: lock(), by: None, reason: Some(why()) },
            Level::Warning,
            "deploy was released early, after the command exited: reason",
        ),
        (
            M::HoldCutShort { lock: lock(), by: None, reason: None },
            Level::Warning,
            "deploy was released early, after the command exited: the lease-keeper was killed or stopped",
        ),
        (
            M::StandsAgain { lock: lock(), held_ms: Some(s(3)), pause_ms: s(2) },
            Level::Info,
            "leadership of deploy ended after 3s; campaigning again for deploy in 2s",
        ),
        (
            M::StandsAgain { lock: lock(), held_ms: None, pause_ms: s(0) },
            Level::Info,
            "campaigning again for deploy",
        ),
        (
            M::Finished { lock: lock(), held_ms: s(3), outcome: "exited 0".into() },
            Level::Verbose,
            "the command exited 0 after 3s under deploy",
        ),
        (
            M::Busy { lock: lock(), service: service(""), holder: Some(party()) },
            Level::Busy,
            "deploy is busy (file /l): held by ci@host7 pid 4121 (./deploy.sh) for 3m12s",
        ),
        (
            M::Lost { lock: lock(), reason: why(), command_ran: true },
            Level::Error,
            "lost deploy: reason; the command was stopped",
        ),
        (
            M::Broken { lock: lock(), by: Party { since: None, ..party() }, command_ran: false },
            Level::Error,
            "the claim on deploy was broken by ci@host7 pid 4121 (./deploy.sh); the command was not started",
        ),
        (
            M::Doubtful { lock: lock(), reason: why(), left_ms: s(12), command_ended: false },
            Level::Warning,
            "cannot renew deploy: reason; the command will be stopped in 12s unless a renewal succeeds",
        ),
        (
            M::Doubtful { lock: lock(), reason: why(), left_ms: s(12), command_ended: true },
            Level::Warning,
            "cannot renew deploy: reason; the lock will be lost in 12s unless a renewal succeeds",
        ),
        (
            M::ReleaseFailed { lock: lock(), reason: why(), ends_within_ms: Some(s(30)) },
            Level::Warning,
            "cannot release deploy: reason; it ends by itself within 30s",
        ),
        (
            M::LeaveFailed { lock: lock(), reason: why(), ends_within_ms: Some(s(30)) },
            Level::Warning,
            "cannot leave the queue for deploy: reason; the place in it ends by itself within 30s",
        ),
        (
            M::WithdrawalFailed { lock: lock(), reason: why(), ends_within_ms: Some(s(31)) },
            Level::Warning,
            "cannot withdraw the request for deploy: reason; if it was granted, it ends by itself within 31s",
        ),
        (
            M::CommandNotFound { command: "x".into() },
            Level::Error,
            "cannot find the command x; run shell builtins and shell syntax with -c",
        ),
        (M::CommandNotFound { command: String::new() }, Level::Error, "the command is empty"),
        (
            M::CannotEnd {
                lock: lock(),
                pids: Some(vec![3, 4]),
                more: 0,
                lease_lost: false,
                lacks_kill: false,
            },
            Level::Error,
            "cannot kill processes 3, 4: dlock keeps the lock on deploy and cannot end until they exit; kill them yourself",
        ),
        (
            M::CannotEnd { lock: lock(), pids: None, more: 0, lease_lost: false, lacks_kill: false },
            Level::Error,
            "cannot verify that all processes of the command have exited: dlock keeps the lock on deploy and cannot end until they \
             exit; kill them yourself",
        ),
        (
            M::CannotEnd { lock: lock(), pids: Some(vec![3]), more: 2, lease_lost: true, lacks_kill: false },
            Level::Error,
            "cannot kill processes 3 and 2 more: the lock on deploy is lost, and they can run at the same time as the next holder's command; kill \
             them yourself",
        ),
        (
            M::KeptByNested { lock: "db and cache".into() },
            Level::Info,
            "db and cache stay locked until the nested runs have exited",
        ),
        (
            M::Busy { lock: "db and cache".into(), service: service(""), holder: None },
            Level::Busy,
            "db and cache are busy (file /l)",
        ),
        (
            M::KeptByNested { lock: lock() },
            Level::Info,
            "deploy stays locked until the nested runs have exited",
        ),
        (
            M::NoLocks { prefix: String::new(), service: service(", not used yet") },
            Level::Info,
            "no lock is held or waited for (file /l, not used yet)",
        ),
    ]
}

#[test]
fn sentences_and_levels() {
    for (message, level, sentence) in golden() {
        assert_eq!(message.to_string(), sentence);
        assert_eq!(message.level(), level, "{sentence}");
    }
}

#[test]
fn list_of_a_prefix_names_it() {
    let listed = Message::NoLocks { prefix: "db/".into(), service: service("") };
    assert_eq!(listed.to_string(), "no lock is held or waited for whose name starts with db/ (file /l)");
}

#[test]
fn names_join_as_in_a_sentence() {
    let all: Vec<_> = ["a", "b", "c"].map(|n| LockName::new(n).expect("valid")).into();
    assert_eq!(names(&all[..1]), "a");
    assert_eq!(names(&all[..2]), "a and b");
    assert_eq!(names(&all), "a, b and c");
}
