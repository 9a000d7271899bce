//! Waits that would never end.
//!
//! A waiter waits for the entries ahead that must end first. If the command of an entry runs other dlocks (which list
//! the entry among their ancestors), the entry waits for those of them that wait.

use std::collections::{HashMap, HashSet};

use super::{ClaimId, LockName, Mode, queue};

/// The reason why one claim waits for another.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Reason {
    /// It is behind it in this queue.
    Queue(LockName),
    /// Its command waits for it.
    Nested,
}

/// The claims that a claim waits for, in one queue or through its command.
#[derive(Clone, Debug)]
struct Wait {
    reason: Reason,
    on: Vec<ClaimId>,
    /// How many of them must end.
    needed: usize,
}

/// The relevant part of a queue's entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// The claim.
    pub id: ClaimId,
    /// Its mode.
    pub mode: Mode,
    /// The claim's name in a sentence.
    pub owner: String,
    /// The claims inside which its dlock was started.
    pub ancestors: Vec<ClaimId>,
}

/// All claims, their owners, and their waits.
#[derive(Debug, Default)]
pub struct Graph {
    /// Pairs of a claim and one that runs inside it.
    nested: Vec<(ClaimId, ClaimId)>,
    owners: HashMap<ClaimId, String>,
    waits: HashMap<ClaimId, Vec<Wait>>,
}

impl Graph {
    /// Adds a queue: its live entries in order.
    pub fn add(&mut self, lock: &LockName, queue: Vec<Member>) {
        let modes: Vec<Mode> = queue.iter().map(|member| member.mode).collect();
        let ids: Vec<ClaimId> = queue.iter().map(|member| member.id).collect();
        for member in queue {
            self.nested.extend(member.ancestors.iter().map(|ancestor| (*ancestor, member.id)));
            self.owners.insert(member.id, member.owner);
        }
        for index in 0..ids.len() {
            let on: Vec<_> = queue::blockers(&modes, index).into_iter().map(|i| ids[i]).collect();
            let needed = match modes[index] {
                Mode::Slots(n) => (index + 1).saturating_sub(usize::try_from(n.get()).unwrap_or(usize::MAX)),
                _ => on.len(),
            };
            if needed > 0 {
                let wait = Wait { reason: Reason::Queue(lock.clone()), on, needed };
                self.waits.entry(ids[index]).or_default().push(wait);
            }
        }
    }

    /// Adds the waits of claims for the waiting claims of their commands.
    fn nest(&mut self) {
        let waiting: HashSet<ClaimId> = self.waits.keys().copied().collect();
        for (ancestor, id) in std::mem::take(&mut self.nested) {
            if waiting.contains(&id) {
                let wait = Wait { reason: Reason::Nested, on: vec![id], needed: 1 };
                self.waits.entry(ancestor).or_default().push(wait);
            }
        }
    }

    /// Returns the claims with waits that can never end. Claims that wait for nothing, or for enough claims that end,
    /// are removed repeatedly; these remain.
    fn stuck(&self) -> HashSet<ClaimId> {
        let mut behind: HashMap<ClaimId, Vec<(ClaimId, usize)>> = HashMap::new();
        let mut missing: HashMap<ClaimId, Vec<usize>> = HashMap::new();
        let mut ended: HashSet<ClaimId> = HashSet::new();
        for (id, waits) in &self.waits {
            missing.insert(*id, waits.iter().map(|w| w.needed).collect());
            for (index, wait) in waits.iter().enumerate() {
                for on in &wait.on {
                    behind.entry(*on).or_default().push((*id, index));
                    if !self.waits.contains_key(on) {
                        ended.insert(*on);
                    }
                }
            }
        }
        let mut queue: Vec<ClaimId> = ended.iter().copied().collect();
        while let Some(id) = queue.pop() {
            for (waiter, index) in behind.get(&id).into_iter().flatten() {
                let Some(counts) = missing.get_mut(waiter) else { continue };
                counts[*index] = counts[*index].saturating_sub(1);
                if counts.iter().all(|c| *c == 0) && ended.insert(*waiter) {
                    queue.push(*waiter);
                }
            }
        }
        self.waits.keys().filter(|c| !ended.contains(c)).copied().collect()
    }

    /// Returns the sentence about the cycle of waits that `start` closes, if there is one. All queues must have been
    /// added.
    pub fn cycle(&mut self, start: ClaimId) -> Option<String> {
        self.nest();
        let stuck = self.stuck();
        let mut path = Vec::new();
        let mut seen = HashSet::new();
        if !stuck.contains(&start) || !self.walk(start, start, &stuck, &mut seen, &mut path) {
            return None;
        }
        path.reverse();
        let owner = |c: &ClaimId| self.owners.get(c).map_or_else(|| c.to_string(), Clone::clone);
        let steps: Vec<String> = path
            .iter()
            .map(|(from, reason, to)| match reason {
                Reason::Queue(lock) => format!("{} waits for {lock} behind {}", owner(from), owner(to)),
                Reason::Nested => format!("{} runs {}", owner(from), owner(to)),
            })
            .collect();
        Some(steps.join(", "))
    }

    fn walk(
        &self,
        at: ClaimId,
        goal: ClaimId,
        stuck: &HashSet<ClaimId>,
        seen: &mut HashSet<ClaimId>,
        path: &mut Vec<(ClaimId, Reason, ClaimId)>,
    ) -> bool {
        for wait in self.waits.get(&at).into_iter().flatten() {
            for next in wait.on.iter().filter(|c| stuck.contains(c)) {
                if *next == goal || (seen.insert(*next) && self.walk(*next, goal, stuck, seen, path)) {
                    path.push((at, wait.reason.clone(), *next));
                    return true;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> ClaimId {
        ClaimId::from_bytes([n; 16])
    }

    fn queue(on: &[u8], needed: usize) -> Wait {
        let name = LockName::new("a").expect("valid");
        Wait { reason: Reason::Queue(name), on: on.iter().map(|n| id(*n)).collect(), needed }
    }

    #[test]
    fn freeable_slot_is_no_deadlock() {
        let mut graph = Graph::default();
        // 3 waits for a slot that 1 and 2 have, and runs inside 1.
        graph.waits.insert(id(3), vec![queue(&[1, 2], 1)]);
        graph.nested.push((id(1), id(3)));
        assert_eq!(graph.cycle(id(3)), None);
        // It runs inside the holders of both slots.
        graph.nested.push((id(2), id(3)));
        assert!(graph.cycle(id(3)).is_some());
    }

    /// A member of a queue: its claim, its mode and its ancestors.
    type Entry = (u8, Mode, &'static [u8]);

    fn closes(claim: u8, queues: &[(&str, &[Entry])]) -> bool {
        let mut graph = Graph::default();
        let member = |(n, mode, inside): &Entry| Member {
            id: id(*n),
            mode: *mode,
            owner: n.to_string(),
            ancestors: inside.iter().map(|n| id(*n)).collect(),
        };
        for (lock, queue) in queues {
            graph.add(&lock.parse().expect("valid"), queue.iter().map(member).collect());
        }
        graph.cycle(id(claim)).is_some()
    }

    #[test]
    fn exactly_endless_waits_are_cycles() {
        use Mode::{Exclusive as X, Shared as S};
        let two = Mode::Slots(2.try_into().expect("positive"));
        assert!(closes(2, &[("a", &[(1, S, &[]), (2, X, &[1])])]), "under the own shared hold");
        let (a, b): (&[Entry], &[Entry]) = (&[(1, X, &[]), (4, X, &[2])], &[(2, X, &[]), (3, X, &[1])]);
        assert!(closes(4, &[("a", a), ("b", b)]), "crossed");
        assert!(!closes(3, &[("a", &a[..1]), ("b", b)]), "one of the two");
        assert!(!closes(3, &[("a", &[(1, S, &[])]), ("b", &[(2, X, &[1]), (3, X, &[1])])]), "siblings");
        assert!(!closes(3, &[("a", &[(1, two, &[]), (2, two, &[]), (3, two, &[1])])]), "the other slot");
        assert!(closes(3, &[("a", &[(1, two, &[]), (2, two, &[1]), (3, two, &[1, 2])])]), "no slot");
    }

    #[test]
    fn a_long_queue_without_nesting_is_no_deadlock() {
        let mut graph = Graph::default();
        for n in 1..200 {
            graph.waits.insert(id(n), vec![queue(&(0..n).collect::<Vec<_>>(), usize::from(n))]);
        }
        assert_eq!(graph.cycle(id(199)), None);
    }
}
