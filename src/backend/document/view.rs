//! A client's knowledge of its claim.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::change::Known;
use super::queue::{Document, QueueEntry};
use super::watch::Watch;
use crate::backend::claim_state::Publisher;
use crate::lock::{ClaimId, ClaimState, Entry, Holder, LossReason, Moment};

/// Why a claim is gone, noted by the client that removed it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Note {
    /// `superseded` or `evicted`.
    pub(super) why: String,
    /// The client that removed it.
    pub(super) by: Holder,
}

impl Note {
    pub(super) fn new(why: &str, by: &Holder) -> Self {
        Self { why: why.to_owned(), by: by.clone() }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Returns the final state of the claim.
    pub(super) fn state(bytes: &[u8]) -> ClaimState {
        match serde_json::from_slice::<Self>(bytes) {
            Ok(Self { why, by }) if why == "superseded" => ClaimState::Superseded { by },
            Ok(Self { by, .. }) => ClaimState::Lost(LossReason::Evicted(Some(by))),
            Err(_) => ClaimState::Lost(LossReason::Evicted(None)),
        }
    }
}

/// A client's knowledge of its claim.
#[derive(Debug)]
pub(super) struct View {
    id: ClaimId,
    pub(super) ttl: Duration,
    /// The claim for which the item was created that this one entered; `None` while it waits behind another program's
    /// item.
    pub(super) born: Option<String>,
    pub(super) watch: Watch,
    /// The queue as read last, unless a request that may change it was sent since.
    pub(super) known: Option<Known>,
    pub(super) ahead: Option<usize>,
}

impl View {
    pub(super) fn new(id: ClaimId, ttl: Duration) -> Self {
        Self { id, ttl, born: None, watch: Watch::default(), known: None, ahead: None }
    }

    /// Returns when the lease expires if the claim has entered and its ttl counts from `proof`.
    pub(super) fn expires_at(&self, proof: Moment) -> Moment {
        if self.born.is_some() { proof + self.ttl } else { Moment::NEVER }
    }

    /// Returns the other claims that are dead.
    pub(super) fn dead(&self, document: &Document, now: Moment) -> Vec<ClaimId> {
        let others = document.claims.iter().filter_map(QueueEntry::id).filter(|id| *id != self.id);
        others.filter(|id| self.watch.is_dead(*id, now)).collect()
    }

    /// Applies a queue, read by `now`, and publishes the state of the claim in it. Returns whether it is there. An
    /// outdated queue does not take a newer state back.
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

    /// Returns how a claim ended that is not in the queue of `document` any more and has no note.
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

/// Returns the entry of a claim for display.
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

/// Returns the entry of another program's item for display; its clients call it `called`.
pub(super) fn foreign_entry(claim: ClaimId, called: String) -> Entry {
    Entry { claim: Some(claim), foreign: true, key: Some(called), ..Entry::default() }
}
