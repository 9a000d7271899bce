//! The age of the last success, by a clock that may have been wrong.

use std::time::Duration;

/// How far in the future a success may be dated. The clocks of hosts differ, and so do those of servers after a
/// failover.
pub(crate) const AHEAD: Duration = Duration::from_secs(60);

/// Returns how long before `now` the successful run acquired; both by the same clock. `None` if that is further in the
/// future than [`AHEAD`] allows: a clock was wrong, and the age is unknown.
pub(crate) fn age(now: Duration, acquired: Duration) -> Option<Duration> {
    (acquired.saturating_sub(now) <= AHEAD).then(|| now.saturating_sub(acquired))
}

/// Returns the time to store after the success of a run that acquired at `acquired`: `known`, if that is later and
/// plausible.
pub(crate) fn latest(now: Duration, known: Duration, acquired: Duration) -> Duration {
    age(now, known).map_or(acquired, |_| known.max(acquired))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an instant some seconds after an arbitrary one.
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
    fn far_future_success_has_no_age() {
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
