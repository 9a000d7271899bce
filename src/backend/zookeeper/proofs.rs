//! The renewals of a session that count.

use std::collections::VecDeque;
use std::time::Duration;

use crate::lock::Moment;
use crate::lock::validity::LeaseTimes;

/// The times at which confirmed renewals were sent.
#[derive(Debug)]
pub(super) struct Proofs {
    /// The servers' tick, once that is known; zero for a single server, of which the last renewal counts.
    pub(super) tick: Option<Duration>,
    /// The ttl that was granted last.
    pub(super) ttl: Duration,
    sent: VecDeque<Moment>,
    /// Whether a shorter ttl was granted later, by which the keeper may not renew yet.
    pub(super) regranted: bool,
}

impl Proofs {
    pub(super) fn new(begun: Moment, ttl: Duration) -> Self {
        Self { tick: None, ttl, sent: VecDeque::from([begun]), regranted: false }
    }

    /// Returns how long before the last renewal another must have been sent to be known to the leader: a tick, which is
    /// twice the interval of the followers' reports. A ttl has two ticks or more, unless configured otherwise.
    fn apart(&self) -> Duration {
        match self.tick {
            Some(Duration::ZERO) => Duration::ZERO,
            tick => tick.unwrap_or(self.ttl / 2).max(self.ttl / 5),
        }
    }

    /// Adds a renewal.
    ///
    /// A follower reports live sessions to the leader only at intervals. If it is cut off in between, the leader counts
    /// from an earlier time. So in an ensemble an earlier renewal counts, which is at least [`Proofs::apart`] older
    /// than the last one.
    pub(super) fn add(&mut self, sent: Moment) {
        if self.last() < sent {
            self.sent.push_back(sent);
        }
        let apart = self.apart();
        while self.sent.len() > 2 && sent.since(self.sent[1]) >= apart {
            self.sent.pop_front();
        }
    }

    /// Returns the moment from which the ttl certainly counts.
    pub(super) fn counts_from(&self) -> Moment {
        let (last, apart) = (self.last(), self.apart());
        let told = self.sent.iter().rev().find(|sent| last.since(**sent) >= apart);
        *told.unwrap_or(&self.sent[0])
    }

    fn last(&self) -> Moment {
        self.sent[self.sent.len() - 1]
    }

    /// Records that a server granted `ttl` to the resumed session, requested at `asked`. The claim's ttl never becomes
    /// longer: until the next renewal, that server may be cut off from the others.
    pub(super) fn regrant(&mut self, ttl: Duration, asked: Moment) {
        if ttl < self.ttl {
            let promised = self.counts_from() + self.ttl;
            self.sent = VecDeque::from([asked.min(promised - ttl)]);
            (self.ttl, self.regranted) = (ttl, true);
        }
    }

    /// Returns when the session is over without renewals. If the keeper does not know the ttl yet, returns when its
    /// command must be killed.
    pub(super) fn ends(&self) -> Moment {
        let terms = LeaseTimes::new(self.ttl, Duration::ZERO);
        if self.regranted { terms.kill_at(self.last()) } else { self.last() + self.ttl }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(1_000_000_000 * seconds)
    }

    const SINGLE: Option<Duration> = Some(Duration::ZERO);

    fn counted(tick: Option<Duration>, sent: &[u64]) -> Moment {
        let mut proofs = Proofs::new(at(100), Duration::from_secs(20));
        proofs.tick = tick;
        for seconds in sent {
            proofs.add(at(*seconds));
        }
        proofs.counts_from()
    }

    #[test]
    fn behind_a_follower_the_renewal_before_the_last_counts() {
        let tick = Some(Duration::from_secs(2));
        assert_eq!(counted(tick, &[]), at(100));
        assert_eq!(counted(tick, &[105]), at(100));
        assert_eq!(counted(tick, &[105, 110, 115]), at(110));
        assert_eq!(counted(tick, &[105, 106, 107, 108]), at(100), "too close to the last");
        assert_eq!(counted(tick, &[105, 106, 107, 112]), at(107));
        assert_eq!(counted(SINGLE, &[105, 106]), at(106));
        assert_eq!(counted(None, &[105, 110, 115]), at(105), "the tick may be half of the ttl");
    }

    #[test]
    fn in_a_short_lease_a_tick_must_have_passed() {
        let mut proofs = Proofs::new(at(100), Duration::from_secs(20));
        proofs.tick = Some(Duration::from_secs(10));
        for (sent, from) in [(105, 100), (110, 100), (115, 105), (120, 110)] {
            proofs.add(at(sent));
            assert_eq!(proofs.counts_from(), at(from), "{sent}");
        }
    }

    #[test]
    fn new_grant_counts_from_its_request_and_prolongs_nothing() {
        let regranted = |ttl: u64, asked: u64| {
            let mut proofs = Proofs::new(at(100), Duration::from_secs(20));
            proofs.tick = SINGLE;
            proofs.add(at(105));
            proofs.regrant(Duration::from_secs(ttl), at(asked));
            (proofs.counts_from(), proofs)
        };
        let (from, mut proofs) = regranted(4, 110);
        assert_eq!(from, at(110));
        assert!(proofs.ends() < at(114) && proofs.regranted, "the command has to be gone by then");
        proofs.add(at(111));
        assert_eq!(proofs.counts_from(), at(111));
        assert!(proofs.ends() < at(115));
        assert_eq!(regranted(4, 124).0, at(121), "no longer than was promised");
        for ttl in [20, 30] {
            let mut proofs = Proofs::new(at(100), Duration::from_secs(20));
            proofs.regrant(Duration::from_secs(ttl), at(101));
            assert!(!proofs.regranted && proofs.ttl.as_secs() == 20, "{ttl}");
        }
    }

    #[test]
    fn counted_moment_never_goes_back() {
        for tick in [None, SINGLE, Some(Duration::from_secs(2))] {
            let mut proofs = Proofs::new(at(0), Duration::from_secs(20));
            proofs.tick = tick;
            let mut last = proofs.counts_from();
            for seconds in [1, 2, 3, 3, 9, 10, 15, 15, 30, 31, 32, 33, 34, 35, 60] {
                proofs.add(at(seconds));
                assert!(proofs.counts_from() >= last, "{seconds}");
                last = proofs.counts_from();
                assert_eq!(proofs.ends(), at(seconds) + Duration::from_secs(20));
            }
        }
    }
}
