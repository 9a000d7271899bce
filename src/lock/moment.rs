//! Instants on the clock that includes suspend.

use std::ops::{Add, Sub};
use std::time::Duration;

/// An instant on `CLOCK_BOOTTIME`, in nanoseconds since the host started.
///
/// `std::time::Instant` stops while the host is suspended, and a lease does not, so no decision about a lease may use
/// it. [`crate::clock::Clock`] reads the clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Moment(u64);

impl Moment {
    /// Later than every instant that occurs: "no deadline".
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns the instant `nanos` nanoseconds after the host started.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the host started.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns how long before `self` the instant `earlier` was; zero if it was not before.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns whether this is [`Moment::NEVER`].
    pub const fn is_never(self) -> bool {
        self.0 == u64::MAX
    }
}

impl Default for Moment {
    /// Returns [`Moment::NEVER`].
    fn default() -> Self {
        Self::NEVER
    }
}

fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Moment {
    type Output = Self;
    /// Saturates at [`Moment::NEVER`].
    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(nanos(length)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;
    /// Saturates at the start of the host; [`Moment::NEVER`] remains unchanged.
    fn sub(self, length: Duration) -> Self {
        if self.is_never() { self } else { Self(self.0.saturating_sub(nanos(length))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Moment::from_nanos(5) - Duration::from_secs(1), Moment::from_nanos(0));
        assert_eq!(Moment::from_nanos(5) + Duration::MAX, Moment::NEVER);
        assert_eq!(Moment::NEVER - Duration::from_secs(9), Moment::NEVER);
        assert_eq!(Moment::from_nanos(3).since(Moment::from_nanos(8)), Duration::ZERO);
    }
}
