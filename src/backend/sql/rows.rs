//! Entries as their rows show them.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::dialect::{Row, Sets};
use crate::backend::facts::Properties;
use crate::backend::record::{Record, foreign_claim, instant};
use crate::lock::{Entry, FencingToken, Holder, LockName};
use crate::queue::store::{About, Item, Key, Note, Queue};

/// The number of columns of an entry.
const COLUMNS: usize = 12;

/// An entry, and its queue.
struct Found {
    lock: String,
    item: Item,
    asked: Option<Holder>,
    is_dead: bool,
}

/// The content of some queues in an answer.
pub(super) struct Shown {
    pub(super) queues: Vec<Queue>,
    /// The request to leave, to the claim of this id.
    pub(super) note: Option<Note>,
    /// Whether one of the entries has expired.
    pub(super) has_dead: bool,
}

impl Shown {
    /// Returns the entries in `sets` of the queues of `names`. `own` is the stored form of the own claim's id.
    pub(super) fn of(sets: &Sets, names: &[LockName], own: &str) -> Self {
        let (mut items, mut asked, mut has_dead) = (HashMap::<String, Vec<Item>>::new(), None, false);
        for found in sets.iter().flatten().filter_map(found) {
            has_dead |= found.is_dead;
            if found.item.key.text == own {
                asked = asked.or(found.asked);
            }
            items.entry(found.lock).or_default().push(found.item);
        }
        let mut queue = |name: &LockName| {
            let items = items.remove(&name.percent_encoded()).unwrap_or_default();
            Queue { name: name.clone(), items }
        };
        Self { queues: names.iter().map(&mut queue).collect(), note: asked.map(Note::Asked), has_dead }
    }
}

/// Returns the names of all locks in `sets`, sorted. A name that cannot be decoded is not a lock of this version.
pub(super) fn names(sets: &Sets) -> Vec<LockName> {
    let all = sets.iter().flatten().filter_map(found);
    let names: BTreeSet<_> = all.filter_map(|found| LockName::from_percent_encoded(&found.lock)).collect();
    names.into_iter().collect()
}

/// Parses an entry. Unreadable fields are `None`, because the entry is in the queue nevertheless.
fn found(row: &Row) -> Option<Found> {
    let [seq, lock, claim, mode, about, label, slot, held, since, asked, left, at]: &[_; COLUMNS] =
        row.as_slice().try_into().ok()?;
    let (order, lock) = (seq.as_ref()?.parse().ok()?, lock.clone()?);
    let text = claim.as_deref().unwrap_or_default().trim().to_owned();
    let id = text.parse().unwrap_or_else(|_| foreign_claim([lock.as_bytes(), text.as_bytes()]));
    let mode = mode.as_deref().and_then(|mode| mode.parse().ok());
    let record = about.as_deref().and_then(|about| Record::parse(about.as_bytes()));
    let unread = || Entry { claim: Some(id), mode, ..Entry::default() };
    let entry = record.as_ref().map_or_else(unread, Record::entry);
    let label = label.as_deref().and_then(|label| serde_json::from_str(label).ok());
    let name = LockName::from_percent_encoded(&lock);
    let names = record.as_ref().zip(name.as_ref()).map(|(record, name)| record.names(name));
    let about = About {
        entry: Entry {
            label: label.or(entry.label),
            since: since.as_deref().and_then(instant),
            ttl: None,
            ..entry
        },
        held_since: held.as_deref().and_then(instant),
        names: names.unwrap_or_else(|| name.into_iter().collect()),
        ttl: Duration::from_millis(record.as_ref().map_or(0, |record| record.ttl_ms)),
        supersede: record.is_some_and(|record| record.supersede),
    };
    let left: Option<i64> = left.as_deref().and_then(|left| left.parse().ok());
    let item = Item {
        at: at.as_deref().and_then(|at| at.parse().ok())?,
        key: Key { order, text },
        id,
        foreign: false,
        mode,
        slot: slot.as_deref().and_then(|slot| slot.parse().ok()),
        token: FencingToken::new(order),
        left: left.map(|left| Duration::from_micros(u64::try_from(left).unwrap_or(0))),
        about: Some(Box::new(about)),
    };
    let asked = asked.as_deref().and_then(|asked| serde_json::from_str(asked).ok());
    Some(Found { lock, item, asked, is_dead: left.is_some_and(|left| left <= 0) })
}

/// Returns the number in the row that begins with `word`.
pub(super) fn number(sets: &Sets, word: &str) -> Option<u32> {
    let mut pairs = sets.iter().flatten().filter(|row| row.len() == 2);
    pairs.find(|row| row[0].as_deref() == Some(word))?[1].as_deref()?.parse().ok()
}

/// Parses microseconds; zero if they are negative.
pub(super) fn length(text: &str) -> Option<Duration> {
    text.parse::<i64>().ok().map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
}

/// Returns the properties in the rows of all sets, each a name and a value.
pub(super) fn properties(sets: Sets) -> Properties {
    let pair = |row: Row| {
        let mut row = row.into_iter();
        Some((row.next()??, row.next()??))
    };
    sets.into_iter().flatten().filter_map(pair).collect()
}
