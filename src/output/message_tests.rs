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

/// Returns one of each, with its golden sentence and level.
#[expect(clippy::too_many_lines, reason = "a table")]
fn golden() -> Vec<(Message, Level, &'static str)> {
    use Message as M;
    let why = || "reason".to_owned();
    vec![
        (M::failed("what: why"), Level::Error, "what: why"),
        (M::Warned { reason: why() }, Level::Warning, "reason"),
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
            M::Replaced { lock: lock(), by: Party { since: None, ..party() } },
            Level::Error,
            "replaced under deploy by ci@host7 pid 4121 (./deploy.sh); the command was stopped",
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
            M::Rejoined { lock: lock(), reason: "suspended".into() },
            Level::Warning,
            "lost the place in the queue for deploy (suspended); rejoined at the end",
        ),
        (
            M::Acquired { lock: lock(), service: service(""), waited_ms: s(63), token: "7".into() },
            Level::Verbose,
            "acquired deploy (file /l) after 1m03s, token 7",
        ),
        (
            M::ShorterTtl { lock: lock(), asked_ms: s(300), granted_ms: s(60), backend: "zk" },
            Level::Info,
            "the ttl of deploy is 1m00s, not 5m00s: zk grants no more",
        ),
        (M::Started { lock: lock(), pid: 7 }, Level::Verbose, "started the command under deploy, pid 7"),
        (
            M::Finished { lock: lock(), held_ms: s(3), outcome: "exited 0".into(), released: true },
            Level::Verbose,
            "the command exited 0 after 3s under deploy; the lock was released",
        ),
        (
            M::Busy { lock: lock(), service: service(""), holder: Some(party()) },
            Level::Busy,
            "deploy is busy (file /l): held by ci@host7 pid 4121 (./deploy.sh) for 3m12s",
        ),
        (
            M::WaitRanOut { lock: lock(), service: service(""), waited_ms: s(10), holder: Some(party()) },
            Level::Busy,
            "gave up waiting for deploy (file /l) after 10s: held by ci@host7 pid 4121 (./deploy.sh) for 3m12s",
        ),
        (
            M::Superseded { lock: lock(), by: Party { since: None, ..party() } },
            Level::Busy,
            "left the queue for deploy: superseded by ci@host7 pid 4121 (./deploy.sh)",
        ),
        (
            M::PlaceLost { lock: lock(), reason: why() },
            Level::Busy,
            "lost the place in the queue for deploy (reason); with --supersede or --replace dlock does not rejoin, since a newer run \
             may have come",
        ),
        (
            M::WouldDeadlock { lock: lock(), reason: why() },
            Level::Error,
            "waiting for deploy would never end: reason",
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
            M::NotReached {
                lock: lock(),
                backend: "etcd",
                address: "http://h:2379".into(),
                reason: Some("connection refused".into()),
            },
            Level::Warning,
            "etcd at http://h:2379 has not answered yet (connection refused); still trying to get deploy",
        ),
        (
            M::Risk { what: "keys can be evicted".into(), remedy: Some("set a policy".into()) },
            Level::Warning,
            "keys can be evicted; set a policy",
        ),
        (
            M::MaxRun { lock: lock(), limit_ms: s(3600) },
            Level::Error,
            "the command held deploy for 1h00m (--max-run) and was stopped",
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
            "cannot find the command x; what only a shell knows runs with -c",
        ),
        (M::CommandNotFound { command: String::new() }, Level::Error, "the command is empty"),
        (M::CannotExecute { command: "x".into(), reason: why() }, Level::Error, "cannot execute x: reason"),
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
            "cannot kill processes 3 and 2 more: the lock on deploy is lost, and they can run beside the next holder's command; kill \
             them yourself",
        ),
        (
            M::KeeperDied { lock: lock(), surely_ran: true },
            Level::Error,
            "lost deploy: the lease-keeper of dlock died; the command was stopped",
        ),
        (
            M::KeeperStopped { lock: lock(), surely_ran: true },
            Level::Error,
            "lost deploy: the lease-keeper of dlock stopped and the lease expired; the command was stopped",
        ),
        (
            M::TreeHidden { reason: why() },
            Level::Verbose,
            "only the command's process group can be killed, not all its descendants: reason",
        ),
        (
            M::Skipped { lock: lock(), ago_ms: s(600), once_per_ms: s(3600) },
            Level::Verbose,
            "skipped deploy: a run that acquired it 10m00s ago succeeded (--once-per 1h00m)",
        ),
        (
            M::Nested { lock: lock(), claim: "ab".into() },
            Level::Verbose,
            "running under the enclosing hold of deploy, claim ab",
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
            M::NotWritten { what: "report", path: "/x".into(), reason: why() },
            Level::Warning,
            "cannot write the report to /x: reason; exit status unchanged",
        ),
        (
            M::PathAsName { lock: "/l/x".into(), directory: "/l".into(), file: "x".into() },
            Level::Info,
            "/l/x is taken as a name, not as that file; to lock the file: --endpoint /l --name x",
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
fn every_event_has_a_golden_sentence() {
    let seen: std::collections::BTreeSet<String> = golden()
        .iter()
        .map(|(m, ..)| serde_json::to_value(m).expect("serialises")["event"].to_string())
        .collect();
    let source = include_str!("message.rs");
    let table = source.split("\nmessages! {").nth(1).and_then(|s| s.split("\n}").next()).expect("the table");
    let rows = table.lines().filter_map(|line| line.strip_prefix("    "));
    assert_eq!(seen.len(), rows.filter(|row| row.starts_with(char::is_uppercase)).count());
}

#[test]
fn names_join_as_in_a_sentence() {
    let all: Vec<_> = ["a", "b", "c"].map(|n| LockName::new(n).expect("valid")).into();
    assert_eq!(names(&all[..1]), "a");
    assert_eq!(names(&all[..2]), "a and b");
    assert_eq!(names(&all), "a, b and c");
}
