//! A lease of nobody's process: whoever keeps the claim lets it end one ttl after its last renewal.
//!
//! A renewal is a mark in the queue, written under its guard, and the end is decided under the same guard. So whichever comes
//! second sees the first: a renewal that was confirmed counts, and one that comes too late finds no claim.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::directory::Directory;
use super::fault::FaultResult;
use super::publish;
use super::queue::{Image, Mark, Record};
use super::token;
use crate::clock;
use crate::lock::{ClaimId, LockName, Moment};

/// What the keeper of a lease knows of its renewals.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Lease {
    /// When it was renewed last, or began.
    from: Moment,
    /// The marks of renewals that are known, one for each of its queues.
    known: Vec<Option<u64>>,
    /// When those were read.
    looked: Moment,
}

impl Lease {
    pub(super) fn begin(now: Moment) -> Self {
        Self { from: now, known: Vec::new(), looked: now }
    }

    /// Until when it lasts, given the marks that stand in its queues at `now`.
    pub(super) fn until(&mut self, marks: Vec<Option<u64>>, now: Moment, ttl: Duration) -> Moment {
        self.look(marks, now);
        self.from + ttl
    }

    /// Takes over the marks that stand in its queues at `now`.
    fn look(&mut self, marks: Vec<Option<u64>>, now: Moment) {
        for (at, mark) in marks.iter().enumerate() {
            let (Some(set), true) = (mark, self.known.get(at) != Some(mark)) else { continue };
            let set = Moment::from_nanos(*set);
            // Since the last look. A clock that says another time is that of another time namespace.
            let is_true = set >= self.looked && set <= now;
            self.from = if is_true { self.from.max(set) } else { now };
        }
        (self.known, self.looked) = (marks, now);
    }
}

/// As [`crate::backend::Backend::renew`]. The mark in the queue of `lock` renews the claim; the others show it.
pub(super) async fn renew(
    directory: &Arc<Directory>,
    lock: &LockName,
    id: ClaimId,
    deadline: Moment,
) -> FaultResult<bool> {
    let mut others = Vec::new();
    let content = |queue: &Image, record: &Record| {
        others = queue.details(record).map(|details| details.names).unwrap_or_default();
        renewal(queue, record)
    };
    if !publish::mark(directory, lock, id, deadline, content).await? {
        return Ok(false);
    }
    for other in others.into_iter().filter_map(|name| LockName::new(name).ok()).filter(|name| name != lock) {
        // It is renewed, whatever can be shown.
        let _shown = publish::mark(directory, &other, id, deadline, renewal).await;
    }
    Ok(true)
}

/// A mark of this moment, always as long, so that the next one is written over it.
fn renewal(queue: &Image, record: &Record) -> (Mark, Value, usize) {
    // Never the same as the last one, whoever's clock that was of.
    let last = renewed(queue, record.fixed.id).unwrap_or(0);
    let stamp = clock::now().as_nanos().max(last + 1);
    (Mark::Renewed, Value::from(format!("{stamp:020}")), 0)
}

/// The mark of the last renewal of the claim `id` in its queue: nanoseconds of the host's clock since it was started.
pub(super) fn renewed(queue: &Image, id: ClaimId) -> Option<u64> {
    let stamp: String = serde_json::from_slice(queue.mark(Mark::Renewed, id)?.2).ok()?;
    stamp.parse().ok()
}

/// What is left of the lease of `record`, which holds, if it has one: since its last renewal, or by the wall clock since it
/// held.
pub(super) fn left(queue: &Image, record: &Record) -> Option<Duration> {
    let ttl = Duration::from_millis(queue.details(record)?.ttl_ms?);
    Some(match renewed(queue, record.fixed.id) {
        Some(at) => (Moment::from_nanos(at) + ttl).since(clock::now()).min(ttl),
        None => ttl.saturating_sub(Duration::from_micros(token::wall().saturating_sub(record.fixed.since))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(nanos(seconds))
    }

    fn nanos(seconds: u64) -> u64 {
        seconds * 1_000_000_000
    }

    #[test]
    fn a_lease_counts_from_the_last_of_its_renewals() {
        let mut lease = Lease::begin(at(100));
        lease.look(vec![None, None], at(105));
        assert_eq!(lease.from, at(100));
        lease.look(vec![Some(nanos(108)), Some(nanos(107))], at(110));
        assert_eq!(lease.from, at(108));
        lease.look(vec![Some(nanos(108)), Some(nanos(107))], at(115));
        assert_eq!(lease.from, at(108), "the same ones");
        lease.look(vec![Some(nanos(108)), Some(nanos(117))], at(120));
        assert_eq!(lease.from, at(117));
    }

    #[test]
    fn a_renewal_by_another_clock_counts_from_when_it_is_seen() {
        for mark in [nanos(3), nanos(900)] {
            let mut lease = Lease::begin(at(100));
            lease.look(vec![Some(mark)], at(110));
            assert_eq!(lease.from, at(110));
            lease.look(vec![Some(mark)], at(120));
            assert_eq!(lease.from, at(110), "the same one");
        }
    }
}
