//! The text of the queue behind its header, without I/O: one JSON object a line, in order of arrival.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::header::Header;
use crate::backend::queue::store::{About, Item, Key};
use crate::backend::record::Record;
use crate::lock::{ClaimId, FencingToken, Holder, LockName, Mode, queue};

/// The state of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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

/// An entry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Stored {
    pub(super) token: u64,
    pub(super) state: State,
    /// Since when it waits, or holds: µs of wall time.
    pub(super) since: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) slot: Option<u32>,
    /// Whether its FIFO is the one of the queue, which is kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) kept: bool,
    /// The holder that asked it to leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) asked: Option<Holder>,
    /// The holder that removed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<Holder>,
    pub(super) record: Record,
}

fn time(micros: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(micros)
}

impl Stored {
    pub(super) fn id(&self) -> Option<ClaimId> {
        self.record.id()
    }

    pub(super) fn in_queue(&self) -> bool {
        matches!(self.state, State::Waiting | State::Blocked | State::Held)
    }

    pub(super) fn mode(&self) -> Mode {
        self.record.mode().unwrap_or(Mode::Exclusive)
    }

    /// Returns the entry with so many ahead in the queue of `lock`, and with the name of its FIFO.
    pub(super) fn item(&self, lock: &LockName, at: usize, fifo: String) -> Item {
        let mut about = About::of(&self.record, lock, Some(time(self.since)));
        about.entry.ttl = None;
        Item {
            at,
            key: Key { order: self.token, text: fifo },
            id: self.id().unwrap_or_else(|| ClaimId::from_number(self.token.into())),
            foreign: false,
            mode: self.record.mode(),
            slot: self.slot,
            token: FencingToken::new(self.token),
            left: None,
            about: Some(Box::new(about)),
        }
    }
}

/// A queue as it was read: its header, and all entries, also those of claims that were removed and have not left yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Document {
    pub(super) header: Header,
    pub(super) entries: Vec<Stored>,
}

impl Document {
    pub(super) fn parse(header: Header, text: &[u8]) -> Self {
        let lines = text.split(|byte| *byte == b'\n');
        let entries = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
        Self { header, entries }
    }

    pub(super) fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for entry in &self.entries {
            text.extend(serde_json::to_vec(entry).expect("texts and numbers are JSON"));
            text.push(b'\n');
        }
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
    use super::super::testing::{name, request};
    use super::super::token;
    use super::*;
    use crate::lock::Mode;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn written_entries_read_back(number in 0usize..5, text in "\\PC{0,40}|\n\t\"") {
            let mut document = Document { header: token::fresh("a", "boot"), entries: Vec::new() };
            for id in 0..number {
                let mut request = request(u8::try_from(id).expect("few"), &["a", "b"], Mode::Shared);
                request.holder.label = Some(text.clone());
                document.entries.push(Stored {
                    token: id as u64,
                    state: State::Superseded,
                    since: 3,
                    slot: Some(4),
                    kept: true,
                    asked: None,
                    by: Some(request.holder.clone()),
                    record: Record::of(&request, request.ttl),
                });
            }
            prop_assert_eq!(Document::parse(document.header.clone(), &document.text()), document);
        }
    }

    #[test]
    fn entry_of_a_newer_form_counts_as_exclusive() {
        let line = r#"{"token":7,"state":"waiting","since":3,"further":[],"record":{"dlock":2,"mode":"shared",
            "claim":"07070707070707070707070707070707","ttl_ms":3000,
            "holder":{"host":"h","pid":4,"user":"u","command":"c"}}}"#;
        let document = Document::parse(token::fresh("a", "boot"), line.replace('\n', "").as_bytes());
        assert_eq!(document.entries[0].mode(), Mode::Exclusive);
        assert_eq!(document.entries[0].item(&name("a"), 0, String::new()).mode, None);
    }
}
