//! The values of keys.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::backend::record::Record;
use crate::lock::{Holder, Request};
use crate::queue::store::Note;

/// A note's word: a client asks the claim to leave.
const ASKED: &str = "ask";
/// Returns milliseconds since 1970 by the clock of this host: for display, and for `--once-per`.
pub(super) fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the time of a value of [`wall_clock`].
pub(super) fn instant(millis: u64) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis))
}

/// An entry's record, and its time of arrival by its host's clock.
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

    /// Parses the text of another dlock; `None` for other text.
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

/// Returns the value of a note.
pub(super) fn note_text(note: &Note) -> String {
    let (word, by) = match note {
        Note::Asked(by) => (ASKED, Some(by)),
        removal => removal.stored().unwrap_or(("evicted", None)),
    };
    serde_json::to_string(&HashMap::from([(word, by)])).unwrap_or_default()
}

/// Parses the value of a note.
pub(super) fn note(text: &[u8]) -> Option<Note> {
    let notes: HashMap<String, Option<Holder>> = serde_json::from_slice(text).ok()?;
    let (word, by) = notes.into_iter().next()?;
    if word == ASKED { by.map(Note::Asked) } else { Note::removal(&word, by) }
}
