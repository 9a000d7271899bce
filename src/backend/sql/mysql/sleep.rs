//! Sleeping until the claim ahead is gone.
//!
//! MySQL has no messages between clients. It has user-level locks, which end with their session, and for which a
//! statement can wait. A claim's session holds one while the claim is in the queue: its *presence lock*. A waiter waits
//! for the presence lock of a claim ahead, over its only connection, until its next renewal is due.

use super::dial::Dialer;
use super::language;
use crate::backend::record::granted;
use crate::backend::sql::dialect::{Row, Sets, Wait};
use crate::lock::{ClaimId, Granted};

/// The notifications of a session.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Notified {
    /// Their number.
    pub(super) count: u64,
    given: Option<(ClaimId, Granted)>,
}

impl Notified {
    /// Adds one; `given` is the grant that it contains.
    pub(super) fn add(&mut self, given: Option<(ClaimId, Granted)>) {
        self.count += 1;
        self.given = given;
    }

    /// Implements [`crate::backend::sql::dialect::Session::given`].
    pub(super) fn given(&self, own: ClaimId, notified: u64) -> Option<Granted> {
        let (claim, granted) = self.given.filter(|_| self.count == notified + 1)?;
        (claim == own).then_some(granted)
    }
}

/// The end of a sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The presence lock is free, and its owner has granted the lock to this claim.
    Given(Granted),
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
    let [own, ahead] = [wait.own, wait.ahead].map(|id| language::text(&id.to_string()));
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
         SELECT IF(@dlock_session <=> CONNECTION_ID(), IF(@dlock_ahead = '', 1, IF(GET_LOCK(@dlock_ahead, {length:.3}), RELEASE_LOCK(@dlock_ahead), 0)), 2);\
         {takes_writes}SELECT (SELECT c.fence FROM {claims} c WHERE c.claim = {own} AND c.given_by = {ahead});",
        length = wait.length.as_secs_f64(),
        // A grant by a replaced server must be read from the new one.
        takes_writes = language::TAKES_WRITES,
    )
}

/// Parses the answer.
pub(super) fn end_of(sets: &Sets) -> End {
    let first = |set: &Vec<Row>| set.first()?.first()?.clone();
    match sets.first().and_then(first).as_deref() {
        Some("1") => granted(sets.get(1).and_then(first).as_deref(), None).map_or(End::Free, End::Given),
        Some("2") => End::Pooled,
        _ => End::Slept,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grant_is_news_only_without_other_notifications() {
        let (own, other) = (ClaimId::from_bytes([1; 16]), ClaimId::from_bytes([2; 16]));
        let granted = Granted { token: crate::lock::FencingToken::new(7).expect("not zero"), slot: None };
        let mut notified = Notified::default();
        assert_eq!(notified.given(own, 0), None);
        notified.add(Some((own, granted)));
        assert_eq!(
            (notified.given(own, 0), notified.given(other, 0), notified.given(own, 1)),
            (Some(granted), None, None)
        );
        // It may also have been asked to leave, before or after.
        notified.add(None);
        assert_eq!((notified.given(own, 0), notified.given(own, 1)), (None, None));
        notified.add(Some((own, granted)));
        assert_eq!((notified.given(own, 1), notified.given(own, 2)), (None, Some(granted)));
    }
}
