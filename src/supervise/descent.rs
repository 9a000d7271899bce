//! What tells who descends from a process, whoever its parent is by now.

/// Where the kernel has put a program in its memory, by chance, when it was executed: all forks that have executed none
/// since are the same in that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Where its code begins and ends.
    pub(super) code: (u64, u64),
    /// Where its stack begins.
    pub(super) stack: u64,
    /// Where the environment ends that it was started with.
    pub(super) top: u64,
}

impl Layout {
    /// Whether it was chance that has put this program and `other` where they are. Without it every environment ends at the same
    /// place, but for the length of a file name.
    pub fn is_by_chance(&self, other: &Self) -> bool {
        self.top.abs_diff(other.top) > 2 * 4096
    }
}

/// What tells who descends from an adopted process, whoever its parent is by now.
#[derive(Clone, Copy, Debug)]
pub struct Descent {
    /// The claim, written as 32 digits, in the environment.
    pub claim: [u8; 32],
    /// The layout of the adopted process, if its forks can be known by that.
    pub layout: Option<Layout>,
    /// The session of the adopted process.
    pub session: Option<i32>,
    /// The process that orphans of the adopted one become children of, if that is known.
    pub reaper: Option<i32>,
}

/// What /proc/PID/stat has of a process's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    pub(super) layout: Layout,
    /// Where the environment begins.
    pub(super) environment: u64,
}

impl Memory {
    /// Whether the kernel has laid out all of it; the end of the environment comes last.
    pub(super) fn is_complete(&self) -> bool {
        self.layout.top != 0
    }

    /// Whether the program was started with no environment at all.
    pub(super) fn has_no_environment(&self) -> bool {
        self.environment == self.layout.top
    }
}
