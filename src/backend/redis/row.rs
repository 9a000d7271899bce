//! What the server says of a claim in one queue.

use std::time::Duration;

use redis::Value;

use super::dial::{text, value_of};
use super::fault;
use super::keys::LockKeys;
use crate::backend::fault::FaultResult;
use crate::backend::record::{Record, granted, instant, with_details};
use crate::lock::{ClaimId, Entry, Granted, Holder, Mode};

/// One queue's row of `position` in `queue.lua`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Row {
    pub(super) granted: Option<Granted>,
    /// Why it is gone, if it is.
    pub(super) gone: Option<String>,
    /// Who superseded or evicted it.
    pub(super) by: Option<Holder>,
    /// Who asks it to leave.
    pub(super) asked: Option<Holder>,
    /// Whether it is the first that waits.
    pub(super) top: bool,
    /// What the lock's key says.
    pub(super) value: Option<String>,
    pub(super) ahead: u32,
    /// After which time alone may change something.
    pub(super) horizon: Option<Duration>,
    /// Who stands at the front, for a waiter.
    pub(super) lead: Option<Entry>,
}

impl Row {
    /// Reads the row of the lock with these keys.
    pub(super) fn parse(reply: &Value, keys: &LockKeys) -> FaultResult<Self> {
        let Value::Array(parts) = reply else { return Err(fault::nonsense("no row of a queue")) };
        let at = |n: usize| parts.get(n).and_then(text);
        let holder = |n: usize| at(n).and_then(|text| serde_json::from_str(&text).ok());
        let value = parts.get(6).and_then(value_of);
        let gone = at(2);
        let granted = granted(at(0).as_deref(), at(1).as_deref());
        let waits = granted.is_none() && gone.is_none();
        let lead = waits.then(|| lead(parts, value.is_some(), keys));
        Ok(Self {
            granted,
            by: holder(3),
            asked: holder(4),
            top: at(5).is_some(),
            ahead: parts.get(7).and_then(integer).and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
            horizon: parts.get(8).and_then(life),
            lead: lead.flatten(),
            gone,
            value,
        })
    }

    /// All rows of one claim.
    pub(super) fn all(reply: &Value, names: &[LockKeys]) -> FaultResult<Vec<Self>> {
        match reply {
            Value::Array(rows) if rows.len() == names.len() => {
                rows.iter().zip(names).map(|(row, keys)| Self::parse(row, keys)).collect()
            }
            _ => Err(fault::nonsense("not one row for each name")),
        }
    }

    /// Whether a change of the lock's key itself concerns the claim: of a marker the claims that it stands for
    /// tell.
    pub(super) fn watches_lock(&self, mode: Mode) -> bool {
        let marker = self.value.as_deref().is_some_and(|value| value.starts_with("dlock:"));
        if self.granted.is_some() { mode == Mode::Exclusive } else { self.top && !marker }
    }
}

/// Who is in front of a waiter, from the tenth part on; a hold without an entry is somebody else's.
fn lead(parts: &[Value], held: bool, keys: &LockKeys) -> Option<Entry> {
    let at = |n: usize| parts.get(n).and_then(text);
    let granted = granted(at(11).as_deref(), at(12).as_deref());
    if granted.is_none() && held {
        return Some(foreign_entry(&keys.lock, None, None));
    }
    let entry = Record::parse(at(9)?.as_bytes())?.entry();
    let since = granted.and_then(|_| instant(&at(13)?));
    Some(with_details(entry, at(10), granted, since, None))
}

/// What others are shown of the hold of another program's client.
pub(super) fn foreign_entry(key: &str, claim: Option<ClaimId>, ttl: Option<Duration>) -> Entry {
    let key = Some(format!("key {key}"));
    Entry { claim, mode: Some(Mode::Exclusive), ttl, foreign: true, key, ..Entry::default() }
}

/// A length in milliseconds.
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
    fn a_value_that_is_no_text_is_somebody_elses() {
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
        let mut parts = vec![Value::Nil; 9];
        (parts[5], parts[6]) = (bytes(b"1"), bytes(&[0xff]));
        parts.push(bytes(own.as_bytes()));
        let row = Row::parse(&Value::Array(parts), &keys).expect("a row");
        assert!(row.lead.is_some_and(|lead| lead.foreign));
        assert_eq!(row.value.as_deref(), Some("\u{fffd}"), "and it is there");
    }
}
