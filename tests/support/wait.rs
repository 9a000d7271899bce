//! Bounded waits on a condition.

use std::time::{Duration, Instant};

/// How long anything may take that does not depend on the machine's speed; generous, since it is only waited
/// out by a test that fails.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);
const STEP: Duration = Duration::from_millis(4);

/// Asks `probe` again and again until it answers; a test that never gets its answer fails.
#[track_caller]
pub(crate) fn until<T>(what: &str, probe: impl FnMut() -> Option<T>) -> T {
    until_or_else(|| what.to_owned(), probe)
}

/// As [`until`], with `what` made up only in the end, when there is most to tell.
#[track_caller]
pub(crate) fn until_or_else<T>(what: impl FnOnce() -> String, probe: impl FnMut() -> Option<T>) -> T {
    until_within(LIMIT, what, probe)
}

/// As [`until_or_else`], with another limit.
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

/// As [`until`], for a plain condition.
#[track_caller]
pub(crate) fn until_true(what: &str, mut probe: impl FnMut() -> bool) {
    until(what, || probe().then_some(()));
}

/// Lets `length` pass because the promise under test is about time itself.
pub(crate) fn let_pass(length: Duration) {
    std::thread::sleep(length);
}
