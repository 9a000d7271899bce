//! Queues as the server's answers show them: `row` in `queue.lua`.

use std::time::Duration;

use redis::Value;

use super::dial::text;
use super::fault;
use super::keys::LockKeys;
use crate::backend::record::{Record, foreign_claim, instant};
use crate::backend::success;
use crate::lock::{ClaimId, Entry, FencingToken, Holder, Mode};
use crate::net::fault::FaultResult;
use crate::queue::store::{About, Item, Key, Note, Queue};

/// The state that a client compares when it begins to watch keys.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Known {
    /// The value of the lock's key, as the server returns it.
    pub(super) value: Value,
    /// The field of the own claim with the client that asks it to leave.
    pub(super) asked: Value,
}

/// One queue, as an answer shows it.
pub(super) struct Row {
    pub(super) queue: Queue,
    pub(super) note: Option<Note>,
    pub(super) known: Known,
    /// How long ago the last successful run acquired.
    pub(super) success: Option<Duration>,
}

impl Row {
    /// Parses the row of the lock with these keys.
    fn parse(reply: &Value, keys: &LockKeys) -> FaultResult<Self> {
        let nonsense = || fault::nonsense("no row of a queue");
        let Value::Array(parts) = reply else { return Err(nonsense()) };
        let [value, foreign, life_of_key, Value::Array(entries), Value::Array(own), success, now] =
            parts.as_slice()
        else {
            return Err(nonsense());
        };
        let [gone, by, asked] = own.as_slice() else { return Err(nonsense()) };
        let foreign = text(foreign).map(|id| foreign_item(keys, id, life(life_of_key)));
        let ahead = usize::from(foreign.is_some());
        let entries = entries.iter().map(|entry| item(entry, keys, ahead).ok_or_else(nonsense));
        let items: Vec<Item> = foreign.into_iter().map(Ok).chain(entries).collect::<FaultResult<_>>()?;
        let removal = text(gone).and_then(|gone| Note::removal(&gone, holder(by)));
        let note = removal.or_else(|| holder(asked).map(Note::Asked));
        let micros = |reply| number(reply).map(Duration::from_micros);
        Ok(Self {
            queue: Queue { name: keys.name.clone(), items },
            note,
            known: Known { value: value.clone(), asked: asked.clone() },
            success: micros(now).zip(micros(success)).and_then(|(now, at)| success::age(now, at)),
        })
    }

    /// Parses the answer to a step on the queues of `names`: whether it was made, and what it shows.
    pub(super) fn all(reply: &Value, names: &[LockKeys]) -> FaultResult<(bool, Vec<Self>)> {
        let nonsense = || fault::nonsense("not one row for each name");
        let Value::Array(parts) = reply else { return Err(nonsense()) };
        let [done, Value::Array(rows)] = parts.as_slice() else { return Err(nonsense()) };
        if rows.len() != names.len() {
            return Err(nonsense());
        }
        let rows = rows.iter().zip(names).map(|(row, keys)| Self::parse(row, keys));
        Ok((integer(done) == Some(1), rows.collect::<FaultResult<_>>()?))
    }
}

fn holder(reply: &Value) -> Option<Holder> {
    serde_json::from_str(&text(reply)?).ok()
}

/// Parses `entry` in `queue.lua`. Fields that cannot be read are `None`, because the claim is in the queue nevertheless.
fn item(reply: &Value, keys: &LockKeys, ahead: usize) -> Option<Item> {
    let Value::Array(parts) = reply else { return None };
    let [at, who, token, left, Value::Array(fields)] = parts.as_slice() else { return None };
    let field = |n: usize| fields.get(n).and_then(text);
    let (key, order) = (text(who)?, number(token)?);
    let id = key.parse().unwrap_or_else(|_| foreign_claim([keys.lock.as_bytes(), key.as_bytes()]));
    let record = field(2).and_then(|about| Record::parse(about.as_bytes()));
    let about = record.map(|record| {
        let about = About::of(&record, &keys.name, field(3).as_deref().and_then(instant));
        let label = field(5).or(about.entry.label);
        let entry = Entry { label, ttl: None, ..about.entry };
        Box::new(About { entry, held_since: field(4).as_deref().and_then(instant), ..about })
    });
    Some(Item {
        at: usize::try_from(integer(at)?).ok()? + ahead,
        key: Key { order, text: key },
        id,
        foreign: false,
        mode: field(0).and_then(|mode| mode.parse().ok()),
        slot: field(1).and_then(|slot| slot.parse().ok()),
        token: FencingToken::new(order),
        left: life(left),
        about,
    })
}

/// Returns the hold of another program's client, which the server shows under `id`.
fn foreign_item(keys: &LockKeys, id: String, left: Option<Duration>) -> Item {
    let claim = id.parse().unwrap_or_else(|_| foreign_claim([id.as_bytes()]));
    let mut about = About::foreign(&keys.name, claim, called(&keys.lock));
    about.entry.mode = Some(Mode::Exclusive);
    Item::foreign(Key { order: 0, text: id }, left, about)
}

fn called(key: &str) -> String {
    format!("key {key}")
}

/// Returns the hold of another program's client for display.
pub(super) fn foreign_entry(key: &str, claim: Option<ClaimId>, ttl: Option<Duration>) -> Entry {
    Entry {
        claim,
        mode: Some(Mode::Exclusive),
        ttl,
        foreign: true,
        key: Some(called(key)),
        ..Entry::default()
    }
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

fn number(reply: &Value) -> Option<u64> {
    integer(reply).and_then(|number| u64::try_from(number).ok())
}
