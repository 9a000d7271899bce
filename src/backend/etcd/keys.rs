//! The keys of a lock.
//!
//! The entries that other clients see are under `NAME/`, in the layout of Go's `concurrency.Mutex`. The key of an entry
//! ends with its lease in lower-case hexadecimal, and entries are ordered by their create revision. All other keys are
//! next to `NAME`, since those clients take any key under `NAME/` for a contender:
//!
//! | key | what |
//! |---|---|
//! | `NAME/LEASE`, `NAME/read/LEASE`, `NAME/slot/LEASE` | an exclusive entry, a shared one, one with slots; the value is the label |
//! | `NAME%m/LEASE`, `NAME%n/SLOTS/LEASE` | its record; which of the two tells the kind |
//! | `NAME%t/LEASE` | its hold, if it had to wait or has a slot |
//! | `NAME%s/NUMBER` | a slot that is taken |
//! | `NAME%d` | when the last successful run acquired the lock; permanent |
//! | `PREFIX%k/LEASE` | a note to the claim |
//!
//! In an encoded name every percent sign is followed by two digits, so these keys collide with no name. Names that are
//! not encoded have U+0001 in the place of the percent sign: names have no control characters.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::backend::record::Record;
use crate::lock::{ClaimId, Holder, LockName, Mode};
use crate::queue::store::Note;

/// A half-open range: from the first key to the one after the last.
pub(super) type Span = (String, String);

/// Converts names to keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    pub(super) prefix: String,
    pub(super) encoded: bool,
}

/// The keys of one lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct QueueKeys {
    /// The lock.
    pub(super) name: LockName,
    base: String,
    side: String,
}

/// Returns a lease in the form that keys contain.
pub(super) fn hex(lease: i64) -> String {
    format!("{lease:x}")
}

/// Returns the range of keys that start with `prefix`. After an empty one, and one whose last byte has no successor in
/// UTF-8, it has all later keys.
fn prefixed(prefix: &str) -> Span {
    let from = if prefix.is_empty() { "\0" } else { prefix };
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    let end = String::from_utf8(end).ok().filter(|end| !end.is_empty());
    (from.to_owned(), end.unwrap_or_else(|| "\0".to_owned()))
}

impl Layout {
    /// Returns the lease of a claim. It is derived from the claim's id, so that a claim can be found by it, and from
    /// the prefix, since leases belong to the whole cluster (FNV-1a).
    pub(super) fn lease_of(&self, id: ClaimId) -> i64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in id.to_string().bytes().chain(self.prefix.bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        // For zero the server would choose an id.
        (hash >> 1).max(1).cast_signed()
    }

    fn mark(&self) -> char {
        if self.encoded { '%' } else { '\u{1}' }
    }

    pub(super) fn queue(&self, name: &LockName) -> QueueKeys {
        let text = if self.encoded { name.percent_encoded() } else { name.to_string() };
        let base = format!("{}{text}", self.prefix);
        QueueKeys { name: name.clone(), side: format!("{base}{}", self.mark()), base }
    }

    /// Returns the key of the note to the claim with this lease.
    pub(super) fn note(&self, lease: i64) -> String {
        format!("{}{}k/{}", self.prefix, self.mark(), hex(lease))
    }

    /// Returns a range with all keys of names that start with `beginning`.
    pub(super) fn names(&self, beginning: &str) -> Span {
        let text = match LockName::new(beginning) {
            Ok(name) if self.encoded => name.percent_encoded(),
            // A text that is not a name, such as one with a space at its end, cannot be encoded.
            _ if self.encoded => String::new(),
            _ => beginning.to_owned(),
        };
        prefixed(&format!("{}{text}", self.prefix))
    }

    /// Returns the lock of an entry's key, if it is one: its last part is its lease.
    pub(super) fn name_of(&self, key: &[u8], lease: i64) -> Option<LockName> {
        let key = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        let (rest, last) = key.rsplit_once('/')?;
        if lease == 0 || last != hex(lease) {
            return None;
        }
        let text = rest.strip_suffix("/read").or_else(|| rest.strip_suffix("/slot")).unwrap_or(rest);
        if self.encoded { LockName::from_percent_encoded(text) } else { LockName::new(text).ok() }
    }
}

impl QueueKeys {
    /// Returns the key of an entry in the queue.
    pub(super) fn entry(&self, mode: Mode, lease: i64) -> String {
        let place = match mode {
            Mode::Exclusive => "",
            Mode::Shared => "read/",
            Mode::Slots(_) => "slot/",
        };
        format!("{}/{place}{}", self.base, hex(lease))
    }

    /// Returns the range of all entries.
    pub(super) fn entries(&self) -> Span {
        prefixed(&format!("{}/", self.base))
    }

    /// Returns whether an entry is at this `place`: `read` or `slot`.
    pub(super) fn is_at(&self, place: &str, key: &[u8]) -> bool {
        key.starts_with(format!("{}/{place}/", self.base).as_bytes())
    }

    /// Returns the key of an entry's record.
    pub(super) fn record(&self, mode: Mode, lease: i64) -> String {
        match mode {
            Mode::Slots(n) => format!("{}n/{n}/{}", self.side, hex(lease)),
            _ => format!("{}m/{}", self.side, hex(lease)),
        }
    }

    /// Returns the range of all records.
    pub(super) fn records(&self) -> Span {
        (format!("{}m/", self.side), format!("{}o", self.side))
    }

    /// Returns the mode that the key of a record tells, if that is one with slots.
    pub(super) fn slots_of(&self, record: &[u8]) -> Option<Mode> {
        let number = record.strip_prefix(format!("{}n/", self.side).as_bytes())?;
        let number = number.split(|byte| *byte == b'/').next()?;
        std::str::from_utf8(number).ok()?.parse().ok().map(Mode::Slots)
    }

    /// Returns the key of an entry's hold.
    pub(super) fn hold(&self, lease: i64) -> String {
        format!("{}t/{}", self.side, hex(lease))
    }

    /// Returns the range of all holds.
    pub(super) fn holds(&self) -> Span {
        prefixed(&format!("{}t/", self.side))
    }

    /// Returns the key of a slot.
    pub(super) fn slot(&self, number: u32) -> String {
        format!("{}s/{number}", self.side)
    }

    /// Returns the key of the time at which the last successful run acquired the lock.
    pub(super) fn done(&self) -> String {
        format!("{}d", self.side)
    }

    /// Returns the range of all keys except entries.
    pub(super) fn beside(&self) -> Span {
        prefixed(&self.side)
    }
}

/// Returns milliseconds since 1970 by the clock of this host: for display, and for `--once-per`.
pub(super) fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the time of a value of [`wall_clock`].
pub(super) fn instant(millis: u64) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis))
}

/// Returns the stored form of a value.
pub(super) fn stored(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// The value of a record: the claim, and its time of arrival by its host's clock.
#[derive(Serialize, Deserialize)]
pub(super) struct Arrived {
    #[serde(flatten)]
    pub(super) record: Record,
    #[serde(default)]
    pub(super) since_ms: u64,
}

impl Arrived {
    /// Parses the record of another dlock; `None` for other text.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok().filter(|arrived: &Self| arrived.record.id().is_some())
    }
}

/// The value of a hold that was proved after a wait, or that has a slot.
#[derive(Serialize, Deserialize)]
pub(super) struct Hold {
    pub(super) since_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) slot: Option<u32>,
}

/// The word of a note by which a client asks the claim to leave.
const ASKED: &str = "ask";

/// Returns the value of a note.
pub(super) fn note_text(note: &Note) -> String {
    let (word, by) = match note {
        Note::Asked(by) => (ASKED, Some(by)),
        removal => removal.stored().unwrap_or(("evicted", None)),
    };
    stored(&HashMap::from([(word, by)]))
}

/// Parses the value of a note.
pub(super) fn note(text: &[u8]) -> Option<Note> {
    let notes: HashMap<String, Option<Holder>> = serde_json::from_slice(text).ok()?;
    let (word, by) = notes.into_iter().next()?;
    if word == ASKED { by.map(Note::Asked) } else { Note::removal(&word, by) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> LockName {
        LockName::new(text).expect("valid")
    }

    fn encoded() -> Layout {
        Layout { prefix: "dlock/".to_owned(), encoded: true }
    }

    fn raw(prefix: &str) -> Layout {
        Layout { prefix: prefix.to_owned(), encoded: false }
    }

    #[test]
    fn entries_lie_where_go_puts_them() {
        let queue = raw("").queue(&name("deploy"));
        assert_eq!(queue.entry(Mode::Exclusive, 0x694d), "deploy/694d");
        assert_eq!(queue.entries(), ("deploy/".to_owned(), "deploy0".to_owned()));
        assert_eq!(encoded().queue(&name("a/b")).entry(Mode::Shared, 1), "dlock/a%2Fb/read/1");
        assert_eq!(raw("").queue(&name("a")).done(), "a\u{1}d");
    }

    #[test]
    fn records_tell_the_number_of_slots() {
        let queue = encoded().queue(&name("a"));
        for mode in [2, 20].map(|n| Mode::Slots(std::num::NonZeroU32::new(n).expect("positive"))) {
            assert_eq!(queue.slots_of(queue.record(mode, 7).as_bytes()), Some(mode));
        }
        assert_eq!(queue.slots_of(queue.record(Mode::Shared, 7).as_bytes()), None);
    }

    proptest! {
        #[test]
        fn names_are_read_back(text in "[^\\p{Cc}]{1,20}", lease in 1i64..) {
            prop_assume!(text.trim() == text);
            for layout in [encoded(), raw("p/")] {
                let (lock, other) = (name(&text), lease ^ 1);
                for mode in [Mode::Exclusive, Mode::Shared] {
                    let key = layout.queue(&lock).entry(mode, lease);
                    let raw_tail = text.ends_with("/read") || text.ends_with("/slot");
                    if layout.encoded || !raw_tail {
                        prop_assert_eq!(layout.name_of(key.as_bytes(), lease), Some(lock.clone()));
                    }
                    prop_assert_eq!(layout.name_of(key.as_bytes(), other), None);
                }
                prop_assert_eq!(layout.name_of(layout.queue(&lock).hold(lease).as_bytes(), lease).filter(|n| *n == lock), None);
            }
        }

        #[test]
        fn nothing_of_a_lock_lies_in_the_queue_of_another(a in "[^\\p{Cc}]{1,9}", b in "[^\\p{Cc}]{1,9}") {
            prop_assume!(a != b && a.trim() == a && b.trim() == b);
            let layout = encoded();
            let (x, y) = (layout.queue(&name(&a)), layout.queue(&name(&b)));
            let inside = |(from, to): Span, key: &str| from.as_str() <= key && key < to.as_str();
            for key in [x.entry(Mode::Exclusive, 7), x.hold(7), x.slot(1), x.done(), x.record(Mode::Shared, 7)] {
                prop_assert!(!inside(y.entries(), &key) && !inside(y.records(), &key) && !inside(y.holds(), &key));
            }
        }
    }
}
