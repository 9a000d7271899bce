//! The keys of one lock at each node, and the steps on them.

use std::time::{Duration, SystemTime};

use crate::backend::redis::keys::{LockKeys, Naming};
use crate::backend::redis::script::{Call, NODE, millis};
use crate::lock::{ClaimId, FencingToken, LockName, Mode};
use crate::net::fault::FaultResult;

/// Every attempt of a claim: numbers of attempts are lower.
pub(super) const ALL: u64 = 1 << 53;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Keys(pub(super) LockKeys);

/// One attempt of a claim, for one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) id: ClaimId,
    /// No other of this client has the same.
    pub(super) number: u64,
    /// From 1, of a lock with slots.
    pub(super) slot: Option<u32>,
}

/// What a claim holds.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) attempt: Attempt,
    /// What its key says, but for what is noted there.
    pub(super) value: String,
    pub(super) token: FencingToken,
}

/// What is noted in the values of a claim, by the line of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Note {
    Label = 4,
    Asked = 5,
}

impl Keys {
    pub(super) fn of(naming: &Naming, name: &LockName) -> FaultResult<Self> {
        Ok(Self(naming.of(name)?))
    }

    /// The key that whoever holds that has set.
    fn hold(&self, slot: Option<u32>) -> String {
        slot.map_or_else(|| self.0.lock.clone(), |slot| self.0.side(&format!("slot{slot}")))
    }

    /// `command` of `node.lua` about this attempt.
    fn step(&self, command: &str, attempt: Attempt, more: &[&str]) -> Call {
        let (keys, hold) = (&self.0, self.hold(attempt.slot));
        // As all records begin.
        let own = format!("{{\"claim\":\"{}\"", attempt.id);
        let number = attempt.number.to_string();
        let first = [command, &keys.side_prefix("slot"), keys.claim_suffix(), &own, &number];
        let arguments = first.iter().chain(more).map(|word| (*word).to_owned()).collect();
        Call::Script { script: &NODE, keys: vec![keys.lock.clone(), hold, keys.counters()], arguments }
    }

    /// `command` about every attempt of the claim `id`.
    fn step_on_all(&self, command: &str, id: ClaimId, more: &[&str]) -> Call {
        self.step(command, Attempt { id, number: ALL, slot: None }, more)
    }

    /// Sets the key of `attempt`.
    pub(super) fn acquire(&self, attempt: Attempt, value: &str, ttl: Duration, mode: Mode) -> Call {
        self.step("acquire", attempt, &[value, &millis(ttl), &proposal().to_string(), &marker(mode)])
    }

    /// Gives `hold` another ttl; with `again` it is made anew where the node knows nothing of it.
    pub(super) fn extend(&self, hold: &Hold, ttl: Duration, mode: Mode, again: bool) -> Call {
        let (token, again) = (hold.token.to_string(), if again { "1" } else { "0" });
        self.step("extend", hold.attempt, &[&hold.value, &millis(ttl), &token, &marker(mode), again])
    }

    /// Removes what this attempt and earlier ones of its claim have set.
    pub(super) fn take_back(&self, attempt: Attempt) -> Call {
        self.step("release", attempt, &["0"])
    }

    /// Removes the keys of the claim `id`; `succeeded` as for [`crate::backend::Claim::leave`].
    pub(super) fn release(&self, id: ClaimId, succeeded: bool) -> Call {
        self.step_on_all("release", id, &[if succeeded { "1" } else { "0" }])
    }

    pub(super) fn note(&self, id: ClaimId, note: Note, json: &str) -> Call {
        self.step_on_all("note", id, &[&(note as u8).to_string(), json])
    }

    pub(super) fn evict_foreign(&self, id: ClaimId) -> Call {
        self.step_on_all("evict_foreign", id, &[&id.to_string()])
    }

    /// Reads all holds. Older servers tell of changes of no other keys than the lock's and those of `slots`.
    pub(super) fn inspect(&self, slots: &[Option<u32>]) -> Call {
        let mut step = self.step_on_all("inspect", ClaimId::from_bytes([0; 16]), &[]);
        if let Call::Script { keys, .. } = &mut step {
            keys.extend(slots.iter().map(|slot| self.hold(*slot)));
        }
        step
    }
}

/// What the lock's key says for all slots together.
fn marker(mode: Mode) -> String {
    format!("redlock:{mode}")
}

/// The wall clock, in microseconds: a proposal for tokens that is the same at all nodes, and no lower than any before should a node
/// have forgotten its counter. Nothing else depends on it.
fn proposal() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(0)
}
