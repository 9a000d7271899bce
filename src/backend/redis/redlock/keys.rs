//! The keys of one lock at each node, and the steps on them.

use std::time::{Duration, SystemTime};

use crate::backend::redis::keys::{LockKeys, Naming};
use crate::backend::redis::script::{Call, NODE, millis};
use crate::lock::{ClaimId, FencingToken, LockName, Mode};
use crate::net::fault::FaultResult;

/// What is kept beside a key: since when it is held, the token, the label, who asks its owner to leave.
pub(super) const ABOUT: &str = "about";
const SLOT: &str = "slot";

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    pub(super) name: LockName,
    /// The one that other Redlock clients set; of a lock with slots it says how many there are.
    pub(super) lock: String,
    base: LockKeys,
}

/// One of the holds that a claim may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) mode: Mode,
    /// From 1, of a lock with slots.
    pub(super) slot: Option<u32>,
}

impl Place {
    /// What the lock's key says for all slots together.
    fn marker(self) -> String {
        self.slot.map_or_else(String::new, |_| format!("redlock:{}", self.mode))
    }
}

/// How all values of the claim `id` begin: they are its record, as [`crate::backend::record::Record`] writes it.
pub(super) fn beginning(id: ClaimId) -> String {
    format!("{{\"claim\":\"{id}\"")
}

impl Keys {
    pub(super) fn of(naming: &Naming, name: &LockName) -> FaultResult<Self> {
        let base = naming.of(name)?;
        Ok(Self { name: name.clone(), lock: base.lock.clone(), base })
    }

    /// The key that whoever holds that has set.
    pub(super) fn key(&self, slot: Option<u32>) -> String {
        slot.map_or_else(|| self.lock.clone(), |slot| self.base.side(&format!("{SLOT}{slot}")))
    }

    /// What is kept beside it.
    pub(super) fn about(&self, slot: Option<u32>) -> String {
        let slot = slot.map(|slot| slot.to_string()).unwrap_or_default();
        self.base.side(&format!("{ABOUT}{slot}"))
    }

    /// The hash with the last token and the last success.
    pub(super) fn counters(&self) -> String {
        self.base.counters()
    }

    /// `command` of `node.lua` about the hold of that slot, or of a lock without slots.
    fn step(&self, command: &str, slot: Option<u32>, own: &[&str]) -> Call {
        let keys = vec![self.lock.clone(), self.key(slot), self.about(slot), self.counters()];
        let (slots, abouts) = (self.base.side_prefix(SLOT), self.base.side_prefix(ABOUT));
        let first = [command, &slots, &abouts, self.base.claim_suffix()];
        let arguments = first.iter().chain(own).map(|word| (*word).to_owned()).collect();
        Call::Script { script: &NODE, keys, arguments }
    }

    /// One attempt to set the key of `place` to `value`.
    pub(super) fn acquire(&self, place: Place, value: &str, ttl: Duration) -> Call {
        let own = [value, &millis(ttl), &proposal().to_string(), &place.marker()];
        self.step("acquire", place.slot, &own)
    }

    /// Gives the hold another ttl; with `again` it is made anew where the node knows nothing of it.
    pub(super) fn extend(
        &self,
        place: Place,
        value: &str,
        ttl: Duration,
        token: FencingToken,
        again: bool,
    ) -> Call {
        let own = [value, &millis(ttl), &token.to_string(), &place.marker(), if again { "1" } else { "0" }];
        self.step("extend", place.slot, &own)
    }

    /// Removes the keys whose values begin with `own`; `succeeded` as for [`crate::backend::Claim::leave`].
    pub(super) fn release(&self, own: &str, succeeded: bool) -> Call {
        self.step("release", None, &[own, if succeeded { "1" } else { "0" }])
    }

    /// Has what is kept beside the keys of the claim `id` say `text` in `field`.
    pub(super) fn note(&self, id: ClaimId, field: &str, text: &str) -> Call {
        self.step("note", None, &[&beginning(id), field, text])
    }

    pub(super) fn evict_foreign(&self, id: ClaimId) -> Call {
        self.step("evict_foreign", None, &[&id.to_string()])
    }

    pub(super) fn inspect(&self) -> Call {
        self.step("inspect", None, &[])
    }

    /// Reads which of the keys exist that are in the way of a claim in `mode`, the lock's or those of the slots, and how many these
    /// are if all are there. The node can tell of their next change then.
    pub(super) fn in_the_way(&self, mode: Mode, lock: bool) -> (Call, i64) {
        let (keys, all) = match mode {
            Mode::Slots(slots) if !lock => {
                ((1..=slots.get()).map(|slot| self.key(Some(slot))).collect(), slots.get().into())
            }
            _ => (vec![self.lock.clone()], 1),
        };
        (Call::Command(std::iter::once("EXISTS".to_owned()).chain(keys).collect()), all)
    }
}

/// The wall clock, in microseconds: a proposal for tokens that is the same at all nodes, and no lower than any before should a node
/// have forgotten its counter. Nothing else depends on it.
fn proposal() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(0)
}
