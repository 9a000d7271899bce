//! Bounded waits on a condition.

use std::time::{Duration, Instant};

/// The time limit for anything that does not depend on the machine's speed. It is generous, since only a failing test
/// waits for all of it.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);
const STEP: Duration = Duration::from_millis(4);

/// Calls `probe` until it returns a value. The test fails if that does not happen in time.
#[track_caller]
pub(crate) fn until<T>(what: &str, probe: impl FnMut() -> Option<T>) -> T {
    until_or_else(|| what.to_owned(), probe)
}

/// Does the same as [`until`]. `what` is called only for the message of a failure, when the most is known.
#[track_caller]
pub(crate) fn until_or_else<T>(what: impl FnOnce() -> String, probe: impl FnMut() -> Option<T>) -> T {
    until_within(LIMIT, what, probe)
}

/// Does the same as [`until_or_else`] with another limit.
#[track_caller]
pub(crate) fn until_within<T>(
    limit: Duration,
    what: impl FnOnce() -> String,
    mut probe: impl FnMut() -> Option<T>,
) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = probe() {
            return answer;
        }
        assert!(begun.elapsed() < limit, "waited {limit:?} for this, in vain: {}", what());
        std::thread::sleep(STEP);
    }
}

/// Asks every `step` whether a condition holds, for `limit` at most. Returns whether it came to hold.
pub(crate) fn holds_within(limit: Duration, step: Duration, mut probe: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !probe() {
        if begun.elapsed() > limit {
            return false;
        }
        std::thread::sleep(step);
    }
    true
}

/// Does the same as [`until`] for a condition.
#[track_caller]
pub(crate) fn until_true(what: &str, mut probe: impl FnMut() -> bool) {
    until(what, || probe().then_some(()));
}

/// Lets `length` pass because the promise under test is about time itself.
pub(crate) fn let_pass(length: Duration) {
    std::thread::sleep(length);
}
