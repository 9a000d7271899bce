//! Sleeping until the claim ahead is gone.
//!
//! MySQL has no messages between clients. It has user-level locks, which end with their session, and for which a
//! statement can wait. A claim's session holds one while the claim is in the queue: its *presence lock*. A waiter waits
//! for the presence lock of a claim ahead, over its only connection, until its next renewal is due.

use super::dial::Dialer;
use super::language;
use crate::backend::sql::dialect::{Row, Sets, Wait};

/// The end of a sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The presence lock is free.
    Free,
    /// The time is over.
    Slept,
    /// The statement was executed on another connection than the session's first.
    Pooled,
}

/// Returns how many claims ahead the claim is that a waiter sleeps on. The server takes a chain of 32 waits for a
/// deadlock. So a waiter far back sleeps on a claim further ahead, and is near the front when that is gone. Chains of a
/// thousand claims then have 31 waits.
fn step(crowd: u32) -> u32 {
    match crowd {
        0..=10 => 1,
        11..=80 => 10,
        _ => 80,
    }
}

/// Returns the batch that sleeps.
pub(super) fn sleep(dialer: &Dialer, wait: &Wait) -> String {
    let claims = &dialer.tables().claim;
    let own = language::text(&wait.own.to_string());
    let presence = match step(wait.crowd) {
        1 => format!("'{}'", dialer.presence(wait.ahead)),
        step => {
            let start = dialer.presence_start();
            format!(
                "CONCAT('{start}', (SELECT p.claim FROM {claims} m JOIN {claims} p ON p.name = m.name AND p.seq < m.seq \
                 WHERE m.claim = {own} ORDER BY p.seq DESC LIMIT 1 OFFSET {step}))"
            )
        }
    };
    format!(
        "SET @dlock_ahead = COALESCE({presence}, '');\
         SELECT IF(@dlock_session <=> CONNECTION_ID(), IF(@dlock_ahead = '', 1, IF(GET_LOCK(@dlock_ahead, {length:.3}), RELEASE_LOCK(@dlock_ahead), 0)), 2);",
        length = wait.length.as_secs_f64(),
    )
}

/// Parses the answer.
pub(super) fn end_of(sets: &Sets) -> End {
    let first = |set: &Vec<Row>| set.first()?.first()?.clone();
    match sets.first().and_then(first).as_deref() {
        Some("1") => End::Free,
        Some("2") => End::Pooled,
        _ => End::Slept,
    }
}
