//! Queues as the server's answers show them: `row` in `queue.lua`.

use std::time::Duration;

use super::client;
use super::dial::parsed;
use super::fault;
use super::keys::LockKeys;
use crate::backend::record::{Record, foreign_claim, instant};
use crate::backend::success;
use crate::lock::{ClaimId, Entry, FencingToken, Holder, Mode};
use crate::net::fault::FaultResult;
use crate::queue::store::{About, Item, Key, Note, Queue};

/// One queue, as an answer shows it.
pub(super) struct Row {
    pub(super) queue: Queue,
    pub(super) note: Option<Note>,
    /// How long ago the last successful run acquired.
    pub(super) success: Option<Duration>,
}

/// The id of another program's hold and the rest of its life; the claims; why the own one is gone, who removed it, and
/// who asks it to leave; the last success and the present time.
type Shown = (Option<String>, i64, Vec<Claim>, [Option<String>; 3], Option<u64>, u64);
/// The number of claims ahead, the id, the token, the rest of the lease, and fields of the hash.
type Claim = (usize, String, u64, u64, Vec<Option<String>>);

impl Row {
    fn of((foreign, life_of_key, claims, own, success, now): Shown, keys: &LockKeys) -> Self {
        let [gone, by, asked] = own;
        let foreign = foreign.map(|id| foreign_item(keys, id, life(life_of_key)));
        let ahead = usize::from(foreign.is_some());
        let claims = claims.into_iter().map(|claim| item(claim, keys, ahead));
        let removal = gone.and_then(|gone| Note::removal(&gone, holder(by)));
        let micros = Duration::from_micros;
        Self {
            queue: Queue { name: keys.name.clone(), items: foreign.into_iter().chain(claims).collect() },
            note: removal.or_else(|| holder(asked).map(Note::Asked)),
            success: success.and_then(|at| success::age(micros(now), micros(at))),
        }
    }

    /// Parses the first reply in `answer`, to a step on the queues of `names`: whether it was made, and what it shows.
    pub(super) fn all(answer: &client::Answer, names: &[LockKeys]) -> FaultResult<(bool, Vec<Self>)> {
        let reply: Option<(bool, Vec<Shown>)> = answer.replies.first().and_then(parsed);
        let (done, rows) = reply
            .filter(|(_, rows)| rows.len() == names.len())
            .ok_or_else(|| fault::nonsense("not one row for each name"))?;
        Ok((done, rows.into_iter().zip(names).map(|(row, keys)| Self::of(row, keys)).collect()))
    }
}

fn holder(text: Option<String>) -> Option<Holder> {
    serde_json::from_str(&text?).ok()
}

/// Returns what `entry` in `queue.lua` shows. Fields that cannot be read are `None`, because the claim is in the queue
/// nevertheless.
fn item((at, key, order, left, fields): Claim, keys: &LockKeys, ahead: usize) -> Item {
    let field = |n: usize| fields.get(n).and_then(Option::as_deref);
    let id = key.parse().unwrap_or_else(|_| foreign_claim([keys.lock.as_bytes(), key.as_bytes()]));
    let record = field(2).and_then(|about| Record::parse(about.as_bytes()));
    let about = record.map(|record| {
        let about = About::of(&record, &keys.name, field(3).and_then(instant));
        let label = field(5).map(str::to_owned).or(about.entry.label);
        let entry = Entry { label, ttl: None, ..about.entry };
        Box::new(About { entry, held_since: field(4).and_then(instant), ..about })
    });
    Item {
        at: at + ahead,
        key: Key { order, text: key },
        id,
        foreign: false,
        mode: field(0).and_then(|mode| mode.parse().ok()),
        slot: field(1).and_then(|slot| slot.parse().ok()),
        token: FencingToken::new(order),
        left: Some(Duration::from_millis(left)),
        about,
    }
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

/// Returns a length in milliseconds; negative numbers stand for none.
pub(super) fn life(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}
