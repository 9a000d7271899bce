//! Requests that arrive at a database after their sender has continued elsewhere.

use std::time::Duration;

use super::sql::Database;
use crate::servers::proxy::{Conduct, Proxy};
use crate::support::TestEnv;
use crate::support::wait::until_true;

/// A text that the request to enter has, and none before it.
const LABEL: &str = "late-label";

/// Returns the same part of the service, reached through a relay.
fn behind(database: &Database, env: &TestEnv, conduct: Conduct) -> (TestEnv, Proxy) {
    // So that the tables exist.
    env.finish(&mut env.run(["--name", "x", "-q", "--", "true"])).silently(0);
    let port = database.site().ports()[0];
    let way = Proxy::to(port);
    way.set(conduct);
    (TestEnv::on(env.service().through(way.port(), port)), way)
}

/// Linux resends the unsent data of a closed socket for 102.2 s: eight times, with a pause that doubles from 0.2 s.
#[test]
fn claim_stays_out_while_a_closed_connection_delivers() {
    let database = Database::start();
    let env = database.env();
    let prefix = env.service().prefix.clone().expect("a prefix");
    let (other, _way) = behind(&database, &env, Conduct::LoseOnce(LABEL));
    let words = ["--name", "x", "-w", "20s", "-q", "--label", LABEL, "--", "true"];
    other.finish(&mut other.run(words)).silently(0);
    let kept = database.ask(&format!("SELECT lease_until - since FROM {prefix}claim WHERE seq = 0"));
    let kept: u64 = kept.trim().parse().expect("one note");
    assert!(kept >= 102_200_000, "{kept} microseconds");
}

#[test]
fn superseded_waiter_leaves_when_newcomers_answer_is_lost() {
    let database = Database::start();
    let env = database.env();
    let (other, way) = behind(&database, &env, Conduct::MuteFrom(LABEL));
    let holder = env.held(&["--name", "x", "-q", "--ttl", "5m"]);
    // It may receive no notification: it polls when it renews.
    let older = env.start(&mut env.run(["--name", "x", "--supersede", "--ttl", "12s", "--", "true"]));
    env.await_waiters("x", 1);
    let newer =
        other.hold(&["--name", "x", "--supersede", "-w", "40s", "--ttl", "12s", "-q", "--label", LABEL]);
    until_true("the request", || way.conduct() == Conduct::Mute);
    way.leave_behind();
    let ended = older.finish_within(Duration::from_secs(30));
    assert_eq!(ended.code(), Some(75), "{}", ended.err);
    assert!(ended.err.contains("superseded by"), "{}", ended.err);
    assert_eq!(holder.release().code(), Some(0));
    assert_eq!(newer.release().code(), Some(0));
    env.assert_free("x");
}
