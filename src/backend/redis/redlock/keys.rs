//! The keys of one lock at each node: the steps on them, and the holds that they show.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::Value;

use super::nodes::Answer;
use crate::backend::record::{Record, instant};
use crate::backend::redis::dial::{parsed, text, value_of};
use crate::backend::redis::fault;
use crate::backend::redis::keys::{COUNTERS, LockKeys};
use crate::backend::redis::rows::{foreign_entry, life};
use crate::backend::redis::script::{Call, NODE, millis};
use crate::lock::{ClaimId, Entry, FencingToken, Mode};
use crate::net::fault::FaultResult;

/// The hold of a claim, or what an attempt would hold.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    /// The first line of its keys' value.
    pub(super) value: String,
    /// From 1, if the lock has slots.
    pub(super) slot: Option<u32>,
    /// The token; for an attempt a proposal, which is the least one that a node may give.
    pub(super) token: u64,
}

/// The lines of a value that other clients may set.
pub(super) const LABEL: &str = "4";
pub(super) const ASKED: &str = "5";

impl LockKeys {
    /// Returns the key that a holder sets.
    fn hold(&self, slot: Option<u32>) -> String {
        slot.map_or_else(|| self.lock.clone(), |slot| self.side(&format!("slot{slot}")))
    }

    /// Returns the step `command` of `node.lua`. `own` is the beginning of the values that it concerns.
    pub(super) fn step(&self, command: &str, own: &str, slot: Option<u32>, more: &[&str]) -> Call {
        self.step_on(vec![self.lock.clone(), self.hold(slot), self.side(COUNTERS)], command, own, more)
    }

    fn step_on(&self, keys: Vec<String>, command: &str, own: &str, more: &[&str]) -> Call {
        let first = [command, &self.side_prefix("slot"), &self.suffix, own];
        let arguments = first.iter().chain(more).map(|word| (*word).to_owned()).collect();
        Call::script(&NODE, keys, arguments)
    }

    /// Returns the step `command`, which sets or renews the key of `hold` for `ttl`.
    pub(super) fn set(&self, command: &str, hold: &Hold, ttl: Duration, mode: Mode) -> Call {
        let words = [&millis(ttl), &hold.token.to_string(), &format!("redlock:{mode}")];
        self.step(command, &hold.value, hold.slot, &words.map(String::as_str))
    }

    /// Returns the step that reads all holds. Older servers report changes only of the lock's key and of those of
    /// `slots`.
    pub(super) fn inspect(&self, slots: &[Option<u32>]) -> Call {
        let mut keys = vec![self.lock.clone(), self.hold(None), self.side(COUNTERS)];
        keys.extend(slots.iter().map(|slot| self.hold(*slot)));
        self.step_on(keys, "inspect", "", &[])
    }
}

/// Returns the beginning of all values of the claim `id`, as [`Record`] writes it.
pub(super) fn beginning(id: ClaimId) -> String {
    format!("{{\"claim\":\"{id}\"")
}

/// Parses the holds in the `n`th reply, to [`LockKeys::inspect`] of `lock`.
pub(super) fn holds(answer: &Answer, n: usize, lock: &str) -> FaultResult<Vec<Entry>> {
    let Some(Value::Array(found)) = answer.replies.get(n) else {
        return Err(fault::nonsense("no holders"));
    };
    found.iter().map(|reply| entry(reply, lock).ok_or_else(|| fault::nonsense("no holder"))).collect()
}

fn entry(reply: &Value, lock: &str) -> Option<Entry> {
    let Value::Array(parts) = reply else { return None };
    let [slot, value, left, foreign] = parts.as_slice() else { return None };
    let (value, ttl) = (value_of(value)?, parsed(left).and_then(life));
    let lines: Vec<&str> = value.split('\n').collect();
    let line = |n: usize| lines.get(n).copied().unwrap_or_default();
    let slot = Some(parsed(slot)?).filter(|slot| *slot > 0);
    let Some(record) = Record::parse(line(0).as_bytes()) else {
        let id = text(foreign).and_then(|id| id.parse().ok());
        return Some(Entry { slot, ..foreign_entry(lock, id, ttl) });
    };
    let entry = record.entry();
    let label = serde_json::from_str(line(3)).ok().or(entry.label);
    let token = line(1).parse().ok().and_then(FencingToken::new);
    Some(Entry { label, token, slot, since: instant(line(2)), ttl, ..entry })
}

/// Merges the holds that the nodes report, and leaves out those of fewer nodes than `least`. A node that missed a
/// publication, or issued a token that is too high, differs from the others.
pub(super) fn merge<'a>(said: impl Iterator<Item = &'a Entry>, least: usize) -> Vec<Entry> {
    let mut all: BTreeMap<(Option<u32>, Option<ClaimId>), Vec<&Entry>> = BTreeMap::new();
    for entry in said {
        all.entry((entry.slot, entry.claim)).or_default().push(entry);
    }
    let usual = |said: Vec<&Entry>| {
        let alike = |one: &&&Entry| {
            said.iter().filter(|other| (other.token, &other.label) == (one.token, &one.label)).count()
        };
        said.iter().max_by_key(alike).map(|usual| (*usual).clone())
    };
    all.into_values().filter(|said| said.len() >= least).filter_map(usual).collect()
}
