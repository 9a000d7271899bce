//! What front and keeper share in memory: the guard instant, the gate before the command, whether it was executed,
//! how it ended, and what a keeper that dies would leave behind.
//!
//! The gate decides, in one atomic step, whether the command starts or an ending signal came first, so that the
//! keeper need not ask a front that is there anyway.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::exit_status::ExitStatus;
use super::signals::Signal;
use super::{sys, wait};
use crate::lock::Moment;

const OPEN: u64 = 0;
const SHUT: u64 = 1;
const PASSED: u64 = 2;

const EXITED: u64 = 0x100;
const SIGNALED: u64 = 0x200;

/// How often the front was stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StopCount(u64);

impl StopCount {
    /// Their number, modulo 128.
    pub fn number(self) -> u8 {
        u8::try_from(self.0 / 2 % 128).unwrap_or(0)
    }
}

/// The shared words.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    guard: &'static AtomicU64,
    gate: &'static AtomicU64,
    outcome: &'static AtomicU64,
    abandoned: [&'static AtomicU64; 2],
    command: &'static AtomicU64,
    stopping: &'static AtomicU64,
    stops: &'static AtomicU64,
}

impl Shared {
    /// Fresh words: no guard instant, the gate open.
    pub fn new() -> io::Result<Self> {
        let [guard, gate, outcome, high, low, command, stopping, stops] = sys::shared_words()?;
        Ok(Self { guard, gate, outcome, abandoned: [high, low], command, stopping, stops })
    }

    /// As fresh, for another keeper; the old one must be gone.
    pub fn reset(&self) {
        self.guard.store(0, Ordering::SeqCst);
        self.gate.store(OPEN, Ordering::SeqCst);
        self.outcome.store(0, Ordering::SeqCst);
        self.command.store(0, Ordering::SeqCst);
        self.stopping.store(0, Ordering::SeqCst);
        self.stops.store(0, Ordering::SeqCst);
        self.would_abandon(0);
    }

    /// Where the command says that it is about to be executed; see [`super::launch::Exec::started`].
    pub fn started_word(&self) -> &'static AtomicU64 {
        self.command
    }

    /// The pid of the command, once it is about to be executed.
    pub fn command(&self) -> Option<i32> {
        let pid = self.command.load(Ordering::SeqCst) & (sys::IN_GROUP - 1);
        i32::try_from(pid).ok().filter(|pid| *pid != 0)
    }

    /// Says that the lock is held for the process `pid`, which was there before and stands in the place of a command.
    pub fn set_command(&self, pid: i32) {
        self.command.store(u64::try_from(pid).unwrap_or(0), Ordering::SeqCst);
    }

    /// Says that nothing is held for a command any more: what goes on is on its own.
    pub fn clear_command(&self) {
        self.command.store(0, Ordering::SeqCst);
    }

    /// Whether the command has joined the process group that it was to join.
    pub fn command_is_in_group(&self) -> bool {
        self.command.load(Ordering::SeqCst) & sys::IN_GROUP != 0
    }

    /// Says that the keeper ends the command of its own accord: what it does from now on is not its work.
    pub fn set_stopping(&self) {
        self.stopping.store(1, Ordering::SeqCst);
    }

    /// Whether the keeper has begun to end the command of its own accord.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst) != 0
    }

    /// Stops the front by `stop`, and counts it: the word is odd meanwhile.
    pub fn stopping_the_front(&self, stop: impl FnOnce()) {
        self.stops.fetch_add(1, Ordering::SeqCst);
        stop();
        self.stops.fetch_add(1, Ordering::SeqCst);
    }

    /// How often the keeper has stopped the front. One that is under way makes it differ from what it was and will be.
    pub fn stops(&self) -> StopCount {
        StopCount(self.stops.load(Ordering::SeqCst))
    }

    /// The same once a stop that is under way, which ends with this process being stopped, is over. That is not waited for
    /// long: the keeper may have died in the middle.
    pub fn settled_stops(&self) -> StopCount {
        for _ in 0..20 {
            if self.stops().0.is_multiple_of(2) {
                break;
            }
            wait::pause(Duration::from_millis(1));
        }
        self.stops()
    }

    /// Says by what number the keeper is known where it leaves something that outlives it; 0 for nothing.
    pub fn would_abandon(&self, number: u128) {
        let [high, low] = self.abandoned;
        // A keeper that dies between the two words leaves a number that no claim has.
        high.store(u64::try_from(number >> 64).unwrap_or(0), Ordering::SeqCst);
        low.store(u64::try_from(number & u128::from(u64::MAX)).unwrap_or(0), Ordering::SeqCst);
    }

    /// What the keeper last said so.
    pub fn abandoned(&self) -> Option<u128> {
        let [high, low] = self.abandoned.map(|word| u128::from(word.load(Ordering::SeqCst)));
        Some(high << 64 | low).filter(|number| *number != 0)
    }

    /// When the front ends the command, unless the keeper moves this on.
    pub fn guard_until(&self) -> Moment {
        Moment::from_nanos(self.guard.load(Ordering::SeqCst))
    }

    /// Moves the guard instant.
    pub fn set_guard_until(&self, when: Moment) {
        self.guard.store(when.as_nanos(), Ordering::SeqCst);
    }

    /// Shuts the gate, if the command has not passed it; whether it is shut now.
    pub fn shut(&self) -> bool {
        self.turn(SHUT)
    }

    /// Passes the gate with the command, if it is not shut; whether it is passed now. The guard instant must be
    /// set before.
    pub fn pass(&self) -> bool {
        self.turn(PASSED)
    }

    /// Whether the command has passed the gate.
    pub fn has_passed(&self) -> bool {
        self.gate.load(Ordering::SeqCst) == PASSED
    }

    /// Publishes how the command ended.
    pub fn set_outcome(&self, outcome: ExitStatus) {
        let word = match outcome {
            ExitStatus::Exited(status) => EXITED | u64::from(status),
            ExitStatus::Signaled(signal) => SIGNALED | u64::try_from(signal.number()).unwrap_or(0),
        };
        self.outcome.store(word, Ordering::SeqCst);
    }

    /// How the command ended, if it has.
    pub fn outcome(&self) -> Option<ExitStatus> {
        let word = self.outcome.load(Ordering::SeqCst);
        let [small, ..] = word.to_le_bytes();
        match word & !0xff {
            EXITED => Some(ExitStatus::Exited(small)),
            SIGNALED => Signal::new(i32::from(small)).map(ExitStatus::Signaled),
            _ => None,
        }
    }

    fn turn(&self, to: u64) -> bool {
        let turned = self.gate.compare_exchange(OPEN, to, Ordering::SeqCst, Ordering::SeqCst);
        turned.is_ok() || turned == Err(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_is_either_shut_or_passed() {
        let shared = Shared::new().expect("a page");
        assert!(shared.shut() && shared.shut() && !shared.pass() && !shared.has_passed());
        shared.reset();
        assert!(shared.pass() && shared.pass() && !shared.shut() && shared.has_passed());
    }

    #[test]
    fn what_is_abandoned_is_known_until_the_next_keeper() {
        let shared = Shared::new().expect("a page");
        assert_eq!(shared.abandoned(), None);
        shared.would_abandon(7 << 64 | 9);
        assert_eq!(shared.abandoned(), Some(7 << 64 | 9));
        shared.reset();
        assert_eq!(shared.abandoned(), None);
    }

    #[test]
    fn outcomes_come_back() {
        let shared = Shared::new().expect("a page");
        assert_eq!(shared.outcome(), None);
        for outcome in [ExitStatus::Exited(0), ExitStatus::Exited(255), ExitStatus::Signaled(Signal::KILL)] {
            shared.set_outcome(outcome);
            assert_eq!(shared.outcome(), Some(outcome));
        }
    }
}
