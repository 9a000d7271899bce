//! The greatest number of rows of a claim, and rows that dlock cannot read.

use std::time::Duration;

use dlock::backend::Evict;
use dlock::clock::{self, Clock};
use dlock::lock::{ClaimId, Holder};

use super::sql::Database;
use crate::site;
use crate::support::chance::Random;
use crate::support::wait::until_true;
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

/// Adds `count` notes that are old enough to be removed. The order of their claims is not that of their names.
fn add_old_notes(database: &Database, prefix: &str, count: usize) {
    let name = database.either("'~1.' || n", "CONCAT('~1.', n)");
    let claim = database.either("md5(n::text)", "MD5(n)");
    let (series, sequence) =
        (format!("generate_series(1, {count}) AS n"), format!("(SELECT seq AS n FROM seq_1_to_{count}) s"));
    let numbers = database.either(&series, &sequence);
    database.ask(&format!(
        "INSERT INTO {prefix}claim (name, seq, claim, mode, since, lease_until, about) \
         SELECT {name}, 0, {claim}, 'left', 0, 1, '' FROM {numbers}"
    ));
}

/// Returns how many transactions the database has undone because each waited for the other. PostgreSQL counts a session
/// when it ends, so call this when no client is connected.
fn deadlocks(database: &Database) -> u64 {
    let text = match database {
        Database::Postgres(postgres) => {
            let sessions = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'";
            until_true("no client is connected", || postgres.sql(sessions) == "1");
            postgres.sql("SELECT sum(deadlocks) FROM pg_stat_database")
        }
        Database::Mysql(_) => database.ask(
            "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'INNODB_DEADLOCKS'",
        ),
    };
    text.trim().parse().expect("a number")
}

/// Each writer that notes the end of a claim removes old notes of others. Two writers that removed the same rows in
/// different orders would wait for each other.
#[test]
fn concurrent_cleanup_does_not_deadlock() {
    const WRITERS: u8 = 16;
    const ENDS: usize = 25;
    let database = Database::roomy();
    let env = database.env();
    let prefix = env.service().prefix.clone().expect("a prefix");
    env.finish(&mut env.run(["-q", "--name", "x", "--", "true"])).silently(0);
    // Each removes twenty.
    add_old_notes(&database, &prefix, usize::from(WRITERS) * ENDS * 15);
    let before = deadlocks(&database);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut writers = tokio::task::JoinSet::new();
        for n in 0..WRITERS {
            let client = (site::kind().client)(env.service(), Clock::Boot);
            writers.spawn(async move {
                let (name, mut ids) = (format!("x{n}").parse().expect("valid"), Random(n.into()));
                for _ in 0..ENDS {
                    let id = ClaimId::from_bytes([ids.next(), ids.next()].map(u64::to_be_bytes).concat().try_into().expect("16"));
                    let deadline = clock::now() + Duration::from_secs(60);
                    let ended = client.evict(&name, id, Evict::Force, &Holder::default(), deadline).await;
                    assert!(!ended.expect("evicts"), "the queue is empty");
                }
            });
        }
        while let Some(ended) = writers.join_next().await {
            ended.expect("did not panic");
        }
    });
    drop(runtime);
    assert_eq!(deadlocks(&database), before);
    assert_eq!(database.rows(&prefix), (0, u64::from(WRITERS) * u64::try_from(ENDS).expect("few")));
}
