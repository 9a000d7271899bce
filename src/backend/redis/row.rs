//! The server's answer about a claim in one queue.

use std::time::{Duration, SystemTime};

use redis::Value;

use super::dial::text;
use super::fault;
use super::keys::LockKeys;
use crate::backend::record::{Record, granted, instant, with_details};
use crate::lock::{ClaimId, Entry, Granted, Holder, Mode};
use crate::net::fault::FaultResult;

/// The fields of a claim that its client watches.
pub(super) const WATCHED: [&str; 4] = ["token", "gone", "asked", "top"];

/// One queue's row of `position` in `queue.lua`.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Row {
    /// The [`WATCHED`] fields, as the server returns them.
    pub(super) watched: Value,
    /// The value of the lock's key, as the server returns it.
    pub(super) value: Value,
    pub(super) granted: Option<Granted>,
    /// Why it is gone, if it is.
    pub(super) gone: Option<String>,
    /// For a claim that is gone: the first token of the lock's counters, or the one that they would give now.
    pub(super) first_token: Option<u64>,
    /// The client that superseded or evicted it.
    pub(super) by: Option<Holder>,
    /// The client that asks it to leave.
    pub(super) asked: Option<Holder>,
    /// Whether it is the first waiter.
    top: bool,
    pub(super) ahead: u32,
    /// The time after which the state may change without a request.
    pub(super) horizon: Option<Duration>,
    /// The front entry, for a waiter.
    pub(super) lead: Option<Entry>,
}

impl Row {
    /// Parses the row of the lock with these keys.
    fn parse(reply: &Value, keys: &LockKeys) -> FaultResult<Self> {
        let Value::Array(parts) = reply else { return Err(fault::nonsense("no row of a queue")) };
        let [watched @ Value::Array(fields), value, ..] = parts.as_slice() else {
            return Err(fault::nonsense("no row of a queue"));
        };
        let at = |n: usize| parts.get(n).and_then(text);
        let field = |n: usize| fields.get(n).and_then(text);
        let holder = |text: Option<String>| text.and_then(|text| serde_json::from_str(&text).ok());
        let front = parts.get(8).and_then(ClaimHash::parse);
        // If the lock is held but the front claim has no grant, another program holds it.
        let lead = front.map(|front| match front.granted {
            None if *value != Value::Nil => foreign_entry(&keys.lock, None, None),
            _ => Entry { ttl: None, since: front.held, ..front.entry() },
        });
        Ok(Self {
            granted: granted(at(2).as_deref(), at(3).as_deref()),
            gone: at(4),
            first_token: at(4).and(at(6)).and_then(|token| token.parse().ok()),
            by: holder(at(5)),
            asked: holder(field(2)),
            top: field(3).is_some(),
            ahead: parts.get(6).and_then(integer).and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
            horizon: parts.get(7).and_then(life),
            lead,
            watched: watched.clone(),
            value: value.clone(),
        })
    }

    /// Parses all rows of one claim.
    pub(super) fn all(reply: &Value, names: &[LockKeys]) -> FaultResult<Vec<Self>> {
        match reply {
            Value::Array(rows) if rows.len() == names.len() => {
                rows.iter().zip(names).map(|(row, keys)| Self::parse(row, keys)).collect()
            }
            _ => Err(fault::nonsense("not one row for each name")),
        }
    }

    /// Returns whether changes of the lock's key concern the claim. Changes of a marker also change the claims for
    /// which it stands.
    pub(super) fn watches_lock(&self, mode: Mode) -> bool {
        let marker = text(&self.value).is_some_and(|value| value.starts_with("dlock:"));
        if self.granted.is_some() { mode == Mode::Exclusive } else { self.top && !marker }
    }
}

/// A claim in a queue: `entry` in `queue.lua`.
#[derive(Debug)]
pub(super) struct ClaimHash {
    pub(super) id: Option<ClaimId>,
    pub(super) record: Option<Record>,
    pub(super) since: Option<SystemTime>,
    pub(super) granted: Option<Granted>,
    label: Option<String>,
    held: Option<SystemTime>,
    ttl: Option<Duration>,
}

impl ClaimHash {
    pub(super) fn parse(reply: &Value) -> Option<Self> {
        let Value::Array(parts) = reply else { return None };
        let at = |n: usize| parts.get(n).and_then(text);
        Some(Self {
            id: at(0).and_then(|id| id.parse().ok()),
            record: at(1).and_then(|about| Record::parse(about.as_bytes())),
            label: at(2),
            granted: granted(at(3).as_deref(), at(4).as_deref()),
            held: at(5).and_then(|text| instant(&text)),
            since: at(6).and_then(|text| instant(&text)),
            ttl: parts.get(7).and_then(life),
        })
    }

    /// Returns the entry for display.
    pub(super) fn entry(&self) -> Entry {
        let entry = self.record.as_ref().map(Record::entry).unwrap_or_default();
        let since = self.held.or(self.since);
        let entry = with_details(entry, self.label.clone(), self.granted, since, self.ttl);
        Entry { claim: self.id, ..entry }
    }
}

/// Returns the hold of another program's client for display.
pub(super) fn foreign_entry(key: &str, claim: Option<ClaimId>, ttl: Option<Duration>) -> Entry {
    let key = Some(format!("key {key}"));
    Entry { claim, mode: Some(Mode::Exclusive), ttl, foreign: true, key, ..Entry::default() }
}

/// Parses a length in milliseconds.
pub(super) fn life(reply: &Value) -> Option<Duration> {
    integer(reply).and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis)
}

pub(super) fn integer(reply: &Value) -> Option<i64> {
    match reply {
        Value::Int(number) => Some(*number),
        other => text(other)?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::Naming;
    use super::*;
    use crate::lock::Request;

    #[test]
    fn binary_value_is_a_foreign_hold() {
        let keys = Naming::default().of(&"x".parse().expect("valid")).expect("has keys");
        let bytes = |bytes: &[u8]| Value::BulkString(bytes.to_vec());
        let request = Request {
            names: vec![keys.name.clone()],
            id: ClaimId::from_number(1),
            mode: Mode::Exclusive,
            ttl: Duration::from_secs(1),
            holder: Holder::default(),
            ancestors: Vec::new(),
            supersede: false,
        };
        let own = Record::of(&request, request.ttl).to_text();
        let watched = Value::Array(vec![Value::Nil, Value::Nil, Value::Nil, bytes(b"1")]);
        let front = vec![bytes(request.id.to_string().as_bytes()), bytes(own.as_bytes())];
        let nil = || Value::Nil;
        let waits = [nil(), nil(), nil(), nil(), Value::Int(0), Value::Int(9), Value::Array(front)];
        let parts = [watched, bytes(&[0xff])].into_iter().chain(waits).collect();
        let row = Row::parse(&Value::Array(parts), &keys).expect("a row");
        assert!(row.watches_lock(Mode::Exclusive), "it is there");
        assert!(row.lead.is_some_and(|lead| lead.foreign));
    }
}
