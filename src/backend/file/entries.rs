//! The text of the queue behind its header, without I/O: one entry a line, in order of arrival.
//!
//! ```text
//! TOKEN STATE SLOT KEPT SINCE MODE CLAIM {"record":...}
//! ```
//! The JSON of an entry is parsed only where it is needed, since each change writes all entries.

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::header::Header;
use crate::backend::record::Record;
use crate::lock::{ClaimId, FencingToken, Holder, LockName, Mode, Request, queue};
use crate::queue::store::{About, Item, Key};

/// The state of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// It has not taken the lock file.
    Waiting,
    /// It may hold, but a process outside of the queue has the lock file.
    Blocked,
    /// It has the lock file.
    Held,
    /// Removed by another process; its owner has not left yet.
    Evicted,
    /// Superseded by a newer claim; its owner has not left yet.
    Superseded,
}

/// The words of the states.
const STATES: [(State, &str); 5] = [
    (State::Waiting, "waiting"),
    (State::Blocked, "blocked"),
    (State::Held, "held"),
    (State::Evicted, "evicted"),
    (State::Superseded, "superseded"),
];

/// An entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stored {
    pub(super) token: u64,
    pub(super) state: State,
    /// The slot that it holds, or zero.
    pub(super) slot: u32,
    /// Whether its FIFO is the one of the queue, which is kept.
    pub(super) kept: bool,
    /// Since when it waits, or holds: µs of wall time.
    pub(super) since: u64,
    /// The mode; a word that this version does not know counts as exclusive.
    mode: String,
    pub(super) id: ClaimId,
    /// The details, as JSON.
    details: String,
}

/// The details of an entry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Details {
    pub(super) record: Record,
    /// The holder that asked it to leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) asked: Option<Holder>,
    /// The holder that removed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<Holder>,
}

impl Details {
    fn print(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers are JSON")
    }
}

impl Stored {
    /// Returns the entry of a claim that arrives.
    pub(super) fn of(request: &Request, token: u64, since: u64) -> Self {
        let details = Details { record: Record::of(request, request.ttl), asked: None, by: None };
        Self {
            token,
            state: State::Waiting,
            slot: 0,
            kept: false,
            since,
            mode: request.mode.to_string(),
            id: request.id,
            details: details.print(),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(8, ' ');
        let mut word = || words.next();
        Some(Self {
            token: word()?.parse().ok()?,
            state: word().and_then(|word| STATES.iter().find(|(_, name)| *name == word))?.0,
            slot: word()?.parse().ok()?,
            kept: word()?.parse().ok()?,
            since: word()?.parse().ok()?,
            mode: word()?.to_owned(),
            id: word()?.parse().ok()?,
            details: word()?.to_owned(),
        })
    }

    fn print(&self, to: &mut String) {
        let Self { token, state, slot, kept, since, mode, id, details } = self;
        let state = STATES.iter().find(|(known, _)| known == state).map_or("", |(_, word)| word);
        writeln!(to, "{token} {state} {slot} {kept} {since} {mode} {id} {details}")
            .expect("writing to a String cannot fail");
    }

    /// Returns the details, if they can be read.
    pub(super) fn details(&self) -> Option<Details> {
        serde_json::from_str(&self.details).ok()
    }

    /// Changes the details.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Details)) {
        if let Some(mut details) = self.details() {
            change(&mut details);
            self.details = details.print();
        }
    }

    pub(super) fn in_queue(&self) -> bool {
        matches!(self.state, State::Waiting | State::Blocked | State::Held)
    }

    pub(super) fn mode(&self) -> Mode {
        self.mode.parse().unwrap_or(Mode::Exclusive)
    }

    /// Returns the entry with so many ahead in the queue of `lock`, and with the name of its FIFO.
    pub(super) fn item(&self, lock: &LockName, at: usize, fifo: String) -> Item {
        let about = self.details().map(|details| {
            let mut about =
                About::of(&details.record, lock, Some(UNIX_EPOCH + Duration::from_micros(self.since)));
            about.entry.ttl = None;
            Box::new(about)
        });
        Item {
            at,
            key: Key { order: self.token, text: fifo },
            id: self.id,
            foreign: false,
            mode: self.mode.parse().ok(),
            slot: Some(self.slot).filter(|slot| *slot > 0),
            token: FencingToken::new(self.token),
            left: None,
            about,
        }
    }
}

/// A queue as it was read: its header, and all entries, also those of claims that were removed and have not left yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Document {
    pub(super) header: Header,
    pub(super) entries: Vec<Stored>,
    /// Whether an own claim changed it since.
    pub(super) changed: bool,
}

impl Document {
    pub(super) fn parse(header: Header, text: &[u8]) -> Self {
        let lines = std::str::from_utf8(text).unwrap_or_default().lines();
        Self { header, entries: lines.filter_map(Stored::parse).collect(), changed: false }
    }

    /// Returns the text of the entries.
    pub(super) fn print(&self) -> String {
        let mut text = String::new();
        self.entries.iter().for_each(|entry| entry.print(&mut text));
        text
    }

    /// Returns the entries that count.
    pub(super) fn queue(&self) -> impl DoubleEndedIterator<Item = &Stored> {
        self.entries.iter().filter(|entry| entry.in_queue())
    }

    /// Returns the entry with this token.
    pub(super) fn at(&mut self, token: u64) -> Option<&mut Stored> {
        self.entries.iter_mut().find(|entry| entry.token == token)
    }

    /// Returns whether the entry with this token holds, if all those ahead of it live.
    pub(super) fn may_hold(&self, token: u64) -> bool {
        let modes: Vec<Mode> = self.queue().map(Stored::mode).collect();
        self.queue().take(queue::held(&modes)).any(|entry| entry.token == token)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{name, request, slots};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn written_entries_read_back(number in 0usize..5, text in "\\PC{0,40}|\n\t\"|\u{2028}") {
            let mut document = Document { header: Header::fresh("a", "boot"), entries: Vec::new(), changed: false };
            for (token, (state, _)) in STATES.into_iter().enumerate().take(number) {
                let request = request(7, &["a", "b"], slots(3));
                let mut entry = Stored { state, slot: 4, kept: true, ..Stored::of(&request, token as u64, 3) };
                entry.change(|details| details.asked = Some(Holder { user: text.clone(), ..request.holder }));
                document.entries.push(entry);
            }
            let read = Document::parse(document.header.clone(), document.print().as_bytes());
            prop_assert_eq!(&read, &document);
            for entry in read.entries {
                let details = entry.details().expect("readable");
                prop_assert_eq!(details.asked.map(|by| by.user), Some(text.clone()));
                prop_assert_eq!(entry.item(&name("a"), 0, String::new()).slot, Some(4));
            }
        }
    }

    #[test]
    fn entry_of_a_newer_form_counts_as_exclusive() {
        let line = "7 waiting 0 false 3 odd 07070707070707070707070707070707 {}\n";
        let document = Document::parse(Header::fresh("a", "boot"), line.as_bytes());
        assert_eq!(document.entries[0].mode(), Mode::Exclusive);
        assert_eq!(document.entries[0].item(&name("a"), 0, String::new()).mode, None);
        assert_eq!(document.print(), line);
    }
}
