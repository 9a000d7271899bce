//! The arithmetic of leases: until when a hold may be relied on, and when its end must begin.
//!
//! The allowance for clock drift, 1 % and 2 ms, is that of the Redlock algorithm
//! (<https://redis.io/docs/latest/develop/use/patterns/distributed-locks/>). Counting from before the request was sent
//! is the rule of the `DynamoDB` lock client.

use std::time::Duration;

use super::Moment;

/// The times that follow from a granted ttl and the wanted grace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseTimes {
    /// The granted length of the lease.
    pub ttl: Duration,
    /// The time between SIGTERM and SIGKILL when the lease expires.
    pub last_grace: Duration,
    /// The time reserved for SIGKILL to take effect.
    pub kill_budget: Duration,
}

impl LeaseTimes {
    /// The shortest ttl that dlock can keep.
    pub const LEAST_TTL: Duration = Duration::from_secs(1);

    /// Returns the times for a lease of `ttl` and a command with `grace` between SIGTERM and SIGKILL. For a shorter
    /// lease than [`LeaseTimes::LEAST_TTL`] they are the times of that.
    pub fn new(ttl: Duration, grace: Duration) -> Self {
        let ttl = ttl.max(Self::LEAST_TTL);
        let kill_budget = (ttl / 20).clamp(Duration::from_millis(100), Duration::from_secs(1));
        Self { ttl, last_grace: grace.min(ttl / 6), kill_budget }
    }

    /// Returns the times for a tree that must be found among all processes, which takes longer the more there are.
    #[must_use]
    pub fn for_search(self) -> Self {
        let kill_budget = (self.ttl / 8).clamp(Duration::from_millis(100), Duration::from_secs(2));
        Self { kill_budget, ..self }
    }

    /// Returns until when a lease counted from `from` certainly lasts, after drift.
    pub fn valid_until(&self, from: Moment) -> Moment {
        from + self.ttl.mul_f64(0.99).saturating_sub(Duration::from_millis(2))
    }

    /// Returns when to send SIGKILL, so that the tree is gone while the lease is valid: *the deadline*.
    pub fn kill_at(&self, from: Moment) -> Moment {
        self.valid_until(from) - self.kill_budget
    }

    /// Returns when to send SIGTERM, before the deadline.
    pub fn terminate_at(&self, from: Moment) -> Moment {
        self.kill_at(from) - self.last_grace
    }

    /// Returns the time between renewals, `per_ttl` of which fit into one ttl.
    pub fn renew_interval(&self, per_ttl: u32) -> Duration {
        self.ttl / per_ttl.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn defaults_as_documented() {
        let times = LeaseTimes::new(Duration::from_secs(30), Duration::from_secs(5));
        let from = Moment::from_nanos(0);
        assert_eq!(times.valid_until(from).since(from), Duration::from_millis(29_698));
        assert_eq!(times.kill_at(from).since(from), Duration::from_millis(28_698));
        assert_eq!(times.terminate_at(from).since(from), Duration::from_millis(23_698));
        assert_eq!(times.renew_interval(3), Duration::from_secs(10));
        assert_eq!(times.for_search().kill_at(from).since(from), Duration::from_millis(27_698));
    }

    proptest! {
        #[test]
        fn the_ladder_fits_between_two_renewals_and_the_end(ttl_ms in 1000u64..86_400_000, grace_ms in 0u64..100_000_000) {
            let times = LeaseTimes::new(Duration::from_millis(ttl_ms), Duration::from_millis(grace_ms));
            let from = Moment::from_nanos(1_000_000_000);
            let end = from + times.ttl;
            for times in [times, times.for_search()] {
                prop_assert!(times.terminate_at(from) <= times.kill_at(from));
                prop_assert!(times.kill_at(from) < times.valid_until(from));
                prop_assert!(times.valid_until(from) < end);
                // One renewal may fail, and the next one still comes before the ladder begins.
                prop_assert!(from + times.renew_interval(3) * 2 < times.terminate_at(from));
            }
        }
    }
}
