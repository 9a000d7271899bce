//! The intervals between reads.

use std::time::Duration;

use crate::lock::ClaimId;

/// The shortest interval.
const LEAST: Duration = Duration::from_millis(50);
/// The longest interval.
const MOST: Duration = Duration::from_secs(1);

/// Intervals between reads: shortest after a change of the queue, then longer while nothing changes. A claim with many
/// ahead begins with longer ones. They are randomised, to spread the reads of many claims.
#[derive(Debug)]
pub(super) struct Pace {
    random: u64,
    quiet: u32,
}

impl Pace {
    pub(super) fn new(id: ClaimId) -> Self {
        let bytes = id.to_number().to_be_bytes();
        let half = |at: usize| u64::from_be_bytes(std::array::from_fn(|n| bytes[at + n]));
        Self { random: (half(0) ^ half(8)) | 1, quiet: 0 }
    }

    /// Restarts after a change of the queue.
    pub(super) fn changed(&mut self) {
        self.quiet = 0;
    }

    /// Returns the time until the next read of a claim with so many `ahead`. A holder, without any, gains nothing by
    /// haste.
    pub(super) fn next(&mut self, ahead: Option<usize>) -> Duration {
        let wanted = match ahead {
            None => MOST,
            Some(ahead) => {
                let first = LEAST * u32::try_from(ahead.clamp(1, 20)).unwrap_or(1);
                first * 2u32.pow(self.quiet.min(10) / 2)
            }
        };
        self.quiet = self.quiet.saturating_add(1);
        // xorshift64
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let share = u32::try_from(self.random % 256).unwrap_or(0);
        // Between three quarters of `wanted` and all of it.
        wanted.min(MOST).mul_f64(0.75 + f64::from(share) / 1024.0).max(LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_interval_grows_within_bounds_and_shrinks_on_change() {
        let mut pace = Pace::new(ClaimId::from_number(99));
        let first = pace.next(Some(1));
        assert!(first >= LEAST && first <= LEAST * 2, "{first:?}");
        for _ in 0..40 {
            let next = pace.next(Some(1));
            assert!(next >= LEAST && next <= MOST, "{next:?}");
        }
        pace.changed();
        assert!(pace.next(Some(1)) <= LEAST * 2);
        assert!(pace.next(Some(500)) > MOST / 2 && pace.next(None) > MOST / 2);
    }

    #[test]
    fn two_claims_do_not_keep_step() {
        let (mut one, mut two) = (Pace::new(ClaimId::from_number(1)), Pace::new(ClaimId::from_number(2)));
        let times = |pace: &mut Pace| -> Vec<Duration> { (0..8).map(|_| pace.next(None)).collect() };
        assert_ne!(times(&mut one), times(&mut two));
    }
}
