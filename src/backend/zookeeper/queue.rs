//! A queue, built from the names of its nodes, in the formats of Curator and kazoo.

use std::num::NonZeroU32;

use crate::backend::ZkLayout;
use crate::lock::{ClaimId, Mode};

/// The purpose of a node, according to its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// A mutex.
    Mutex,
    /// The reader's half of a read/write lock.
    Reader,
    /// Its writer's half.
    Writer,
    /// A claim on one of so many slots. Clients that know only mutexes take it for a mutex.
    Slots(NonZeroU32),
}

/// A node in a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Node {
    /// Its name, without the path.
    pub(super) name: String,
    /// Its purpose.
    pub(super) part: Part,
    /// The id that its creator gave it, if it is in the format of one.
    pub(super) guid: Option<ClaimId>,
    /// Its position in the queue: a number that wraps around.
    pub(super) sequence: i32,
}

/// The text between a claim's id and the number of its slots.
const SLOTS: &str = "-slots";
/// The text before the sequence number. If one is the end of another, the longer one comes first.
const MARKS: [(&str, Part); 6] = [
    ("__READ__", Part::Reader),
    ("__WRIT__", Part::Writer),
    ("__rlock__", Part::Reader),
    ("__lock__", Part::Mutex),
    ("latch-", Part::Mutex),
    ("lock-", Part::Mutex),
];

impl Node {
    /// Parses a child's name; `None` if it is not a node of a queue. Any name that ends in a sequence number is one.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let known = MARKS.iter().find_map(|(mark, part)| {
            let at = name.rfind(mark)?;
            Some((*part, number(&name[at + mark.len()..])?))
        });
        let (part, sequence) = match known {
            Some((Part::Mutex, sequence)) => (slots(name).map_or(Part::Mutex, Part::Slots), sequence),
            Some(found) => found,
            None => (Part::Mutex, unmarked(name)?),
        };
        Some(Self { name: name.to_owned(), part, guid: guid(name), sequence })
    }
}

/// Parses a sequence number: ten digits, or a sign and nine or ten digits once it has wrapped.
fn number(text: &str) -> Option<i32> {
    let wide = text.len() >= 10 && text.len() <= 11;
    if wide && text.bytes().all(|b| b.is_ascii_digit() || b == b'-') { text.parse().ok() } else { None }
}

/// Parses the sequence number at the end of a name without a known mark: its last ten characters, or eleven for a large
/// negative number after wrapping.
fn unmarked(name: &str) -> Option<i32> {
    let at = name.len().checked_sub(10)?;
    let (before, last) = (name.get(..at)?, name.get(at..)?);
    let wrapped = before.ends_with("--") || (before.ends_with('-') && number(last).is_none());
    let is_wide = wrapped && last.bytes().all(|b| b.is_ascii_digit());
    number(if is_wide { &name[at - 1..] } else { last })
}

/// Returns the number of slots in a name.
fn slots(name: &str) -> Option<NonZeroU32> {
    let (before, _) = name.rsplit_once("-lock-")?;
    before.rsplit_once(SLOTS)?.1.parse().ok()
}

fn guid(name: &str) -> Option<ClaimId> {
    let text = name.strip_prefix("_c_").unwrap_or(name);
    let hex: String = match text.get(..36) {
        Some(uuid) if uuid.bytes().filter(|b| *b == b'-').count() == 4 => uuid.replace('-', ""),
        _ => text.get(..32)?.to_owned(),
    };
    hex.parse().ok()
}

/// Returns `id` in the hexadecimal groups of a UUID.
fn uuid(id: ClaimId) -> String {
    let hex = id.to_string();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// Returns the name of a claim's node without the number that the server appends.
pub(super) fn stem(layout: ZkLayout, id: ClaimId, part: Part) -> String {
    match (layout, part) {
        (ZkLayout::Curator, Part::Mutex) => format!("_c_{}-lock-", uuid(id)),
        (ZkLayout::Curator, Part::Reader) => format!("_c_{}-__READ__", uuid(id)),
        (ZkLayout::Curator, Part::Writer) => format!("_c_{}-__WRIT__", uuid(id)),
        (_, Part::Slots(n)) => format!("_c_{}{SLOTS}{n}-lock-", uuid(id)),
        (ZkLayout::Kazoo, Part::Reader) => format!("{id}__rlock__"),
        (ZkLayout::Kazoo, _) => format!("{id}__lock__"),
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

    /// Returns the mode. A mutex of any program is exclusive.
    pub(super) fn mode(&self) -> Mode {
        match (self.record().part, self.nodes[self.nodes.len() - 1].part) {
            (Part::Slots(n), _) => Mode::Slots(n),
            (_, Part::Reader) => Mode::Shared,
            _ => Mode::Exclusive,
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
    let halves = match first.part {
        Part::Mutex => matches!(node.part, Part::Reader | Part::Writer),
        Part::Slots(_) => node.part == Part::Writer,
        _ => false,
    };
    halves
        && first.guid.is_some()
        && first.guid == node.guid
        && node.sequence == first.sequence.wrapping_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> ClaimId {
        "0123456789abcdef0123456789abcdef".parse().expect("an id")
    }

    #[test]
    fn own_names_are_read() {
        for (layout, part, name) in [
            (ZkLayout::Curator, Part::Mutex, "_c_01234567-89ab-cdef-0123-456789abcdef-lock-0000000007"),
            (ZkLayout::Curator, Part::Reader, "_c_01234567-89ab-cdef-0123-456789abcdef-__READ__0000000007"),
            (ZkLayout::Curator, Part::Writer, "_c_01234567-89ab-cdef-0123-456789abcdef-__WRIT__0000000007"),
            (
                ZkLayout::Curator,
                Part::Slots(NonZeroU32::new(12).expect("positive")),
                "_c_01234567-89ab-cdef-0123-456789abcdef-slots12-lock-0000000007",
            ),
            (ZkLayout::Kazoo, Part::Mutex, "0123456789abcdef0123456789abcdef__lock__0000000007"),
            (ZkLayout::Kazoo, Part::Reader, "0123456789abcdef0123456789abcdef__rlock__0000000007"),
        ] {
            assert_eq!(format!("{}0000000007", stem(layout, sample(), part)), name);
            let node = Node { name: name.to_owned(), part, guid: Some(sample()), sequence: 7 };
            assert_eq!(Node::parse(name), Some(node));
        }
    }

    #[test]
    fn others_names_are_read_too() {
        for (name, part, sequence) in [
            ("x-144115188075855872-0000000012", Part::Mutex, 12),
            ("_c_0123-lock--2147483648", Part::Mutex, i32::MIN),
            ("_c_0123-lock--000000001", Part::Mutex, -1),
            ("lock-2147483647", Part::Mutex, i32::MAX),
            ("_c_x-latch-0000000003", Part::Mutex, 3),
            ("x--2147483648", Part::Mutex, i32::MIN),
            ("x--1000000000", Part::Mutex, -1_000_000_000),
            ("x-2147483648", Part::Mutex, i32::MIN),
            ("x--999999999", Part::Mutex, -999_999_999),
            ("x-1000000000", Part::Mutex, 1_000_000_000),
            ("_c_x-slots0-lock-0000000003", Part::Mutex, 3),
            ("slots-2-lock-0000000003", Part::Mutex, 3),
        ] {
            let node = Node::parse(name).expect("stands in the queue");
            assert_eq!((node.part, node.sequence, node.guid), (part, sequence, None), "{name}");
        }
        for name in ["locks", "leases", "", "é", "~dlock", "lock-", "lock-12", "0123456789abcdef"] {
            assert_eq!(Node::parse(name), None, "{name}");
        }
    }

    fn id(n: u8) -> ClaimId {
        ClaimId::from_bytes([n; 16])
    }

    fn node(n: u8, part: Part, sequence: i32) -> String {
        format!("{}{sequence:010}", stem(ZkLayout::Curator, id(n), part))
    }

    /// Returns the id and mode of each entry.
    fn read(children: &[String]) -> Vec<(Option<ClaimId>, Mode)> {
        entries(children).iter().map(|p| (p.record().guid, p.mode())).collect()
    }

    #[test]
    fn two_nodes_of_one_step_are_one_entry() {
        let children = [
            node(2, Part::Writer, 5),
            node(1, Part::Mutex, 2),
            "leases".to_owned(),
            node(2, Part::Mutex, 4),
            node(1, Part::Reader, 3),
            node(3, Part::Mutex, 6),
            node(4, Part::Reader, 7),
        ];
        let (x, s) = (Mode::Exclusive, Mode::Shared);
        let expected = [(Some(id(1)), s), (Some(id(2)), x), (Some(id(3)), x), (Some(id(4)), s)];
        assert_eq!(read(&children), expected);
    }

    #[test]
    fn half_an_entry_and_two_of_one_maker_stay_apart() {
        let apart = [node(1, Part::Mutex, 2), node(1, Part::Writer, 4)];
        assert_eq!(read(&apart).len(), 2, "not of one step");
        let half = [node(1, Part::Reader, 3), node(2, Part::Mutex, 4)];
        assert_eq!(read(&half), [(Some(id(1)), Mode::Shared), (Some(id(2)), Mode::Exclusive)]);
    }

    #[test]
    fn numbers_wrap() {
        let children = [
            node(3, Part::Mutex, i32::MIN + 1),
            node(1, Part::Mutex, i32::MAX),
            node(2, Part::Mutex, i32::MIN),
        ];
        let order: Vec<_> = read(&children).into_iter().map(|(guid, _)| guid).collect();
        assert_eq!(order, [Some(id(1)), Some(id(2)), Some(id(3))]);
    }
}
