//! What the values of keys say.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::backend::record::Record;
use crate::lock::{Holder, Request};

/// Milliseconds since 1970 by the clock of this host: for people, and for `--once-per`.
pub(super) fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The instant that [`wall_clock`] called `millis`.
pub(super) fn instant(millis: u64) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis))
}

/// An entry's record, and when its host thought it arrived.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Stored {
    #[serde(flatten)]
    pub(super) record: Record,
    #[serde(default)]
    pub(super) since_ms: u64,
}

impl Stored {
    pub(super) fn of(request: &Request, ttl: Duration) -> Self {
        Self { record: Record::of(request, ttl), since_ms: wall_clock() }
    }

    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What another dlock wrote; `None` for what is none.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok().filter(|stored: &Self| stored.record.id().is_some())
    }
}

/// A hold that was proved after a wait, or that has a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Hold {
    pub(super) since_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) slot: Option<u32>,
}

impl Hold {
    pub(super) fn now(slot: Option<u32>) -> Self {
        Self { since_ms: wall_clock(), slot }
    }

    pub(super) fn to_text(self) -> String {
        serde_json::to_string(&self).unwrap_or_default()
    }

    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }
}

/// What somebody has to say to a claim.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Note {
    /// To leave.
    Ask(Holder),
    /// That its entry was removed.
    Evicted(Holder),
    /// That a newer one took its place.
    Superseded(Holder),
}

impl Note {
    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }
}
