//! A queue, built from its nodes.

use super::node::{Node, Part};
use crate::lock::{ClaimId, Mode};

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

    pub(super) fn guid(&self) -> Option<ClaimId> {
        self.nodes[0].guid
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

/// The entries of all claims of all kinds, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct QueueNodes {
    pub(super) entries: Vec<ClaimNodes>,
}

impl QueueNodes {
    /// Builds a queue from the names of children; names that are not nodes of a queue are skipped.
    pub(super) fn of(children: &[String]) -> Self {
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
        Self { entries }
    }

    /// Removes and returns the nodes of `id` except those of the entry with the text `own`. An earlier attempt of the
    /// same claim left them, and the claim would wait for itself.
    pub(super) fn take_older_selves(&mut self, id: ClaimId, own: &str) -> Vec<Node> {
        let mut taken = Vec::new();
        self.entries.retain_mut(|entry| {
            let older = entry.guid() == Some(id) && entry.text() != own;
            if older {
                taken.append(&mut entry.nodes);
            }
            !older
        });
        taken
    }
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
    use crate::backend::ZkLayout;
    use crate::backend::zookeeper::node::stem;

    fn id(n: u8) -> ClaimId {
        ClaimId::from_bytes([n; 16])
    }

    fn node(n: u8, part: Part, sequence: i32) -> String {
        format!("{}{sequence:010}", stem(ZkLayout::Curator, id(n), part))
    }

    /// Returns the id and mode of each entry.
    fn read(children: &[String]) -> Vec<(Option<ClaimId>, Mode)> {
        QueueNodes::of(children).entries.iter().map(|p| (p.guid(), p.mode())).collect()
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
