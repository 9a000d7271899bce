//! What the server says of a claim in one queue.

use std::time::Duration;

use redis::Value;

use crate::backend::fault::FaultResult;
use crate::backend::record::{Record, granted, instant, with_details};
use crate::backend::redis::dial::{text, value_of};
use crate::backend::redis::fault;
use crate::backend::redis::keys::LockKeys;
use crate::backend::redis::row::{foreign_entry, integer, life};
use crate::lock::{Entry, Granted, Holder};

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
