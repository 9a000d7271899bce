//! The tolerances of promised times.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::time::Duration;

/// The time that the whole machine, tests and servers included, may lose: a stolen processor, a flushed disk, other
/// tests. A broken promise takes far longer than this, or for ever.
const SLACK: Duration = Duration::from_secs(5);

/// Returns whether promises are measured to the letter, on a machine that has nothing else to do. Overlaps are always
/// judged exactly and without a clock.
pub(crate) fn exact() -> bool {
    std::env::var_os("DLOCK_TEST_EXACT").is_some_and(|value| value == "1")
}

/// Returns the time that is added to every promised time.
pub(crate) fn slack() -> Duration {
    if exact() { Duration::ZERO } else { SLACK }
}

/// Expects that an event promised within `promised` came in time.
#[track_caller]
pub(crate) fn within(took: Duration, promised: Duration) {
    let slack = slack();
    assert!(
        took <= promised + slack,
        "it took {took:?}, and {promised:?} are promised (slack here: {slack:?})"
    );
}
