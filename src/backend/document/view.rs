//! What a client knows of its claim.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::change::Known;
use super::queue::{Document, QueueEntry};
use super::watch::Watch;
use crate::backend::claim_state::Publisher;
use crate::lock::{ClaimId, ClaimState, Entry, Holder, LossReason, Moment};

/// Why a claim is gone, as whoever ended it noted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Note {
    /// `superseded` or `evicted`.
    pub(super) why: String,
    /// Who did it.
    pub(super) by: Holder,
}

impl Note {
    pub(super) fn new(why: &str, by: &Holder) -> Self {
        Self { why: why.to_owned(), by: by.clone() }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// How the claim ended.
    pub(super) fn state(bytes: &[u8]) -> ClaimState {
        match serde_json::from_slice::<Self>(bytes) {
            Ok(Self { why, by }) if why == "superseded" => ClaimState::Superseded { by },
            Ok(Self { by, .. }) => ClaimState::Lost(LossReason::Evicted(Some(by))),
            Err(_) => ClaimState::Lost(LossReason::Evicted(None)),
        }
    }
}

/// What a client knows of its claim.
#[derive(Debug)]
pub(super) struct View {
    id: ClaimId,
    pub(super) ttl: Duration,
    /// For which claim the item was made in which this one entered; `None` while it has not entered, behind a foreign holder.
    pub(super) born: Option<String>,
    pub(super) watch: Watch,
    /// The queue as it was read last, as long as nothing was sent since that may change it.
    pub(super) known: Option<Known>,
    pub(super) ahead: Option<usize>,
}

impl View {
    pub(super) fn new(id: ClaimId, ttl: Duration) -> Self {
        Self { id, ttl, born: None, watch: Watch::default(), known: None, ahead: None }
    }

    /// When the lease runs out of a claim that has entered and whose ttl counts from `proof`.
    pub(super) fn expires_at(&self, proof: Moment) -> Moment {
        if self.born.is_some() { proof + self.ttl } else { Moment::NEVER }
    }

    /// The others that are dead.
    pub(super) fn dead(&self, document: &Document, now: Moment) -> Vec<ClaimId> {
        let others = document.claims.iter().filter_map(QueueEntry::id).filter(|id| *id != self.id);
        others.filter(|id| self.watch.is_dead(*id, now)).collect()
    }

    /// Takes over a queue, read by `now`, and publishes how the claim stands in it; whether it does. What an older answer does
    /// not know yet is not taken back.
    pub(super) fn take(&mut self, known: Known, now: Moment, publisher: &Publisher) -> bool {
        self.watch.look(Some(&known.document), now);
        let Some(at) = known.document.position(self.id) else { return false };
        self.born.get_or_insert_with(|| known.document.born.clone());
        let own = &known.document.claims[at];
        let state = match (&own.asked, own.granted()) {
            (Some(by), _) => ClaimState::AskedToLeave { by: by.clone() },
            (None, Some(granted)) => publisher.held(vec![granted]),
            (None, None) => {
                let lead = known.document.claims.first().filter(|_| at > 0).map(entry);
                ClaimState::Waiting { ahead: u32::try_from(at).ok(), holder: lead.map(Box::new) }
            }
        };
        publisher.publish(state);
        self.ahead = (own.granted().is_none() && publisher.held_at().is_none()).then_some(at);
        self.known = Some(known);
        true
    }

    /// How the claim ended that is not in the queue of `document` any more and of which nothing was noted.
    pub(super) fn gone(&self, document: Option<&Document>, forgotten: &str, has_expired: bool) -> ClaimState {
        let is_same = document.is_some_and(|document| Some(&document.born) == self.born.as_ref());
        ClaimState::Lost(if has_expired {
            LossReason::Expired
        } else if is_same {
            LossReason::SessionEnded
        } else {
            LossReason::Replaced(forgotten.to_owned())
        })
    }
}

/// What others are shown of a claim.
pub(super) fn entry(place: &QueueEntry) -> Entry {
    let mut entry = place.about.entry();
    let mut since = place.since;
    if let (Some(granted), Some(held)) = (place.granted(), place.held) {
        (entry.token, entry.slot) = (Some(granted.token), granted.slot);
        since = held.since;
    }
    entry.since = Some(SystemTime::UNIX_EPOCH + Duration::from_millis(since));
    entry
}

/// What is shown of another program's item, which its clients call `called`.
pub(super) fn foreign_entry(claim: ClaimId, called: String) -> Entry {
    Entry { claim: Some(claim), foreign: true, key: Some(called), ..Entry::default() }
}
