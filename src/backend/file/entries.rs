//! The entries of a queue, without I/O. They are stored as JSON, in order of arrival.

use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use crate::backend::record::Record;
use crate::lock::{ClaimId, FencingToken, Holder, LockName, Mode, Request};
use crate::queue::store::{About, Item, Key, Note};

/// The state of an entry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// It has not taken the lock file.
    Waiting,
    /// It may hold, but a process outside of the queue has the lock file.
    Blocked,
    /// It has the lock file.
    Held,
    /// Removed by another process; its owner has not left yet.
    Evicted(Option<Holder>),
    /// Superseded by a newer claim; its owner has not left yet.
    Superseded(Holder),
}

/// An entry.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Stored {
    pub(super) token: u64,
    pub(super) state: State,
    /// The slot that it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) slot: Option<u32>,
    /// Whether its FIFO is the one of the queue, which is kept.
    pub(super) kept: bool,
    /// Since when it waits, or holds: µs of wall time.
    pub(super) since: u64,
    /// The holder that asked it to leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) asked: Option<Holder>,
    /// The text forms of the claim's id and mode. Decisions on all entries need no more of the claims. A version that
    /// changes the form of the record changes the text of the mode, so that older ones take it for an exclusive claim.
    claim: String,
    mode: String,
    /// The claim's [`Record`], as text.
    record: Box<RawValue>,
}

fn text_of(record: &Record) -> Box<RawValue> {
    to_raw_value(record).expect("texts and numbers are JSON")
}

impl Stored {
    /// Returns the entry of a claim that arrives.
    pub(super) fn of(request: &Request, token: u64, since: u64) -> Self {
        let record = Record::of(request, request.ttl);
        let text = text_of(&record);
        let Record { claim, mode, .. } = record;
        let state = State::Waiting;
        Self { token, state, slot: None, kept: false, since, asked: None, claim, mode, record: text }
    }

    /// Returns the claim's id.
    pub(super) fn id(&self) -> Option<ClaimId> {
        self.claim.parse().ok()
    }

    /// Returns the description of the claim, if this version can read it.
    pub(super) fn record(&self) -> Option<Record> {
        Record::parse(self.record.get().as_bytes())
    }

    pub(super) fn set_label(&mut self, label: &str) {
        if let Some(mut record) = self.record() {
            record.holder.label = Some(label.to_owned());
            self.record = text_of(&record);
        }
    }

    pub(super) fn in_queue(&self) -> bool {
        matches!(self.state, State::Waiting | State::Blocked | State::Held)
    }

    fn known_mode(&self) -> Option<Mode> {
        self.mode.parse().ok()
    }

    /// Returns the mode; one that this version does not know counts as exclusive.
    pub(super) fn mode(&self) -> Mode {
        self.known_mode().unwrap_or(Mode::Exclusive)
    }

    /// Returns the notice that another process left when it removed the entry.
    pub(super) fn removal(&self) -> Option<Note> {
        match &self.state {
            State::Superseded(by) => Some(Note::Superseded(by.clone())),
            State::Evicted(by) => Some(Note::Evicted(by.clone())),
            State::Waiting | State::Blocked | State::Held => None,
        }
    }

    /// Returns the entry with so many ahead in the queue of `lock`, and with the name of its FIFO.
    pub(super) fn item(&self, lock: &LockName, at: usize, fifo: String) -> Item {
        let since = UNIX_EPOCH + Duration::from_micros(self.since);
        let about = self.record().map(|record| {
            let mut about = About::of(&record, lock, Some(since));
            about.entry.ttl = None;
            Box::new(about)
        });
        Item {
            at,
            key: Key { order: self.token, text: fifo },
            id: self.id().unwrap_or_else(|| ClaimId::from_number(0)),
            foreign: false,
            mode: self.known_mode(),
            slot: self.slot,
            token: FencingToken::new(self.token),
            left: None,
            about,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{name, request, slots};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn written_entries_read_back(at in 0usize..5, text in "\\PC{0,40}|\n\t\"|\u{2028}") {
            let request = request(7, &["a", "b"], slots(3));
            let by = Holder { user: text, ..request.holder.clone() };
            let state = [
                State::Waiting,
                State::Blocked,
                State::Held,
                State::Evicted(None),
                State::Superseded(by.clone()),
            ][at].clone();
            let entry = Stored { state, slot: Some(4), asked: Some(by), ..Stored::of(&request, 5, 3) };
            let text = serde_json::to_string(&entry).expect("JSON");
            let read: Stored = serde_json::from_str(&text).expect("readable");
            prop_assert_eq!((&read.state, &read.asked, read.record()), (&entry.state, &entry.asked, entry.record()));
            prop_assert_eq!(read.item(&name("a"), 0, String::new()).slot, Some(4));
            prop_assert_eq!(serde_json::to_string(&read).expect("JSON"), text);
        }
    }

    #[test]
    fn entry_of_a_newer_form_counts_as_exclusive() {
        let text = serde_json::to_string(&Stored::of(&request(7, &["a"], slots(3)), 5, 3)).expect("JSON");
        let entry: Stored = serde_json::from_str(&text.replace("slots", "odd")).expect("readable");
        assert_eq!(entry.mode(), Mode::Exclusive);
        assert_eq!(entry.item(&name("a"), 0, String::new()).mode, None);
    }
}
