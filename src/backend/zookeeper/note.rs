//! The data of a claim's node.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use zookeeper_client::Stat;

use crate::backend::record::Record;
use crate::lock::Holder;

/// The data of a claim's node: the record, and later additions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Note {
    #[serde(flatten)]
    pub(super) record: Record,
    /// The client that asked it to leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) asked_by: Option<Holder>,
    /// Its slot, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) slot: Option<u32>,
    /// How long it waited, recorded once it holds after a wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) waited_ms: Option<u64>,
}

impl Note {
    /// Parses a node's data; `None` if no dlock wrote it.
    pub(super) fn parse(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok().filter(|note: &Self| note.record.id().is_some())
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Returns the time `millis` milliseconds after a node was created, by the server's clock.
pub(super) fn time(stat: &Stat, millis: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(stat.ctime).unwrap_or_default() + millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_another_version_is_a_note() {
        let text = br#"{"claim":"07070707070707070707070707070707","mode":"shared","ttl_ms":3000,"new":1,
            "holder":{"host":"h","pid":4,"user":"u","command":"c"}}"#;
        let note = Note::parse(text).expect("a note");
        assert_eq!((note.asked_by.clone(), note.slot, note.waited_ms), (None, None, None));
        assert_eq!(Note::parse(&note.to_bytes()), Some(note));
        assert_eq!(Note::parse(b"192.168.0.1"), None);
    }
}
