//! How late a promise may be seen to be kept.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::time::Duration;

/// What the whole machine, tests and servers included, may lose on the way to a promise: a stolen processor, a flushed
/// disk, everybody else's tests. What a test tells from a promise that is kept is never, or much later than this.
const SLACK: Duration = Duration::from_secs(5);

/// Whether promises are measured to the letter, on a machine that has nothing else to do. Who overlaps whom is exact
/// always, and told by no clock.
pub(crate) fn exact() -> bool {
    std::env::var_os("DLOCK_TEST_EXACT").is_some_and(|value| value == "1")
}

/// What is added to every promised time.
pub(crate) fn slack() -> Duration {
    if exact() { Duration::ZERO } else { SLACK }
}

/// What was promised within `promised` came in time.
#[track_caller]
pub(crate) fn within(took: Duration, promised: Duration) {
    let slack = slack();
    assert!(
        took <= promised + slack,
        "it took {took:?}, and {promised:?} are promised (slack here: {slack:?})"
    );
}
