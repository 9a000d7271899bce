//! The gate before the command: one word that front and keeper share.
//!
//! In one atomic step it decides whether the command starts or an ending signal came first. So the keeper need not ask
//! the front. Once it is passed it has the pid of the command.

use std::sync::atomic::{AtomicU64, Ordering};

const OPEN: u64 = 0;
/// The pid of the command, in the low bits.
const PID: u64 = (1 << 32) - 1;
/// The command has joined its process group.
const IN_GROUP: u64 = 1 << 32;
const SHUT: u64 = 1 << 33;
const PASSED: u64 = 1 << 34;

/// The shared word, with its states: open, shut or passed.
#[derive(Clone, Copy, Debug)]
pub struct Gate(&'static AtomicU64);

impl Gate {
    /// Uses `word`, which is zero: the gate is open.
    pub(super) fn new(word: &'static AtomicU64) -> Self {
        Self(word)
    }

    /// Opens it for another keeper.
    pub(super) fn reset(self) {
        self.0.store(OPEN, Ordering::SeqCst);
    }

    /// Shuts it, unless it is passed. Returns whether it is shut now.
    pub fn shut(self) -> bool {
        self.turn(SHUT)
    }

    /// Passes it, unless it is shut. Returns whether it is passed now. Set the guard instant first.
    pub fn pass(self) -> bool {
        self.turn(PASSED)
    }

    /// Returns whether it is passed.
    pub fn has_passed(self) -> bool {
        self.0.load(Ordering::SeqCst) & PASSED != 0
    }

    /// Sets the process that the hold is for: the command `pid`, which is about to execute and has joined its group or
    /// not, or the adopted process. Does not allocate.
    pub fn set_command(self, pid: i32, in_group: bool) {
        let group = if in_group { IN_GROUP } else { 0 };
        self.0.store(PASSED | group | u64::try_from(pid).unwrap_or(0), Ordering::SeqCst);
    }

    /// Clears that process: it was not executed, or runs on without the lock.
    pub fn clear_command(self) {
        self.0.fetch_and(!(PID | IN_GROUP), Ordering::SeqCst);
    }

    /// Returns the pid of the command, once it is about to execute, or of the adopted process.
    pub fn command(self) -> Option<i32> {
        i32::try_from(self.0.load(Ordering::SeqCst) & PID).ok().filter(|pid| *pid != 0)
    }

    /// Returns whether the command has joined its process group.
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
    fn gate_is_either_shut_or_passed() {
        let gate = Gate::new(Box::leak(Box::default()));
        assert!(gate.shut() && gate.shut() && !gate.pass() && !gate.has_passed());
        gate.clear_command();
        assert!(!gate.pass(), "it stays shut");
        gate.reset();
        assert!(gate.pass() && gate.pass() && !gate.shut() && gate.has_passed());
    }

    #[test]
    fn gate_returns_the_passed_command() {
        let gate = Gate::new(Box::leak(Box::default()));
        assert!(gate.pass() && gate.command().is_none());
        gate.set_command(4_194_304, true);
        assert!(gate.command() == Some(4_194_304) && gate.command_is_in_group() && !gate.shut());
        gate.clear_command();
        assert!(gate.command().is_none() && !gate.command_is_in_group() && gate.has_passed());
    }
}
