//! The state of a tree that dlock kills, as far as it is known.

use std::time::Duration;

use crate::lock::Moment;

/// A process that lives this long after SIGKILL is in the hands of the kernel, as in an uninterruptible sleep. The kernel
/// needs longer for thousands of processes.
const UNKILLABLE: Duration = Duration::from_secs(2);

/// Some pids, without allocating: the first 12 are listed, the rest is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pids {
    first: [i32; 12],
    count: usize,
}

impl Pids {
    pub(super) fn add(&mut self, pid: i32) {
        if let Some(room) = self.first.get_mut(self.count) {
            *room = pid;
        }
        self.count += 1;
    }

    /// Returns the pids that are listed individually.
    pub fn named(&self) -> &[i32] {
        &self.first[..self.count.min(self.first.len())]
    }

    /// Returns how many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl FromIterator<i32> for Pids {
    fn from_iter<T: IntoIterator<Item = i32>>(pids: T) -> Self {
        let mut all = Self::default();
        pids.into_iter().for_each(|pid| all.add(pid));
        all
    }
}

/// The state of a tree after the attempt to kill it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeState {
    /// No member is left, living or dead.
    Gone,
    /// These members live.
    Alive(Pids),
    /// Members may live, but cannot be seen.
    Unknown,
}

impl TreeState {
    /// Returns whether the tree is known to be gone, so that the lock may be released.
    pub fn is_gone(&self) -> bool {
        *self == Self::Gone
    }
}

/// The result of one round of signals.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reached {
    /// Members that the signal reached.
    pub signalled: Pids,
    /// Members that this process may not signal.
    pub denied: Pids,
    /// There may be members that were not seen, or could not be reached this time.
    pub incomplete: bool,
}

impl Reached {
    /// Returns what is known if no member has ended since.
    pub fn state(&self) -> TreeState {
        if self.signalled.is_empty() && self.denied.is_empty() {
            return TreeState::Unknown;
        }
        TreeState::Alive(self.signalled.named().iter().chain(self.denied.named()).copied().collect())
    }

    /// Returns whether a complete search found no member that this process may signal.
    pub fn is_in_vain(&self) -> bool {
        self.signalled.is_empty() && !self.incomplete
    }
}

/// The progress of killing a tree round by round.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// The fewest members that a round has found, and when it did. The first round counts also if it is incomplete: as
    /// `usize::MAX`.
    fewest: Option<(usize, Moment)>,
}

impl Progress {
    /// Notes the result of a round. Returns whether no complete round has found fewer members for two seconds.
    pub fn is_stuck(&mut self, reached: &Reached, now: Moment) -> bool {
        let found = reached.signalled.count() + reached.denied.count();
        let left = if reached.incomplete { usize::MAX } else { found };
        let (fewest, since) = self.fewest.get_or_insert((left, now));
        if left < *fewest {
            (*fewest, *since) = (left, now);
        }
        now.since(*since) > UNKILLABLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_stuck_only_while_no_member_ends() {
        let (mut progress, start) = (Progress::default(), Moment::from_nanos(1));
        let mut is_stuck = |members: i32, seconds: u64| {
            let reached = Reached { signalled: (0..members).collect(), ..Reached::default() };
            progress.is_stuck(&reached, start + Duration::from_secs(seconds))
        };
        assert!(!is_stuck(9_000, 0) && !is_stuck(5_000, 2) && !is_stuck(1_000, 4));
        // A tree that grows again as fast as it dies is no progress.
        assert!(!is_stuck(2_000, 5) && !is_stuck(1_000, 6) && is_stuck(1_500, 7));
    }

    #[test]
    fn an_incomplete_round_is_no_measure_of_progress() {
        let (mut progress, start) = (Progress::default(), Moment::from_nanos(1));
        let mut is_stuck = |members: i32, incomplete: bool, seconds: u64| {
            let reached = Reached { signalled: (0..members).collect(), incomplete, ..Reached::default() };
            progress.is_stuck(&reached, start + Duration::from_secs(seconds))
        };
        assert!(!is_stuck(0, true, 0) && !is_stuck(9_000, false, 2) && !is_stuck(1_000, false, 4));
        assert!(!is_stuck(500, true, 6) && is_stuck(0, true, 7));
    }
}
