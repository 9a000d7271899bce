//! What is known of a tree that is to be ended.

/// Some pids, without memory of their own: the first ones are named, the rest is counted.
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

    /// The same and `pid`.
    pub(super) fn with(mut self, pid: i32) -> Self {
        self.add(pid);
        self
    }

    /// Those that have a name.
    pub fn named(&self) -> &[i32] {
        &self.first[..self.count.min(self.first.len())]
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether there is none.
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

/// What is known of a tree that was to be ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeState {
    /// No member is left, living or dead.
    Gone,
    /// These live.
    Alive(Pids),
    /// Members may live, but cannot be seen.
    Unknown,
}

impl TreeState {
    /// Whether the lock may go to somebody else.
    pub fn is_gone(&self) -> bool {
        *self == Self::Gone
    }
}

/// What one round of signals came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reached {
    /// Members that the signal reached.
    pub signalled: Pids,
    /// Members that this process may not signal.
    pub denied: Pids,
    /// There may be members that were not seen, or that could not be reached this time.
    pub incomplete: bool,
}

impl Reached {
    /// What is known if nothing has ended since.
    pub fn state(&self) -> TreeState {
        if self.signalled.is_empty() && self.denied.is_empty() {
            return TreeState::Unknown;
        }
        TreeState::Alive(self.signalled.named().iter().chain(self.denied.named()).copied().collect())
    }

    /// Nothing could be signalled that may be.
    pub fn is_in_vain(&self) -> bool {
        self.signalled.is_empty() && !self.incomplete
    }
}
