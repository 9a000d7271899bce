//! The gate before the command: one word that front and keeper share.
//!
//! It decides, in one atomic step, whether the command starts or an ending signal came first, so that the keeper need not ask
//! a front that is there anyway. Once it is passed it says by which command.

use std::sync::atomic::{AtomicU64, Ordering};

const OPEN: u64 = 0;
/// The pid of the command, below what else the word says.
const PID: u64 = (1 << 32) - 1;
/// The command has joined the process group that it was to join.
const IN_GROUP: u64 = 1 << 32;
const SHUT: u64 = 1 << 33;
const PASSED: u64 = 1 << 34;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Gate(&'static AtomicU64);

impl Gate {
    /// The gate that `word` is, which is zero: it is open.
    pub(super) fn new(word: &'static AtomicU64) -> Self {
        Self(word)
    }

    /// Opens it for another keeper.
    pub(super) fn reset(self) {
        self.0.store(OPEN, Ordering::SeqCst);
    }

    /// Shuts it, if the command has not passed; whether it is shut now.
    pub fn shut(self) -> bool {
        self.turn(SHUT)
    }

    /// Passes it, if it is not shut; whether it is passed now. The guard instant must be set before.
    pub fn pass(self) -> bool {
        self.turn(PASSED)
    }

    /// Whether it is passed.
    pub fn has_passed(self) -> bool {
        self.0.load(Ordering::SeqCst) & PASSED != 0
    }

    /// Says who has passed: the command `pid`, which is about to be executed and is in its group or not, or the process that
    /// was there before and stands in the place of one. Takes no memory.
    pub fn set_command(self, pid: i32, in_group: bool) {
        let group = if in_group { IN_GROUP } else { 0 };
        self.0.store(PASSED | group | u64::try_from(pid).unwrap_or(0), Ordering::SeqCst);
    }

    /// Says that nothing is held for a command any more: it was not executed, or what goes on is on its own.
    pub fn clear_command(self) {
        self.0.fetch_and(!(PID | IN_GROUP), Ordering::SeqCst);
    }

    /// The pid of the command, once it is about to be executed.
    pub fn command(self) -> Option<i32> {
        i32::try_from(self.0.load(Ordering::SeqCst) & PID).ok().filter(|pid| *pid != 0)
    }

    /// Whether the command has joined the process group that it was to join.
    pub fn command_is_in_group(self) -> bool {
        self.0.load(Ordering::SeqCst) & IN_GROUP != 0
    }

    fn turn(self, to: u64) -> bool {
        let turned = self.0.compare_exchange(OPEN, to, Ordering::SeqCst, Ordering::SeqCst);
        turned.map_or_else(|is| is & to != 0, |_| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_either_shut_or_passed() {
        let gate = Gate::new(Box::leak(Box::default()));
        assert!(gate.shut() && gate.shut() && !gate.pass() && !gate.has_passed());
        gate.clear_command();
        assert!(!gate.pass(), "it stays shut");
        gate.reset();
        assert!(gate.pass() && gate.pass() && !gate.shut() && gate.has_passed());
    }

    #[test]
    fn it_says_who_has_passed() {
        let gate = Gate::new(Box::leak(Box::default()));
        assert!(gate.pass() && gate.command().is_none());
        gate.set_command(4_194_304, true);
        assert!(gate.command() == Some(4_194_304) && gate.command_is_in_group() && !gate.shut());
        gate.clear_command();
        assert!(gate.command().is_none() && !gate.command_is_in_group() && gate.has_passed());
    }
}
