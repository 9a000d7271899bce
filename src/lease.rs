//! Renews the lease of one claim on schedule, and computes how long the hold may be relied on.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::Claim;
use crate::clock::{Clock, jittered};
use crate::lock::validity::LeaseTimes;
use crate::lock::{Moment, Result};

/// The part of the ttl that may have passed since the last confirmed renewal when the command starts. With a service
/// that confirms a renewal by the next one, half of the ttl has usually passed.
const FRESH: f64 = 0.6;

/// Until when the hold may be relied on, and when dlock must stop the command.
///
/// [`LeaseRequest`] has the requested ttl, [`LeaseTimes`] the lengths that follow from the granted one. A window has
/// the moments, counted from the last proof of the hold. The keeper's machine wakes by them
/// ([`act_by`](crate::hold::machine::Machine::act_by)). The keeper also writes `guard_at` into the memory that it
/// shares with the front ([`set_guard_until`](crate::supervise::shared::Shared::set_guard_until)): the front acts then
/// if the keeper has not. The default is the window of a claim without a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Window {
    /// When SIGTERM is due. Never without a lease.
    pub terminate_at: Moment,
    /// Until when the command may be started. Later, a renewal must be confirmed first. [`Moment::NEVER`] without a lease.
    pub begin_until: Moment,
    /// When SIGKILL is due: the deadline. Never without a lease.
    pub kill_at: Moment,
    /// When the front acts in place of the keeper: later than the keeper, within the kill budget. Never without a
    /// lease.
    pub guard_at: Moment,
}

/// An attempt to renew. It returns when it was sent, and from when the ttl counts.
pub type Attempt = Pin<Box<dyn Future<Output = (Moment, Result<Moment>)> + Send>>;

/// The lease as requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseRequest {
    /// The requested ttl.
    pub ttl: Duration,
    /// The time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// How many renewals fit into one ttl.
    pub renewals_per_ttl: u32,
    /// Whether the claim ends with a lease. If not, the kernel keeps it for as long as its processes live.
    pub leased: bool,
    /// Whether the ender has to search all processes of the host for the tree, which takes longer.
    pub searched: bool,
}

/// Renews one claim on schedule and computes until when it is valid.
#[derive(Debug)]
pub struct LeaseKeeper {
    claim: Arc<dyn Claim>,
    clock: Clock,
    asked: LeaseRequest,
    /// From when the last confirmed ttl counts.
    from: Moment,
    /// When the next renewal is due.
    pub due: Moment,
}

impl LeaseKeeper {
    /// Creates a keeper for `claim`, whose ttl counts from `from`. A claim that the kernel keeps has no ttl; it is
    /// renewed as often as if it had the requested one.
    pub fn new(claim: Arc<dyn Claim>, clock: Clock, asked: LeaseRequest, from: Moment) -> Self {
        let mut keeper = Self { claim, clock, asked, from, due: from };
        keeper.due = from + keeper.renew_interval();
        keeper
    }

    /// Returns the times that follow from the granted ttl. If a service grants less than a second, the times are those
    /// of a second, but the claim expires after its own ttl: dlock then finds it lost.
    fn times(&self) -> LeaseTimes {
        let times = LeaseTimes::new(self.claim.ttl().unwrap_or(self.asked.ttl), self.asked.grace);
        if self.asked.searched { times.for_search() } else { times }
    }

    fn renew_interval(&self) -> Duration {
        self.times().renew_interval(self.asked.renewals_per_ttl)
    }

    /// Returns until when the hold may be relied on at present.
    pub fn window(&self) -> Window {
        let times = self.times();
        if !self.asked.leased {
            return Window::default();
        }
        let kill_at = times.kill_at(self.from);
        let guard_at = kill_at + times.kill_budget / 2;
        Window {
            terminate_at: times.terminate_at(self.from),
            begin_until: self.from + times.ttl.mul_f64(FRESH),
            kill_at,
            guard_at,
        }
    }

    /// Sends a renewal. Pass its answer to [`LeaseKeeper::conclude`]. It takes at most a sixth of the ttl. Keep the
    /// future until it completes: dropping it discards the answer.
    pub fn attempt(&self) -> Attempt {
        let claim = Arc::clone(&self.claim);
        let sent = self.clock.now();
        let deadline = sent + self.times().ttl / 6;
        Box::pin(async move { (sent, claim.renew(deadline).await) })
    }

    /// Returns the ttl that the times are computed from: the granted one, or a second if that is more.
    pub fn ttl(&self) -> Duration {
        self.times().ttl
    }

    /// Returns when the service may give the place to others, unless it confirms a renewal before.
    pub fn ends_at(&self) -> Moment {
        self.from + self.times().ttl
    }

    /// Returns how long a waiting claim pauses after a refusal: at most a tenth of the ttl.
    pub fn pause_after_refusal(&self) -> Duration {
        jittered(self.times().ttl / 10)
    }

    /// Takes the answer to an attempt that was sent at `sent`, and schedules the next one. After a failure that is a
    /// thirtieth of the ttl later. A claim that `waits` and was refused pauses longer, up to a tenth, since each
    /// attempt may be a login that counts against its user.
    ///
    /// Errors: that of the attempt.
    pub fn conclude(&mut self, (sent, answer): (Moment, Result<Moment>), waits: bool) -> Result<Window> {
        let times = self.times();
        match answer {
            Ok(from) => {
                // An answer never moves the promise back, nor beyond the beginning of the call.
                self.from = self.from.max(from.min(sent));
                // If the ttl counts from earlier than this renewal, less of it is left than usual: renew sooner.
                let interval = self.renew_interval();
                let usual = (self.from + interval * 2).max(sent + times.ttl / 30);
                self.due = usual.min(sent + interval);
                Ok(self.window())
            }
            Err(error) => {
                let now = self.clock.now();
                self.due = if waits && !error.is_transient() {
                    let next = now + self.pause_after_refusal();
                    // An attempt at the very end shows whether the place is lost.
                    if now < self.ends_at() { next.min(self.ends_at()) } else { next }
                } else {
                    now + times.ttl / 30
                };
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::os::fd::OwnedFd;
    use std::sync::Mutex;

    use async_trait::async_trait;

    use super::*;
    use crate::lock::{ClaimState, Error, ErrorKind};

    /// The service's reaction to one renewal, and how long it takes.
    #[derive(Clone, Copy, Debug)]
    enum Reply {
        Confirms(Duration),
        /// Confirms at once; the ttl counts from so long before.
        CountsFromBefore(Duration),
        Fails(Duration),
        Refuses,
        Never,
    }

    #[derive(Debug)]
    struct Scripted {
        clock: Clock,
        replies: Mutex<VecDeque<Reply>>,
        asked_at: Mutex<Vec<Moment>>,
    }

    #[async_trait]
    impl Claim for Scripted {
        fn ttl(&self) -> Option<Duration> {
            Some(Duration::from_secs(30))
        }
        async fn changed(&self, _: Option<&ClaimState>) -> Result<ClaimState> {
            std::future::pending().await
        }
        async fn renew(&self, deadline: Moment) -> Result<Moment> {
            let sent = self.clock.now();
            self.asked_at.lock().expect("not poisoned").push(sent);
            let reply = self.replies.lock().expect("not poisoned").pop_front();
            let failed = || Error::unavailable("no answer");
            match reply.unwrap_or(Reply::Confirms(Duration::ZERO)) {
                Reply::Confirms(after) => {
                    self.clock.sleep_until(sent + after).await;
                    Ok(sent)
                }
                Reply::CountsFromBefore(before) => Ok(sent - before),
                Reply::Fails(after) => {
                    self.clock.sleep_until(sent + after).await;
                    Err(failed())
                }
                Reply::Refuses => Err(Error::new(ErrorKind::Denied, "no")),
                Reply::Never => {
                    self.clock.sleep_until(deadline).await;
                    Err(failed())
                }
            }
        }
        async fn leave(&self, _: bool, _: Moment) -> Result<()> {
            Ok(())
        }
        fn anchors(&self) -> Result<Vec<OwnedFd>> {
            Ok(Vec::new())
        }
    }

    fn asked(leased: bool) -> LeaseRequest {
        let (ttl, grace) = (Duration::from_secs(30), Duration::from_secs(5));
        LeaseRequest { ttl, grace, renewals_per_ttl: 3, leased, searched: false }
    }

    fn keeper(replies: &[Reply]) -> (LeaseKeeper, Arc<Scripted>, Moment, Clock) {
        let clock = Clock::Runtime(tokio::time::Instant::now());
        let claim = Arc::new(Scripted {
            clock,
            replies: Mutex::new(replies.iter().copied().collect()),
            asked_at: Mutex::default(),
        });
        let from = clock.now();
        (LeaseKeeper::new(claim.clone(), clock, asked(true), from), claim, from, clock)
    }

    impl LeaseKeeper {
        async fn next(&mut self) -> Result<Window> {
            self.clock.sleep_until(self.due).await;
            let answer = self.attempt().await;
            self.conclude(answer, false)
        }
    }

    fn seconds_after(from: Moment, moments: &[Moment]) -> Vec<u64> {
        moments.iter().map(|m| m.since(from).as_secs()).collect()
    }

    /// An ensemble of `ZooKeeper` confirms each renewal with the next one.
    #[tokio::test(start_paused = true)]
    async fn lease_with_an_older_proof_is_renewed_sooner() {
        let before = |seconds| Reply::CountsFromBefore(Duration::from_secs(seconds));
        let (mut keeper, claim, from, _) = keeper(&[before(10), before(15), before(30), before(0)]);
        for _ in 0..5 {
            assert!(keeper.next().await.is_ok());
        }
        assert_eq!(seconds_after(from, &claim.asked_at.lock().expect("not poisoned")), [10, 20, 25, 26, 36]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_counts_from_when_it_was_asked_for() {
        let (mut keeper, _, from, _) = keeper(&[Reply::Confirms(Duration::from_secs(4))]);
        let window = keeper.next().await.expect("a confirmation was scripted");
        let sent = from + Duration::from_secs(10);
        assert_eq!(window.kill_at.since(sent), Duration::from_millis(28_698));
        assert_eq!(window.guard_at.since(window.kill_at), Duration::from_millis(500));
        assert_eq!(window.kill_at.since(window.terminate_at), Duration::from_secs(5));
        assert_eq!(window.begin_until.since(sent), Duration::from_secs(18));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_moves_nothing_and_is_tried_again_soon() {
        let failure = Reply::Fails(Duration::ZERO);
        let (mut keeper, claim, from, _) = keeper(&[failure, failure]);
        let before = keeper.window();
        for _ in 0..2 {
            assert!(keeper.next().await.is_err());
            assert_eq!(keeper.window(), before);
        }
        assert!(keeper.next().await.is_ok());
        assert_eq!(seconds_after(from, &claim.asked_at.lock().expect("not poisoned")), [10, 11, 12]);
    }

    #[tokio::test(start_paused = true)]
    async fn refused_waiter_renews_rarely_and_once_more_at_its_end() {
        let (mut keeper, claim, from, clock) = keeper(&[Reply::Refuses; 99]);
        while clock.now() < keeper.ends_at() {
            keeper.clock.sleep_until(keeper.due).await;
            let answer = keeper.attempt().await;
            assert!(keeper.conclude(answer, true).is_err());
        }
        assert_eq!(clock.now(), from + Duration::from_secs(30));
        let asked = claim.asked_at.lock().expect("not poisoned").clone();
        assert!((8..=15).contains(&asked.len()), "{asked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn silent_service_is_asked_three_times_before_termination() {
        let (mut keeper, claim, from, clock) = keeper(&[Reply::Never; 9]);
        let end = keeper.window().terminate_at;
        while clock.now() < end {
            assert!(keeper.next().await.is_err());
        }
        let asked = claim.asked_at.lock().expect("not poisoned").iter().filter(|at| **at < end).count();
        assert!(asked >= 3, "asked {asked} times before {:?}", end.since(from));
    }

    #[tokio::test(start_paused = true)]
    async fn claims_without_a_lease_have_no_deadline() {
        let (mut keeper, ..) = keeper(&[Reply::Fails(Duration::ZERO)]);
        keeper.asked = asked(false);
        for _ in 0..2 {
            let Window { terminate_at, begin_until, kill_at, guard_at } = keeper.window();
            assert!([terminate_at, begin_until, kill_at, guard_at].into_iter().all(Moment::is_never));
            let _failed = keeper.next().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_attempt_is_made_again() {
        let (mut keeper, claim, ..) = keeper(&[Reply::Never]);
        let cut_off = tokio::time::timeout(Duration::from_secs(11), keeper.next());
        assert!(cut_off.await.is_err());
        assert!(keeper.next().await.is_ok());
        assert_eq!(claim.asked_at.lock().expect("not poisoned").len(), 2);
    }
}
