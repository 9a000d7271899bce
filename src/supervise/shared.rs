//! What front and keeper share in memory: the guard instant, the gate before the command, how that ended, by what number the
//! keeper is known elsewhere, and how often it has stopped the front.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use super::exit_status::ExitStatus;
use super::gate::Gate;
use super::signals::Signal;
use super::sys;
use crate::lock::Moment;

const EXITED: u64 = 0x100;
const SIGNALED: u64 = 0x200;
/// In the place of an outcome: the keeper has begun to end the command.
const STOPPING: u64 = 0x300;

/// The shared words, and the number that this run has drawn.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    /// The way to the command.
    pub gate: Gate,
    guard: &'static AtomicU64,
    outcome: &'static AtomicU64,
    stops: &'static AtomicU64,
    /// How many numbers were taken.
    taken: &'static AtomicU64,
    drawn: u128,
}

impl Shared {
    /// Fresh words: no guard instant, the gate open.
    ///
    /// Errors: the system has no memory, or no randomness.
    pub fn new() -> io::Result<Self> {
        let [gate, guard, outcome, stops, taken] = sys::shared_words()?;
        let drawn = u128::from_be_bytes(sys::random()?);
        Ok(Self { gate: Gate::new(gate), guard, outcome, stops, taken, drawn })
    }

    /// As fresh, for another keeper; the old one must be gone. Its numbers stay taken.
    pub fn reset(&self) {
        self.gate.reset();
        for word in [self.guard, self.outcome, self.stops] {
            word.store(0, Ordering::SeqCst);
        }
    }

    /// Takes a number by which the keeper will be known where it leaves something that outlives it: another one each time.
    pub fn take_number(&self) -> u128 {
        self.numbered(self.taken.fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// The number that was taken last.
    pub fn number(&self) -> Option<u128> {
        let taken = self.taken.load(Ordering::SeqCst);
        (taken > 0).then(|| self.numbered(taken))
    }

    /// Numbers differ in what people write of them, their first eight digits.
    fn numbered(&self, taken: u64) -> u128 {
        self.drawn ^ u128::from(taken) << 96
    }

    /// Says that the keeper ends the command of its own accord: what it does from now on is not its work.
    pub fn set_stopping(&self) {
        let _has_ended = self.outcome.compare_exchange(0, STOPPING, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Whether the keeper has begun to end the command of its own accord, before that had ended.
    pub fn is_stopping(&self) -> bool {
        self.outcome.load(Ordering::SeqCst) == STOPPING
    }

    /// Counts a stop of the front by the keeper, before it: what the front takes once it has been stopped is of after that.
    pub fn count_stop(&self) {
        self.stops.fetch_add(1, Ordering::SeqCst);
    }

    /// How often the keeper has stopped the front, modulo 128.
    pub fn stops(&self) -> u8 {
        u8::try_from(self.stops.load(Ordering::SeqCst) % 128).unwrap_or(0)
    }

    /// When the front ends the command, unless the keeper moves this on.
    pub fn guard_until(&self) -> Moment {
        Moment::from_nanos(self.guard.load(Ordering::SeqCst))
    }

    /// Moves the guard instant.
    pub fn set_guard_until(&self, when: Moment) {
        self.guard.store(when.as_nanos(), Ordering::SeqCst);
    }

    /// Publishes how the command ended, should the keeper not live to tell it.
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
