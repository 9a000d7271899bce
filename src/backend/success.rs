//! How long ago a run succeeded, by a clock that may have been wrong.

use std::time::Duration;

/// How far ahead of the clock by which it is read a success may be dated: clocks of hosts differ, and those of servers that
/// take each other's place.
pub(crate) const AHEAD: Duration = Duration::from_secs(60);

/// How long before `now` the run acquired that was a success; both by the same clock. `None` if it is dated later than
/// [`AHEAD`] allows: some clock was wrong then, and nothing is known.
pub(crate) fn age(now: Duration, acquired: Duration) -> Option<Duration> {
    (acquired.saturating_sub(now) <= AHEAD).then(|| now.saturating_sub(acquired))
}

/// What is remembered once a run that acquired at `acquired` has succeeded: `known`, if that is later and tells anything.
pub(crate) fn latest(now: Duration, known: Duration, acquired: Duration) -> Duration {
    age(now, known).map_or(acquired, |_| known.max(acquired))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many seconds after some moment.
    fn at(seconds: u64) -> Duration {
        Duration::from_secs(1_000_000 + seconds)
    }

    #[test]
    fn an_age_is_never_negative() {
        assert_eq!(age(at(100), at(99)), Some(Duration::from_secs(1)));
        assert_eq!(age(at(100), at(101)), Some(Duration::ZERO));
        assert_eq!(age(at(100), at(100) + AHEAD), Some(Duration::ZERO));
    }

    #[test]
    fn a_success_that_is_dated_much_later_tells_nothing() {
        assert_eq!(age(at(100), at(101) + AHEAD), None);
        assert_eq!(age(at(100), Duration::MAX), None);
    }

    #[test]
    fn the_later_one_is_remembered_unless_it_tells_nothing() {
        assert_eq!(latest(at(100), at(99), at(98)), at(99));
        assert_eq!(latest(at(100), at(98), at(99)), at(99));
        assert_eq!(latest(at(100), at(100) + 2 * AHEAD, at(99)), at(99));
    }
}
