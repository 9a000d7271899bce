//! The memory that front and keeper share: the guard instant, the gate, how the command ended, how many claim ids the
//! keeper has taken, and how often it has stopped the front.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use super::exit_status::ExitStatus;
use super::gate::Gate;
use super::signals::Signal;
use super::sys;
use crate::lock::Moment;

const EXITED: u64 = 0x100;
const SIGNALED: u64 = 0x200;
/// In place of an outcome: the command's status is not its result.
const STOPPING: u64 = 0x300;

/// The shared words, and the random number of this run.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    /// The gate before the command.
    pub gate: Gate,
    guard: &'static AtomicU64,
    outcome: &'static AtomicU64,
    stops: &'static AtomicU64,
    /// How many numbers were taken.
    taken: &'static AtomicU64,
    drawn: u128,
}

impl Shared {
    /// Maps fresh words: no guard instant, the gate open.
    ///
    /// Errors: the system has no memory or no random bytes.
    pub fn new() -> io::Result<Self> {
        let [gate, guard, outcome, stops, taken] = sys::shared_words()?;
        let drawn = u128::from_be_bytes(sys::random()?);
        Ok(Self { gate: Gate::new(gate), guard, outcome, stops, taken, drawn })
    }

    /// Resets the words for another keeper, after the old one is gone. Its numbers stay taken.
    pub fn reset(&self) {
        self.gate.reset();
        for word in [self.guard, self.outcome, self.stops] {
            word.store(0, Ordering::SeqCst);
        }
    }

    /// Takes a number that no keeper of this run had before: the id of its next claim, which may outlive it.
    pub fn take_number(&self) -> u128 {
        self.numbered(self.taken.fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// Returns the number that was taken last.
    pub fn number(&self) -> Option<u128> {
        let taken = self.taken.load(Ordering::SeqCst);
        (taken > 0).then(|| self.numbered(taken))
    }

    /// Differs in the first eight digits, which messages show.
    fn numbered(&self, taken: u64) -> u128 {
        self.drawn ^ u128::from(taken) << 96
    }

    /// Notes that the status of the command is not its result from then on: the keeper stops it for a reason of dlock's
    /// own, or the end of its tree counts.
    pub fn set_stopping(&self) {
        let _has_ended = self.outcome.compare_exchange(0, STOPPING, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Returns whether that is so, and no outcome is known.
    pub fn is_stopping(&self) -> bool {
        self.outcome.load(Ordering::SeqCst) == STOPPING
    }

    /// Counts a stop of the front. Call it before the stop: the front compares the count with that of its signals.
    pub fn count_stop(&self) {
        self.stops.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns how often the keeper has stopped the front, modulo 128.
    pub fn stops(&self) -> u8 {
        u8::try_from(self.stops.load(Ordering::SeqCst) % 128).unwrap_or(0)
    }

    /// Returns when the front kills the command, unless the keeper moves this on.
    pub fn guard_until(&self) -> Moment {
        Moment::from_nanos(self.guard.load(Ordering::SeqCst))
    }

    /// Moves the guard instant.
    pub fn set_guard_until(&self, when: Moment) {
        self.guard.store(when.as_nanos(), Ordering::SeqCst);
    }

    /// Publishes how the command ended, in case the keeper dies before it can send that.
    pub fn set_outcome(&self, outcome: ExitStatus) {
        let word = match outcome {
            ExitStatus::Exited(status) => EXITED | u64::from(status),
            ExitStatus::Signaled(signal) => SIGNALED | u64::try_from(signal.number()).unwrap_or(0),
        };
        self.outcome.store(word, Ordering::SeqCst);
    }

    /// Returns how the command ended, if it has.
    pub fn outcome(&self) -> Option<ExitStatus> {
        let word = self.outcome.load(Ordering::SeqCst);
        let [small, ..] = word.to_le_bytes();
        match word & !0xff {
            EXITED => Some(ExitStatus::Exited(small)),
            SIGNALED => Signal::new(i32::from(small)).map(ExitStatus::Signaled),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ_at_their_beginning_and_outlive_a_keeper() {
        let shared = Shared::new().expect("a page");
        assert_eq!(shared.number(), None);
        let first = shared.take_number();
        shared.reset();
        assert_eq!(shared.number(), Some(first));
        let second = shared.take_number();
        assert!(first >> 96 != second >> 96 && shared.number() == Some(second));
    }

    #[test]
    fn outcomes_come_back_and_the_first_word_on_the_end_counts() {
        let shared = Shared::new().expect("a page");
        assert_eq!(shared.outcome(), None);
        for outcome in [ExitStatus::Exited(0), ExitStatus::Exited(255), ExitStatus::Signaled(Signal::KILL)] {
            shared.set_outcome(outcome);
            shared.set_stopping();
            assert!(shared.outcome() == Some(outcome) && !shared.is_stopping());
        }
        shared.reset();
        shared.set_stopping();
        assert!(shared.outcome().is_none() && shared.is_stopping());
    }
}
