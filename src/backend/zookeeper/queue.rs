//! Entries as nodes: their names in the formats of Curator and kazoo, and their data.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::config::is_aside;
use crate::backend::ZkLayout;
use crate::backend::record::Record;
use crate::lock::{ClaimId, Holder, Mode};

/// The data of a claim's first node: the record, and later additions.
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

/// A node in a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Node {
    /// Its name, without the path.
    pub(super) name: String,
    /// The mode of its claim, if it is the only node. A mutex of any program is exclusive. Clients that know only mutexes
    /// take a claim on slots for one.
    mode: Mode,
    /// Whether it belongs to a read/write lock of Curator.
    is_half: bool,
    /// The claim, if it may be one of dlock's.
    pub(super) claim: Option<ClaimId>,
    /// Its position in the queue: a number that wraps around.
    sequence: i32,
}

impl Node {
    /// Parses a child's name; `None` if it is not a node of a queue. Any name that ends in a sequence number is one.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (stem, sequence) = split(name).filter(|_| !is_aside(name))?;
        let is_reader = stem.ends_with("__READ__");
        let mode = if is_reader || stem.ends_with("__rlock__") {
            Mode::Shared
        } else {
            slots(stem).map_or(Mode::Exclusive, Mode::Slots)
        };
        let is_half = is_reader || stem.ends_with("__WRIT__");
        let claim = name.strip_prefix("_c_").unwrap_or(name).get(..32).and_then(|id| id.parse().ok());
        Some(Self { name: name.to_owned(), mode, is_half, claim, sequence })
    }
}

/// Splits a name before its sequence number: the last ten characters, or eleven for a large negative number after
/// wrapping.
fn split(name: &str) -> Option<(&str, i32)> {
    let is_part = |b: u8| b.is_ascii_digit() || b == b'-';
    let number = |text: &str| text.parse().ok().filter(|_| text.bytes().all(is_part));
    let (stem, last) = name.split_at_checked(name.len().checked_sub(10)?)?;
    let is_long = stem.ends_with("--") || stem.ends_with("_-") || number(last).is_none();
    match stem.strip_suffix('-').filter(|_| is_long && !last.starts_with('-')) {
        Some(stem) => Some((stem, number(&name[stem.len()..])?)),
        None => Some((stem, number(last)?)),
    }
}

/// Returns the number of slots in the beginning of a name.
fn slots(stem: &str) -> Option<NonZeroU32> {
    stem.strip_suffix("-lock-")?.rsplit_once("-slots")?.1.parse().ok()
}

/// Returns the names of a claim's nodes without the numbers that the server appends.
pub(super) fn stems(layout: ZkLayout, id: ClaimId, mode: Mode) -> Vec<String> {
    match (layout, mode) {
        // One node for Curator's mutex and one for its read/write lock: neither recognises the other's nodes.
        (ZkLayout::Curator, Mode::Exclusive) => vec![format!("_c_{id}-lock-"), format!("_c_{id}-__WRIT__")],
        (ZkLayout::Curator, Mode::Shared) => vec![format!("_c_{id}-lock-"), format!("_c_{id}-__READ__")],
        (_, Mode::Slots(n)) => vec![format!("_c_{id}-slots{n}-lock-"), format!("_c_{id}-__WRIT__")],
        (ZkLayout::Kazoo, Mode::Exclusive) => vec![format!("{id}__lock__")],
        (ZkLayout::Kazoo, Mode::Shared) => vec![format!("{id}__rlock__")],
    }
}

/// One entry: a node, or the two nodes of a dlock claim in a queue shared by Curator's mutex and its read/write lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ClaimNodes {
    /// The node with the record, and the second one.
    pub(super) nodes: Vec<Node>,
}

impl ClaimNodes {
    /// Returns the node with the record, if a dlock made it.
    pub(super) fn record(&self) -> &Node {
        &self.nodes[0]
    }

    /// Returns the names of its nodes, with a slash between them.
    pub(super) fn text(&self) -> String {
        self.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join("/")
    }

    /// Returns the mode. The second node tells whether a claim is shared.
    pub(super) fn mode(&self) -> Mode {
        match self.record().mode {
            Mode::Exclusive => self.nodes[self.nodes.len() - 1].mode,
            mode => mode,
        }
    }
}

/// Returns the entries of all claims of all kinds, in order, from the names of children; names that are not nodes of a
/// queue are skipped.
pub(super) fn entries(children: &[String]) -> Vec<ClaimNodes> {
    let mut nodes: Vec<Node> = children.iter().filter_map(|name| Node::parse(name)).collect();
    // Sequence numbers wrap: all others are less than half the range after the first one.
    let first = nodes.iter().map(|n| n.sequence).reduce(|a, b| if b.wrapping_sub(a) < 0 { b } else { a });
    let first = first.unwrap_or_default();
    nodes.sort_by_key(|n| n.sequence.wrapping_sub(first).cast_unsigned());
    let mut entries: Vec<ClaimNodes> = Vec::with_capacity(nodes.len());
    for node in nodes {
        match entries.last_mut() {
            Some(entry) if is_other_half(entry, &node) => entry.nodes.push(node),
            _ => entries.push(ClaimNodes { nodes: vec![node] }),
        }
    }
    entries
}

/// Returns whether `node` was created in one step with the only node of `entry`.
fn is_other_half(entry: &ClaimNodes, node: &Node) -> bool {
    let [first] = entry.nodes.as_slice() else { return false };
    (!first.is_half && node.is_half)
        && first.claim.is_some()
        && first.claim == node.claim
        && node.sequence == first.sequence.wrapping_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mode of a node, and whether it is a half: a mutex, a writer and a reader.
    const X: (Mode, bool) = (Mode::Exclusive, false);
    const W: (Mode, bool) = (Mode::Exclusive, true);
    const R: (Mode, bool) = (Mode::Shared, true);

    fn sample() -> ClaimId {
        "0123456789abcdef0123456789abcdef".parse().expect("an id")
    }

    #[test]
    fn own_names_are_read() {
        let twelve = NonZeroU32::new(12).expect("positive");
        for (layout, mode, names) in [
            (
                ZkLayout::Curator,
                Mode::Exclusive,
                &[
                    ("_c_0123456789abcdef0123456789abcdef-lock-", X),
                    ("_c_0123456789abcdef0123456789abcdef-__WRIT__", W),
                ][..],
            ),
            (
                ZkLayout::Curator,
                Mode::Shared,
                &[
                    ("_c_0123456789abcdef0123456789abcdef-lock-", X),
                    ("_c_0123456789abcdef0123456789abcdef-__READ__", R),
                ],
            ),
            (
                ZkLayout::Curator,
                Mode::Slots(twelve),
                &[
                    ("_c_0123456789abcdef0123456789abcdef-slots12-lock-", (Mode::Slots(twelve), false)),
                    ("_c_0123456789abcdef0123456789abcdef-__WRIT__", W),
                ],
            ),
            (ZkLayout::Kazoo, Mode::Exclusive, &[("0123456789abcdef0123456789abcdef__lock__", X)]),
            (
                ZkLayout::Kazoo,
                Mode::Shared,
                &[("0123456789abcdef0123456789abcdef__rlock__", (Mode::Shared, false))],
            ),
        ] {
            assert_eq!(
                stems(layout, sample(), mode),
                names.iter().map(|(stem, _)| *stem).collect::<Vec<_>>()
            );
            let numbered = names.iter().enumerate();
            let children: Vec<String> = numbered.map(|(at, (stem, _))| format!("{stem}{at:010}")).collect();
            for ((name, (_, (mode, is_half))), sequence) in children.iter().zip(names).zip(0..) {
                let (mode, is_half, claim) = (*mode, *is_half, Some(sample()));
                let node = Node { name: name.clone(), mode, is_half, claim, sequence };
                assert_eq!(Node::parse(name), Some(node));
            }
            assert_eq!(read(&children), [(Some(sample()), mode)]);
        }
    }

    #[test]
    fn others_names_are_read_too() {
        for (name, part, sequence) in [
            ("x-144115188075855872-0000000012", X, 12),
            ("_c_01234567-89ab-cdef-0123-456789abcdef-lock-0000000007", X, 7),
            ("_c_0123-lock--2147483648", X, i32::MIN),
            ("_c_0123-lock--000000001", X, -1),
            ("_c_0123-__WRIT__-1000000000", W, -1_000_000_000),
            ("_c_0123-__READ__-000000001", R, -1),
            ("lock-2147483647", X, i32::MAX),
            ("_c_x-latch-0000000003", X, 3),
            ("x--2147483648", X, i32::MIN),
            ("x--1000000000", X, -1_000_000_000),
            ("x-2147483648", X, i32::MIN),
            ("x--999999999", X, -999_999_999),
            ("x-1000000000", X, 1_000_000_000),
            ("x---000000001", X, -1),
            ("_c_x-slots0-lock-0000000003", X, 3),
            ("slots-2-lock-0000000003", X, 3),
        ] {
            let node = Node::parse(name).expect("stands in the queue");
            assert_eq!(
                ((node.mode, node.is_half), node.sequence, node.claim),
                (part, sequence, None),
                "{name}"
            );
        }
        for name in [
            "locks",
            "leases",
            "",
            "é",
            "~dlock1",
            "~dlock.0000000001",
            "lock-",
            "lock-12",
            "0123456789abcdef",
        ] {
            assert_eq!(Node::parse(name), None, "{name}");
        }
    }

    fn id(n: u8) -> ClaimId {
        ClaimId::from_bytes([n; 16])
    }

    fn node(n: u8, part: &str, sequence: i32) -> String {
        format!("_c_{}-{part}{sequence:010}", id(n))
    }

    /// Returns the id and mode of each entry.
    fn read(children: &[String]) -> Vec<(Option<ClaimId>, Mode)> {
        entries(children).iter().map(|p| (p.record().claim, p.mode())).collect()
    }

    #[test]
    fn two_nodes_of_one_step_are_one_entry() {
        let children = [
            node(2, "__WRIT__", 5),
            node(1, "lock-", 2),
            "leases".to_owned(),
            node(2, "lock-", 4),
            node(1, "__READ__", 3),
            node(3, "lock-", 6),
            node(4, "__READ__", 7),
        ];
        let (x, s) = (Mode::Exclusive, Mode::Shared);
        let expected = [(Some(id(1)), s), (Some(id(2)), x), (Some(id(3)), x), (Some(id(4)), s)];
        assert_eq!(read(&children), expected);
    }

    #[test]
    fn half_an_entry_and_two_of_one_maker_stay_apart() {
        let apart = [node(1, "lock-", 2), node(1, "__WRIT__", 4)];
        assert_eq!(read(&apart).len(), 2, "not of one step");
        let twice = [node(1, "lock-", 2), node(1, "lock-", 3)];
        assert_eq!(read(&twice).len(), 2, "of two steps");
        let half = [node(1, "__READ__", 3), node(2, "lock-", 4)];
        assert_eq!(read(&half), [(Some(id(1)), Mode::Shared), (Some(id(2)), Mode::Exclusive)]);
    }

    #[test]
    fn numbers_wrap() {
        let children =
            [node(3, "lock-", i32::MIN + 1), node(1, "lock-", i32::MAX), node(2, "lock-", i32::MIN)];
        let order: Vec<_> = read(&children).into_iter().map(|(claim, _)| claim).collect();
        assert_eq!(order, [Some(id(1)), Some(id(2)), Some(id(3))]);
    }

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
