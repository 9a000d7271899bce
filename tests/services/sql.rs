//! Many clients of one database, and a server that crashes.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use rustix::process::Signal;

use crate::servers::Site;
use crate::servers::mariadb::{self, Mysql};
use crate::servers::postgres::{self, Postgres};
use crate::site;
use crate::support::chance::rounds;
use crate::support::process;
use crate::support::running::CROWD;
use crate::support::TestEnv;
use crate::support::wait::until_true;

pub(super) enum Database {
    Mysql(Mysql),
    Postgres(Postgres),
}

impl Database {
    /// Starts one that logs every request.
    pub(super) fn start() -> Self {
        let mysql = ["--general-log=1", "--general-log-file=requests"];
        Self::with(&["fsync=on", "log_statement=all"], &mysql)
    }

    /// Starts one with room for as many clients as possible.
    pub(super) fn roomy() -> Self {
        Self::with(&["fsync=on", "max_connections=600"], &[])
    }

    fn with(postgres: &[&str], mysql: &[&str]) -> Self {
        match site::kind().name {
            "postgres" => Self::Postgres(postgres::start_with(postgres)),
            _ => Self::Mysql(Mysql(mariadb::start_with(mysql))),
        }
    }

    pub(super) fn site(&self) -> &dyn Site {
        match self {
            Self::Mysql(mysql) => mysql,
            Self::Postgres(postgres) => postgres,
        }
    }

    pub(super) fn env(&self) -> TestEnv {
        TestEnv::on(self.site().part())
    }

    /// Locks the row of the lock `name` for `length`.
    fn occupy(&self, prefix: &str, name: &str, length: Duration) {
        match self {
            Self::Postgres(postgres) => postgres.occupy(prefix, name, length),
            Self::Mysql(mysql) => mariadb::occupy(&mysql.0, prefix, name, length),
        }
    }

    pub(super) fn ask(&self, statement: &str) -> String {
        match self {
            Self::Postgres(postgres) => postgres.sql(statement),
            Self::Mysql(mysql) => mariadb::ask(&mysql.0, &format!("USE {}; {statement}", mariadb::DATABASE)),
        }
    }

    /// Returns the number of rows of claims, and the number of notes of ended claims.
    pub(super) fn rows(&self, prefix: &str) -> (u64, u64) {
        let count = |what: &str| {
            let text = self.ask(&format!("SELECT COUNT(*) FROM {prefix}claim WHERE {what}"));
            text.trim().parse().expect("a number")
        };
        (count("seq > 0"), count("seq = 0"))
    }

    /// Makes all notes old enough to be removed.
    fn age_notes(&self, prefix: &str) {
        let name = match self {
            Self::Postgres(_) => "'~1.' || claim",
            Self::Mysql(_) => "CONCAT('~1.', claim)",
        };
        self.ask(&format!("UPDATE {prefix}claim SET name = {name} WHERE seq = 0"));
    }

    /// Waits until the waiter behind a holder listens, or sleeps.
    fn await_listening(&self) {
        until_true("the waiter listens", || match self {
            // Its holder listens, too.
            Self::Postgres(postgres) => postgres.server().log().matches("BEGIN;LISTEN \"").count() > 1,
            Self::Mysql(mysql) => {
                let log = std::fs::read_to_string(mysql.0.folder().join("data/requests"));
                log.is_ok_and(|log| log.contains("IF(GET_LOCK("))
            }
        });
    }
}

/// In a long queue the row is locked nearly always.
#[test]
fn renewals_do_not_wait_for_the_row_of_the_lock() {
    const TTL: Duration = Duration::from_secs(6);
    let database = Database::start();
    let env = database.env();
    let holder = env.held(&["--name", "x", "--ttl", "6s"]);
    let mut waiter = env.hold(&["--name", "x", "--ttl", "6s"]);
    env.await_waiters("x", 1);
    database.await_listening();
    let prefix = env.service().prefix.clone().expect("a prefix");
    database.occupy(&prefix, "x", TTL + TTL / 2);
    assert_eq!(env.status("x")["waiters"].as_array().map(Vec::len), Some(1));
    let ended = holder.release();
    assert!(ended.code() == Some(0) && !ended.err.contains("cannot renew"), "{}", ended.err);
    waiter.await_start();
    let ended = waiter.release();
    assert!(ended.code() == Some(0) && !ended.err.contains("cannot"), "{}", ended.err);
}

#[test]
fn hand_over_outlasts_a_crash_of_the_database() {
    let database = Database::start();
    let env = database.env();
    let long = ["--name", "x", "--ttl", "10m", "-q"];
    let holder = env.held(&long);
    let mut next = env.hold(&long);
    env.await_waiters("x", 1);
    database.await_listening();
    holder.let_go();
    next.await_start();
    // A commit that the client did not wait for would reach the disk only within half a second.
    database.site().restart();
    assert_eq!(env.status("x")["holders"][0]["token"], next.token().to_string());
    let mut last = env.hold(&long);
    env.await_waiters("x", 1);
    let token = next.token();
    assert_eq!(next.release().code(), Some(0));
    last.await_start();
    assert!(last.token() > token, "{} after {token}", last.token());
    last.release();
    // The crash may have hit its release.
    assert_eq!(holder.running.finish().code(), Some(0));
    env.assert_free("x");
}

/// Some runs wait, some are refused at once, and some find the lock free. The test kills every tenth.
#[test]
fn however_many_runs_leave_no_row_behind() {
    const TTL: &str = "3s";
    let database = Database::roomy();
    let env = database.env();
    let prefix = env.service().prefix.clone().expect("a prefix");
    let left = AtomicUsize::new(rounds(120));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Ok(n) = left.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)) {
                    let (name, wait) = (format!("x{}", n % 6), if n % 3 == 0 { "0" } else { "1m" });
                    let words = ["-q", "--ttl", TTL, "--wait", wait, "--name", &name, "--", "sleep", "0.005"];
                    let running = env.start(&mut env.run(words));
                    if n % 10 == 0 {
                        running.signal(Signal::KILL);
                    }
                    running.finish_within(CROWD);
                }
            });
        }
    });
    env.await_no_process();
    // After two minutes, the next writer of a note removes notes of claims that others ended: twenty at a time.
    database.age_notes(&prefix);
    let (_, notes) = database.rows(&prefix);
    let further = 1 + notes / 20;
    for _ in 0..further {
        let holder = env.held(&["-q", "--wait", "1m", "--name", "x0"]);
        process::signal(holder.running.keeper(), Signal::KILL);
        assert_eq!(holder.running.finish().code(), Some(76));
    }
    for n in 0..6 {
        env.finish(&mut env.run(["-q", "--wait", "1m", "--name", &format!("x{n}"), "--", "true"]))
            .silently(0);
    }
    let (claims, left) = database.rows(&prefix);
    assert!(claims == 0 && left <= further, "{claims} claims and {left} notes are left of {notes}");
}
