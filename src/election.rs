//! Elections, on top of an exclusive claim and its label.
//!
//! To campaign is to enter the queue of a lock with an exclusive claim. The claim that holds leads: its hold is the
//! term, its token the number of the term, its label the value that observers see. To resign is to release.

use std::time::Duration;

use crate::lock::{Entry, LockStatus, Mode};

/// A shorter term counts as failed at once.
const WHOLE_TERM: Duration = Duration::from_secs(10);
/// The first and the longest pause after a term that failed at once.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Returns the leader, if there is one: the claim that holds the lock exclusively, or an entry of another program with
/// no known mode.
pub fn leader(queue: &LockStatus) -> Option<&Entry> {
    queue.holders.first().filter(|entry| entry.mode.is_none_or(|mode| mode == Mode::Exclusive))
}

/// Returns how long to wait before the next campaign, given the length of the last term and the pause before it.
pub fn pause_after(term: Duration, before: Duration) -> Duration {
    if term >= WHOLE_TERM { Duration::ZERO } else { (before * 2).clamp(PAUSES.0, PAUSES.1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_a_minute_and_end_with_a_whole_term() {
        let s = Duration::from_secs;
        let mut pause = Duration::ZERO;
        for wanted in [1, 2, 4, 8, 16, 32, 60, 60] {
            pause = pause_after(Duration::from_millis(9_999), pause);
            assert_eq!(pause, s(wanted));
        }
        assert_eq!(pause_after(s(10), pause), Duration::ZERO);
    }
}
