//! The keys of one lock at each node, and the steps on them.

use std::time::{Duration, SystemTime};

use crate::backend::redis::keys::LockKeys;
use crate::backend::redis::script::{Call, NODE, millis};
use crate::lock::{ClaimId, FencingToken, Mode};

/// Stands for every attempt of a claim: the numbers of attempts are lower.
pub(super) const ALL: u64 = 1 << 53;

/// One attempt of a claim, for one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) id: ClaimId,
    /// Unique within this client.
    pub(super) number: u64,
    /// From 1, if the lock has slots.
    pub(super) slot: Option<u32>,
}

/// The hold of a claim.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) attempt: Attempt,
    /// The value of its key, without notes.
    pub(super) value: String,
    pub(super) token: FencingToken,
}

/// The notes in a claim's values, by the line of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Note {
    Label = 4,
    Asked = 5,
}

/// The steps on the keys of one lock.
impl LockKeys {
    /// Returns the key that a holder sets.
    fn hold(&self, slot: Option<u32>) -> String {
        slot.map_or_else(|| self.lock.clone(), |slot| self.side(&format!("slot{slot}")))
    }

    /// Returns the step `command` of `node.lua` for this attempt.
    fn step(&self, command: &str, attempt: Attempt, more: &[&str]) -> Call {
        let (keys, hold) = (self, self.hold(attempt.slot));
        // The beginning of every record of this claim.
        let own = format!("{{\"claim\":\"{}\"", attempt.id);
        let number = attempt.number.to_string();
        let first = [command, &keys.side_prefix("slot"), keys.claim_suffix(), &own, &number];
        let arguments = first.iter().chain(more).map(|word| (*word).to_owned()).collect();
        Call::Script { script: &NODE, keys: vec![keys.lock.clone(), hold, keys.counters()], arguments }
    }

    /// Returns the step `command` for every attempt of the claim `id`.
    fn step_on_all(&self, command: &str, id: ClaimId, more: &[&str]) -> Call {
        self.step(command, Attempt { id, number: ALL, slot: None }, more)
    }

    /// Returns the step that sets the key of `attempt`.
    pub(super) fn acquire(&self, attempt: Attempt, value: &str, ttl: Duration, mode: Mode) -> Call {
        self.step("acquire", attempt, &[value, &millis(ttl), &proposal().to_string(), &marker(mode)])
    }

    /// Returns the step that renews `hold` by another ttl; with `again` it is created if the node does not have it.
    pub(super) fn extend(&self, hold: &Hold, ttl: Duration, mode: Mode, again: bool) -> Call {
        let (token, again) = (hold.token.to_string(), if again { "1" } else { "0" });
        self.step("extend", hold.attempt, &[&hold.value, &millis(ttl), &token, &marker(mode), again])
    }

    /// Returns the step that removes the keys of this attempt and earlier ones of its claim.
    pub(super) fn take_back(&self, attempt: Attempt) -> Call {
        self.step("release", attempt, &["0"])
    }

    /// Returns the step that removes the keys of the claim `id`; `succeeded` as for [`crate::backend::Claim::leave`].
    pub(super) fn release(&self, id: ClaimId, succeeded: bool) -> Call {
        self.step_on_all("release", id, &[if succeeded { "1" } else { "0" }])
    }

    pub(super) fn note(&self, id: ClaimId, note: Note, json: &str) -> Call {
        self.step_on_all("note", id, &[&(note as u8).to_string(), json])
    }

    pub(super) fn evict_foreign(&self, id: ClaimId) -> Call {
        self.step_on_all("evict_foreign", id, &[&id.to_string()])
    }

    /// Returns the step that reads all holds. Older servers report changes only of the lock's key and of those of
    /// `slots`.
    pub(super) fn inspect(&self, slots: &[Option<u32>]) -> Call {
        let mut step = self.step_on_all("inspect", ClaimId::from_bytes([0; 16]), &[]);
        if let Call::Script { keys, .. } = &mut step {
            keys.extend(slots.iter().map(|slot| self.hold(*slot)));
        }
        step
    }
}

/// Returns the value of the lock's key that stands for all slots together.
fn marker(mode: Mode) -> String {
    format!("redlock:{mode}")
}

/// Returns the wall clock, in microseconds: a proposal for tokens that is the same at all nodes. It also exceeds the
/// earlier tokens of a node that has lost its counter. Nothing else depends on it.
fn proposal() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(0)
}
