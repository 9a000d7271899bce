//! The position of a claim in one queue, as read from the database.

use std::time::Duration;

use super::dialect::{Row, Sets};
use crate::backend::record::{Record, granted, instant, with_details};
use crate::lock::queue::held;
use crate::lock::{ClaimId, Entry, Granted, Holder, Mode};
use crate::net::fault::{Fault, FaultResult};

/// The position of a claim in one queue.
#[derive(Clone, Default, Debug)]
pub(super) struct Standing {
    /// Whether it is in the queue.
    pub(super) present: bool,
    /// Its grant.
    pub(super) granted: Option<Granted>,
    /// The client that asked it to leave.
    pub(super) asked: Option<Holder>,
    /// The number of entries ahead.
    pub(super) ahead: usize,
    /// The last entry ahead that must end before it holds, if its id can be read. For a shared claim, only entries that
    /// are not shared count. With slots it is the last entry ahead. `is_behind` is whether there is one.
    pub(super) behind: Option<ClaimId>,
    is_behind: bool,
    /// The time after which the state may change without a request: the end of that entry's lease, or of its own.
    pub(super) horizon: Option<Duration>,
    /// Why it is gone, if that is recorded, and the client that removed it.
    pub(super) gone: Option<String>,
    pub(super) by: Option<Holder>,
    /// The first entry of the queue, if it is another claim's.
    pub(super) lead: Option<Entry>,
}

impl Standing {
    /// Parses the positions in all `locks` queues, at the end of `sets`, in the order in which queues are locked.
    pub(super) fn all(sets: &Sets, locks: usize) -> FaultResult<Vec<Self>> {
        last(sets, locks)?.map(|row| row.and_then(Self::parse)).collect()
    }

    /// Parses the result of [`super::steps::Steps::enter`] for the claim itself in the queues of `locks`, which are in
    /// order. Entries ahead, and the reason of an absence, are unknown.
    pub(super) fn own(sets: &Sets, locks: &[String]) -> FaultResult<Vec<Self>> {
        let mut own = vec![Self::default(); locks.len()];
        for row in sets.iter().flatten() {
            // The results of wake-ups have fewer columns.
            let [name, seq, fence, slot, asked, left] = &row[..] else { continue };
            let place = locks.iter().position(|lock| Some(lock) == name.as_ref());
            *place.and_then(|place| own.get_mut(place)).ok_or_else(|| columns(row))? = Self {
                present: seq.is_some(),
                granted: granted(fence.as_deref(), slot.as_deref()),
                asked: asked.as_deref().and_then(|text| serde_json::from_str(text).ok()),
                horizon: left.as_deref().and_then(length),
                ..Self::default()
            };
        }
        Ok(own)
    }

    fn parse(row: &Row) -> FaultResult<Self> {
        if row.len() != 16 {
            return Err(columns(row));
        }
        let text = |n: usize| row[n].as_deref();
        let holder = |n: usize| text(n).and_then(|text| serde_json::from_str(text).ok());
        let ahead = text(5).and_then(|text| text.parse().ok());
        Ok(Self {
            present: text(0).is_some(),
            granted: granted(text(1), text(2)),
            asked: holder(3),
            ahead: ahead.ok_or_else(|| Fault::nonsense("no place in the queue"))?,
            behind: text(6).and_then(|id| id.trim().parse().ok()),
            is_behind: text(6).is_some(),
            horizon: [text(4), text(7)].into_iter().flatten().filter_map(length).min(),
            gone: text(8).map(str::to_owned),
            by: holder(9),
            lead: lead(row),
        })
    }

    /// Returns whether the claim holds by its place in the queue, with or without its token.
    pub(super) fn holds(&self, mode: Mode) -> bool {
        if !self.present {
            return false;
        }
        // Only this matters to the rule, not the order of the entries ahead.
        let others = match mode {
            Mode::Shared if !self.is_behind => Mode::Shared,
            Mode::Shared | Mode::Exclusive => Mode::Exclusive,
            Mode::Slots(_) => mode,
        };
        let mut queue = vec![others; self.ahead];
        queue.push(mode);
        held(&queue) > self.ahead
    }

    /// Records the grant of a claim at the front of its queue.
    pub(super) fn give(&mut self, granted: Granted) {
        (self.granted, self.ahead) = (Some(granted), 0);
        (self.behind, self.is_behind, self.lead) = (None, false, None);
    }

    /// Keeps a known grant, because an answer may be older than the notification of the grant.
    pub(super) fn keep(&mut self, known: &Self) {
        if self.present && self.granted.is_none() && known.granted.is_some() {
            (self.granted, self.ahead) = (known.granted, known.ahead);
            (self.behind, self.is_behind, self.lead) = (known.behind, known.is_behind, known.lead.clone());
        }
    }

    /// Returns the number of entries ahead.
    pub(super) fn ahead(&self) -> u32 {
        u32::try_from(self.ahead).unwrap_or(u32::MAX)
    }
}

/// Returns the first rows of the last `locks` sets.
fn last(sets: &Sets, locks: usize) -> FaultResult<impl Iterator<Item = FaultResult<&Row>>> {
    let start = sets.len().checked_sub(locks).ok_or_else(|| Fault::nonsense("too few rows"))?;
    Ok(sets[start..].iter().map(|set| set.first().ok_or_else(|| Fault::nonsense("no row"))))
}

fn columns(row: &Row) -> Fault {
    Fault::nonsense(format!("{} columns", row.len()))
}

/// Returns the first entry of the queue.
fn lead(row: &Row) -> Option<Entry> {
    let text = |n: usize| row[n].as_deref();
    let (mode, about) = (text(10)?, text(11)?);
    // Of another version's entry only the mode is readable.
    let unread = || Entry { mode: mode.parse().ok(), ..Entry::default() };
    let entry = Record::parse(about.as_bytes()).map_or_else(unread, |record| record.entry());
    let granted = granted(text(13), text(14));
    let since = granted.and(text(15)).and_then(instant);
    Some(with_details(entry, text(12).and_then(quoted), granted, since, None))
}

/// Parses a text that is stored as a JSON string.
pub(super) fn quoted(text: &str) -> Option<String> {
    serde_json::from_str(text).ok()
}

/// Parses microseconds; zero if they are negative.
pub(super) fn length(text: &str) -> Option<Duration> {
    text.parse::<i64>().ok().map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::FencingToken;
    use proptest::prelude::*;
    use std::num::NonZeroU32;

    /// Returns the position of a claim in `mode` behind `queue`.
    fn position(queue: &[Mode], mode: Mode) -> Standing {
        let is_behind = queue.iter().any(|ahead| mode != Mode::Shared || *ahead != Mode::Shared);
        Standing { present: true, ahead: queue.len(), is_behind, ..Standing::default() }
    }

    fn agrees(queue: &[Mode]) {
        for index in 0..queue.len() {
            let holds = index < held(queue);
            assert_eq!(
                position(&queue[..index], queue[index]).holds(queue[index]),
                holds,
                "{queue:?} at {index}"
            );
        }
    }

    proptest! {
        #[test]
        fn counting_those_ahead_agrees_with_the_rule(
            queue in prop::collection::vec(prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared)], 0..20)
        ) {
            agrees(&queue);
        }

        #[test]
        fn counting_slots_agrees_with_the_rule(n in 1u32..6, length in 0usize..12) {
            agrees(&vec![Mode::Slots(NonZeroU32::new(n).expect("positive")); length]);
        }
    }

    #[test]
    fn older_answer_does_not_revoke_a_grant() {
        let granted = Granted { token: FencingToken::new(7).expect("not zero"), slot: None };
        let older = position(&[Mode::Exclusive], Mode::Exclusive);
        let mut given = older.clone();
        given.give(granted);
        assert!(given.holds(Mode::Exclusive) && !older.holds(Mode::Exclusive));
        let mut answer = older.clone();
        answer.keep(&given);
        assert!(answer.granted == Some(granted) && answer.holds(Mode::Exclusive));
        let mut gone = Standing { present: false, ..older.clone() };
        gone.keep(&given);
        assert!(gone.granted.is_none() && !gone.holds(Mode::Exclusive));
        let mut answer = given;
        answer.keep(&older);
        assert_eq!(answer.granted, Some(granted));
    }

    #[test]
    fn absent_claim_does_not_hold() {
        assert!(!Standing { present: false, ..position(&[], Mode::Exclusive) }.holds(Mode::Exclusive));
    }
}
