//! Reading a queue again and again until it changes.

use std::time::Duration;

use super::change::{DocumentStore, seen};
use super::store::only;
use crate::backend::claim_state::patience;
use crate::backend::observe::LOOK;
use crate::clock::{Alarm, jittered};
use crate::lock::{LockName, Moment};
use crate::net::fault::FaultResult;
use crate::queue::store::{Own, Seen, Watched};
use crate::sync::locked;

/// The shortest interval.
const LEAST: Duration = Duration::from_millis(50);
/// The longest interval.
const MOST: Duration = Duration::from_secs(1);

/// Returns the time until the next read after so many reads that found the queue unchanged, for a claim with so many
/// `ahead`: short after a change, then longer, and longer from the beginning with many ahead. A holder, without any,
/// gains nothing by haste. It is random, to spread the reads of many claims.
fn interval(ahead: Option<usize>, unchanged: u32) -> Duration {
    let wanted = ahead.map_or(MOST, |ahead| {
        let first = LEAST * u32::try_from(ahead.clamp(1, 20)).unwrap_or(1);
        first * 2u32.pow(unchanged.min(10) / 2)
    });
    jittered(wanted.min(MOST)).max(LEAST)
}

impl DocumentStore {
    /// Returns the number of entries ahead of `own`, and when the next other claim is dead.
    fn outlook(&self, name: &LockName, own: Option<&Own>) -> (usize, Moment) {
        let watches = locked(&self.watches);
        let both = watches
            .get(name)
            .zip(own)
            .and_then(|(watch, own)| Some((watch.ahead(own.id)?, watch.next_death(own.id))));
        both.unwrap_or((1, Moment::NEVER))
    }

    /// Reads until the queue differs from what `seen` shows.
    pub(super) async fn poll(&self, watched: Watched<'_>, before: Seen) -> FaultResult<()> {
        let (name, own, holds) = match watched {
            Watched::Claim { own, on } => {
                (only(&own.names)?, Some(own), on.is_empty() && !own.keys.is_empty())
            }
            Watched::Queue(name) => (name, None, false),
        };
        let (mut unchanged, mut alarm) = (0, Alarm::default());
        loop {
            let now = self.clock.now();
            let (ahead, death) = self.outlook(name, own);
            let next = now + interval((!holds).then_some(ahead), unchanged);
            let ends = own.map_or(Moment::NEVER, |own| self.expires(own.id));
            // Not at once after a death, in case the removal of a dead claim failed.
            alarm.sleep_until(self.clock, next.min(death.max(now + LEAST)).min(ends)).await;
            let soon = self.clock.now() + own.map_or(LOOK, |own| patience(own.ttl));
            let found = self.look(name, soon.min(ends)).await?;
            let (_, death) = self.outlook(name, own);
            let now = self.clock.now();
            if seen(&found, own) != before || now >= death || now >= ends {
                return Ok(());
            }
            unchanged += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_interval_grows_within_bounds() {
        for unchanged in 0..40 {
            let next = interval(Some(1), unchanged);
            assert!(next >= LEAST && next <= MOST, "{next:?}");
        }
        assert!(interval(Some(1), 0) <= LEAST * 2 && interval(Some(1), 20) >= MOST / 2);
        assert!(interval(Some(500), 0) >= MOST / 2 && interval(None, 0) >= MOST / 2);
    }

    #[test]
    fn two_claims_do_not_keep_step() {
        let times = || -> Vec<Duration> { (0..8).map(|_| interval(None, 0)).collect() };
        assert_ne!(times(), times());
    }
}
