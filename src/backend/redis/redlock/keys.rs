//! The keys of one lock at each node, and the steps on them.

use std::time::{Duration, SystemTime};

use crate::backend::redis::keys::LockKeys;
use crate::backend::redis::script::{Call, NODE, micros, millis};
use crate::lock::{ClaimId, FencingToken, Mode};

/// The hold of a claim.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    /// The first line of its keys' value.
    pub(super) value: String,
    /// From 1, if the lock has slots.
    pub(super) slot: Option<u32>,
    pub(super) token: FencingToken,
}

/// The notes in a claim's values, by the line of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Note {
    Label = 4,
    Asked = 5,
}

/// The steps on the keys of one lock. `own` is the beginning of the values that a step concerns.
impl LockKeys {
    /// Returns the key that a holder sets.
    fn hold(&self, slot: Option<u32>) -> String {
        slot.map_or_else(|| self.lock.clone(), |slot| self.side(&format!("slot{slot}")))
    }

    /// Returns the step `command` of `node.lua`.
    fn step(&self, command: &str, own: &str, slot: Option<u32>, more: &[&str]) -> Call {
        let first = [command, &self.side_prefix("slot"), self.claim_suffix(), own];
        let arguments = first.iter().chain(more).map(|word| (*word).to_owned()).collect();
        let keys = vec![self.lock.clone(), self.hold(slot), self.counters()];
        Call::Script { script: &NODE, keys, arguments }
    }

    /// Returns the step that sets the key of `slot` to `value`, with a token of at least `proposal`.
    pub(super) fn acquire(
        &self,
        value: &str,
        slot: Option<u32>,
        ttl: Duration,
        proposal: u64,
        mode: Mode,
    ) -> Call {
        self.step("acquire", value, slot, &[&millis(ttl), &proposal.to_string(), &marker(mode)])
    }

    /// Returns the step that renews `hold` by another ttl.
    pub(super) fn extend(&self, hold: &Hold, ttl: Duration, mode: Mode) -> Call {
        let words = [&millis(ttl), &hold.token.to_string(), &marker(mode)];
        self.step("extend", &hold.value, hold.slot, &words.map(String::as_str))
    }

    /// Returns the step that removes keys; `held_for` is the length of a successful hold.
    pub(super) fn release(&self, own: &str, held_for: Option<Duration>) -> Call {
        let held_for = held_for.map(|length| micros(length).to_string());
        self.step("release", own, None, &held_for.iter().map(String::as_str).collect::<Vec<_>>())
    }

    pub(super) fn note(&self, id: ClaimId, note: Note, json: &str) -> Call {
        self.step("note", &beginning(id), None, &[&(note as u8).to_string(), json])
    }

    pub(super) fn evict_foreign(&self, id: ClaimId) -> Call {
        self.step("evict_foreign", "", None, &[&id.to_string()])
    }

    /// Returns the step that reads all holds. Older servers report changes only of the lock's key and of those of
    /// `slots`.
    pub(super) fn inspect(&self, slots: &[Option<u32>]) -> Call {
        let mut step = self.step("inspect", "", None, &[]);
        if let Call::Script { keys, .. } = &mut step {
            keys.extend(slots.iter().map(|slot| self.hold(*slot)));
        }
        step
    }
}

/// Returns the beginning of all values of the claim `id`, as [`crate::backend::record::Record`] writes it.
pub(super) fn beginning(id: ClaimId) -> String {
    format!("{{\"claim\":\"{id}\"")
}

/// Returns the value of the lock's key that stands for all slots together.
fn marker(mode: Mode) -> String {
    format!("redlock:{mode}")
}

/// Returns the wall clock, in microseconds: a proposal for tokens that is the same at all nodes. It also exceeds the
/// earlier tokens of a node that has lost its counter. Nothing else depends on it.
pub(super) fn proposal() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(0)
}
