//! The text of a queue file, without I/O: a header of one kilobyte, then one record a line.
//!
//! ```text
//! dlock 1 START NEXT LIMIT SUCCESS BOOT "NAME" ... SUM
//! SASM MODE SLOT TOKEN SINCE CLAIM {"holder":...}
//! K CLAIM {"host":...}
//! ```
//! The variable fields of a record come first, have fixed widths and never cross a page, so that one write changes
//! them. The kernel may cut a killed writer's write at the end of a page, never within one. Marks (`K`) follow the
//! records of the claims that they are about.

use serde::{Deserialize, Serialize};

use crate::lock::{ClaimId, Holder, Mode};

/// The length of the part of a record before its JSON.
pub(super) const FIXED: usize = 103;
/// The unit in which the kernel writes.
const PAGE: u64 = 4096;

/// The state of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// In the queue, and has not taken the lock file.
    Waiting,
    /// At the head of the queue, but a process outside of it has the lock file.
    Blocked,
    /// Has the lock file, and its token is published.
    Held,
    /// Evicted by another process; its owner has not left yet.
    Evicted,
    /// Superseded by a newer claim; its owner has not left yet.
    Superseded,
    /// Left, or found dead.
    Gone,
}

impl State {
    const ALL: [(Self, u8); 6] = [
        (Self::Waiting, b'w'),
        (Self::Blocked, b'b'),
        (Self::Held, b'h'),
        (Self::Evicted, b'e'),
        (Self::Superseded, b's'),
        (Self::Gone, b'd'),
    ];

    pub(super) fn letter(self) -> u8 {
        Self::ALL.iter().find(|(s, _)| *s == self).map_or(b'd', |(_, c)| *c)
    }

    fn from_letter(letter: u8) -> Option<Self> {
        Self::ALL.iter().find(|(_, c)| *c == letter).map(|(s, _)| *s)
    }

    /// Returns whether the record counts in the queue.
    pub(super) fn in_queue(self) -> bool {
        matches!(self, Self::Waiting | Self::Blocked | Self::Held)
    }
}

/// The FIFO of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    /// One of its own, in this queue.
    Own,
    /// One of its own, in the queue of its first name; the claim is on several names.
    First,
    /// The queue's own FIFO, which is kept.
    Kept,
}

impl Which {
    const ALL: [(Self, u8); 3] = [(Self::Own, b'-'), (Self::First, b'm'), (Self::Kept, b'k')];

    fn letter(self) -> u8 {
        Self::ALL.iter().find(|(w, _)| *w == self).map_or(b'-', |(_, c)| *c)
    }

    fn from_letter(letter: u8) -> Option<Self> {
        Self::ALL.iter().find(|(_, c)| *c == letter).map(|(w, _)| *w)
    }
}

/// The fixed part of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fixed {
    pub(super) state: State,
    /// Whether the claim was asked to leave.
    pub(super) asked: bool,
    /// Whether the claim supersedes older ones and can be superseded.
    pub(super) supersede: bool,
    /// Which FIFO is the claim's.
    pub(super) fifo: Which,
    pub(super) mode: Mode,
    /// The slot that it holds, or zero.
    pub(super) slot: u32,
    /// The token of the hold, or zero.
    pub(super) token: u64,
    /// Since when it waits, or holds: µs of wall time.
    pub(super) since: u64,
    pub(super) id: ClaimId,
}

/// The part of a record that describes its owner.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Details {
    pub(super) holder: Holder,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) ancestors: Vec<String>,
    /// The names of the ancestors' locks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) ancestor_names: Vec<String>,
    /// All names of the claim, in the order given, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) names: Vec<String>,
}

impl Fixed {
    pub(super) fn print(&self) -> String {
        let flag = |on, letter| if on { letter } else { '-' };
        let (kind, slots) = match self.mode {
            Mode::Exclusive => ('x', 0),
            Mode::Shared => ('r', 0),
            Mode::Slots(n) => ('n', n.get()),
        };
        let state = char::from(self.state.letter());
        let (asked, supersede) = (flag(self.asked, 'a'), flag(self.supersede, 's'));
        let fifo = char::from(self.fifo.letter());
        let Self { slot, token, since, id, .. } = self;
        format!("{state}{asked}{supersede}{fifo} {kind}{slots:010} {slot:010} {token:020} {since:020} {id} ")
    }

    /// Reads the fixed part at the front of `bytes`.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes.get(..FIXED)?).ok()?;
        let flags = text.as_bytes();
        let slots: u32 = text.get(6..16)?.parse().ok()?;
        let mode = match flags[5] {
            b'x' => Mode::Exclusive,
            b'r' => Mode::Shared,
            b'n' => Mode::Slots(slots.try_into().ok()?),
            _ => return None,
        };
        Some(Self {
            state: State::from_letter(flags[0])?,
            asked: flags[1] == b'a',
            supersede: flags[2] == b's',
            fifo: Which::from_letter(flags[3])?,
            mode,
            slot: text.get(17..27)?.parse().ok()?,
            token: text.get(28..48)?.parse().ok()?,
            since: text.get(49..69)?.parse().ok()?,
            id: text.get(70..102)?.parse().ok()?,
        })
    }
}

/// The kind of a mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mark {
    /// Which holder asked the claim to leave.
    Asked,
    /// Which holder superseded it.
    Superseded,
    /// Which holder evicted it.
    Evicted,
    /// Its new label.
    Label,
}

impl Mark {
    pub(super) fn letter(self) -> char {
        match self {
            Self::Asked => 'A',
            Self::Superseded => 'S',
            Self::Evicted => 'E',
            Self::Label => 'L',
        }
    }
}

/// A record that counts, or that its owner has not left yet.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// Where it begins.
    pub(super) at: u64,
    /// Where its line ends.
    pub(super) end: u64,
    pub(super) fixed: Fixed,
}

/// A part of a queue as it was read.
#[derive(Debug)]
pub(super) struct Image {
    base: u64,
    bytes: Vec<u8>,
    /// The records that are not gone, in order.
    pub(super) records: Vec<Record>,
    /// Where the next line is to be written. A line torn by a kill begins here.
    pub(super) end: u64,
    /// Whether there is a torn line at the end.
    pub(super) torn: bool,
    /// Whether more lines may follow `end`.
    pub(super) cut: bool,
}

impl Image {
    /// Parses `bytes`, which were read at `base`: all of them, or up to the first record that ends behind `until`.
    pub(super) fn parse(base: u64, bytes: Vec<u8>, until: Option<u64>) -> Self {
        let mut image =
            Self { base, bytes: Vec::new(), records: Vec::new(), end: base, torn: false, cut: false };
        let mut at = 0;
        while !image.cut
            && let Some(length) = bytes[at..].iter().position(|b| *b == b'\n')
        {
            let line = &bytes[at..at + length];
            let (from, end) = (base + at as u64, base + (at + length + 1) as u64);
            if line.first().is_some_and(|b| b.is_ascii_lowercase() && *b != b'd')
                && let Some(fixed) = Fixed::read(line)
            {
                image.records.push(Record { at: from, end, fixed });
                image.cut = until.is_some_and(|u| end > u);
            }
            at += length + 1;
        }
        image.end = base + at as u64;
        image.torn = !image.cut && at < bytes.len();
        image.bytes = bytes;
        image
    }

    fn text(&self, at: u64, end: u64) -> &[u8] {
        let index = |offset: u64| usize::try_from(offset.saturating_sub(self.base)).unwrap_or(usize::MAX);
        self.bytes.get(index(at)..index(end)).unwrap_or_default()
    }

    /// Returns the details of the owner of `record`; `None` if they cannot be parsed.
    pub(super) fn details(&self, record: &Record) -> Option<Details> {
        serde_json::from_slice(self.text(record.at, record.end).get(FIXED..)?).ok()
    }

    /// Returns the last mark of `kind` about `claim`: where it begins, the length of its line, its JSON.
    pub(super) fn mark(&self, kind: Mark, claim: ClaimId) -> Option<(u64, usize, &[u8])> {
        let front = format!("{} {claim} ", kind.letter());
        let mut at = self.base;
        let mut found = None;
        for line in self.text(self.base, self.end).split_inclusive(|b| *b == b'\n') {
            if let Some(json) = line.strip_prefix(front.as_bytes()) {
                found = Some((at, line.len(), json));
            }
            at += line.len() as u64;
        }
        found
    }

    /// Returns where the last line ends that belongs neither to `claim` nor to a record that is gone.
    pub(super) fn end_without(&self, claim: ClaimId) -> u64 {
        let records = self.records.iter().filter(|r| r.fixed.id != claim).map(|r| r.end);
        let own = claim.to_string();
        let (mut at, mut marks) = (self.base, self.base);
        for line in self.text(self.base, self.end).split_inclusive(|b| *b == b'\n') {
            at += line.len() as u64;
            if line[0].is_ascii_uppercase() && line.get(2..34) != Some(own.as_bytes()) {
                marks = at;
            }
        }
        records.max().unwrap_or(self.base).max(marks)
    }

    /// Returns the holder that set the mark of `kind` on `claim`.
    pub(super) fn marked_by(&self, kind: Mark, claim: ClaimId) -> Option<Holder> {
        serde_json::from_slice(self.mark(kind, claim)?.2).ok()
    }
}

/// Returns a record's line.
pub(super) fn record_line(fixed: &Fixed, details: &Details) -> Vec<u8> {
    let mut line = fixed.print().into_bytes();
    line.extend(serde_json::to_vec(details).expect("texts and numbers are JSON"));
    line.push(b'\n');
    line
}

/// Returns a mark's line, at least `room` bytes long.
pub(super) fn mark_line<T: Serialize>(kind: Mark, claim: ClaimId, content: &T, room: usize) -> Vec<u8> {
    let mut line = format!("{} {claim} ", kind.letter()).into_bytes();
    line.extend(serde_json::to_vec(content).expect("texts are JSON"));
    if line.len() + 1 < room {
        line.resize(room - 1, b' ');
    }
    line.push(b'\n');
    line
}

/// Returns how many bytes, written as one blank line, must precede a text at `at` whose first `length` bytes may not
/// cross a page.
pub(super) fn padding(at: u64, length: usize) -> usize {
    let left = PAGE - at % PAGE;
    if left < (length as u64).min(PAGE) { usize::try_from(left).unwrap_or(0) } else { 0 }
}

/// Returns whether the kernel writes `length` bytes at `at` all or not at all.
pub(super) fn in_one_page(at: u64, length: usize) -> bool {
    at % PAGE + length as u64 <= PAGE
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fixed(state: State, id: u8) -> Fixed {
        Fixed {
            state,
            asked: id.is_multiple_of(2),
            supersede: id.is_multiple_of(3),
            fifo: Which::ALL[usize::from(id) % 3].0,
            mode: Mode::Slots(7.try_into().expect("positive")),
            slot: u32::MAX,
            token: u64::MAX,
            since: 12,
            id: ClaimId::from_bytes([id; 16]),
        }
    }

    fn details(host: &str) -> Details {
        let holder = Holder { host: host.to_owned(), ..Holder::default() };
        let texts = |text: &str| vec![text.to_owned()];
        Details { holder, ancestors: texts("a"), ancestor_names: texts("b"), names: Vec::new() }
    }

    #[test]
    fn marks_belong_to_their_claim_and_the_last_one_counts() {
        let (one, two) = (ClaimId::from_bytes([1; 16]), ClaimId::from_bytes([2; 16]));
        let holder = |host: &str| details(host).holder;
        let mut bytes = record_line(&fixed(State::Held, 1), &details("own"));
        bytes.extend(mark_line(Mark::Asked, one, &holder("first"), 300));
        bytes.extend(mark_line(Mark::Asked, two, &holder("other"), 0));
        bytes.extend(mark_line(Mark::Asked, one, &holder("last"), 0));
        let image = Image::parse(1024, bytes, None);
        assert_eq!(image.marked_by(Mark::Asked, one), Some(holder("last")));
        assert_eq!(image.marked_by(Mark::Evicted, one), None);
        assert_eq!(image.records.len(), 1);
    }

    proptest! {
        #[test]
        fn records_round_trip(id in any::<u8>(), state in 0usize..6, host in "\\PC{0,40}|\n\t\"") {
            let record = fixed(State::ALL[state].0, id);
            let line = record_line(&record, &details(&host));
            prop_assert_eq!(record.print().len(), FIXED);
            prop_assert_eq!(Fixed::read(&line), Some(record));
            let image = Image::parse(1024, line, None);
            prop_assert_eq!(image.records.len(), usize::from(record.state != State::Gone));
            if let Some(read) = image.records.first() {
                prop_assert_eq!(image.details(read), Some(details(&host)));
            }
        }

        #[test]
        fn a_torn_tail_hides_no_whole_record(records in 0usize..8, cut in any::<prop::sample::Index>()) {
            let mut bytes: Vec<u8> = Vec::new();
            let mut ends = vec![0];
            for id in 0..records {
                let id = u8::try_from(id).expect("few");
                bytes.extend(record_line(&fixed(State::Waiting, id), &details("h")));
                ends.push(bytes.len());
            }
            let cut = cut.index(bytes.len() + 1);
            let whole = ends.iter().filter(|e| **e > 0 && **e <= cut).count();
            let image = Image::parse(1024, bytes[..cut].to_vec(), None);
            prop_assert_eq!(image.records.len(), whole);
            prop_assert_eq!(image.end, 1024 + ends[whole] as u64);
            prop_assert_eq!(image.torn, !ends.contains(&cut));
        }

        #[test]
        fn padding_keeps_the_fixed_part_in_one_page(at in 1024u64..100_000) {
            prop_assert!(in_one_page(at + padding(at, FIXED) as u64, FIXED));
        }
    }
}
