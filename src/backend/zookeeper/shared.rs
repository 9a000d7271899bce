//! What the parts of a claim share.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use zookeeper_client::{Client, StateWatcher};

use super::ensemble::Ensemble;
use super::fault::{Fault, NAME, is_ambiguous};
use super::snapshot::slot_path;
use crate::backend::claim_state::Publisher;
use crate::lock::validity::LeaseTimes;
use crate::lock::{ClaimState, FencingToken, Grant, Granted, LockName, LossReason, Moment, Request};

/// Between a request that a connection lost and its repetition.
pub(super) const RETRY: Duration = Duration::from_millis(20);

/// What a claim has in the queue of one of its names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Own {
    pub(super) name: LockName,
    /// The path of the queue.
    pub(super) queue: String,
    /// The paths of its nodes, the one with the record first.
    pub(super) nodes: Vec<String>,
    pub(super) token: FencingToken,
    pub(super) slot: Option<u32>,
}

impl Own {
    /// The name of the node with the record.
    pub(super) fn record(&self) -> &str {
        self.nodes[0].rsplit('/').next().unwrap_or_default()
    }

    /// The path of the node for its slot.
    pub(super) fn slot_node(&self) -> Option<String> {
        self.slot.map(|number| slot_path(&self.queue, number))
    }

    /// The paths of all nodes that must be there for the claim to hold: those of its entry, and its slot.
    pub(super) fn all(&self) -> impl Iterator<Item = String> {
        self.nodes.iter().cloned().chain(self.slot_node())
    }
}

/// What there is to write successes into; a release then needs no more than that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Memory {
    /// There is the folder.
    pub(super) folder: bool,
    /// There is a node for every name.
    pub(super) nodes: bool,
}

/// When renewals that the service confirmed were sent.
#[derive(Debug)]
pub(super) struct Proofs {
    /// Whether there is only one server, once that is known: then the last one counts.
    pub(super) single: Option<bool>,
    /// The servers' tick, once that is known.
    pub(super) tick: Option<Duration>,
    ttl: Duration,
    sent: VecDeque<Moment>,
    /// Another ttl was granted, and whoever keeps the lease has not renewed by it yet.
    regranted: bool,
}

impl Proofs {
    pub(super) fn new(begun: Moment, ttl: Duration) -> Self {
        Self { single: None, tick: None, ttl, sent: VecDeque::from([begun]), regranted: false }
    }

    /// How long before the last renewal another must have been sent to have been told to the leader: a tick, twice as
    /// long as followers wait with that.
    fn apart(&self) -> Duration {
        (self.ttl / 5).max(self.tick.unwrap_or_default())
    }

    /// Whether it matters how long a tick is, and is not known.
    pub(super) fn wants_tick(&self) -> bool {
        self.single == Some(false) && self.tick.is_none()
    }

    /// Takes note of one more.
    ///
    /// A follower tells the leader only now and then that a session was heard of; cut off in between, the
    /// leader counts from an earlier time. So in an ensemble what counts is one before, and not right before.
    pub(super) fn add(&mut self, sent: Moment) {
        if self.sent.back().is_none_or(|last| *last < sent) {
            self.sent.push_back(sent);
        }
        let apart = self.apart();
        while self.sent.len() > 2 && sent.since(self.sent[1]) >= apart {
            self.sent.pop_front();
        }
    }

    /// From when the ttl certainly counts.
    pub(super) fn counts_from(&self) -> Moment {
        let last = self.sent.len() - 1;
        if self.single == Some(true) || last == 0 {
            return self.sent[last];
        }
        let apart = self.apart();
        let told = self.sent.iter().rev().find(|sent| self.sent[last].since(**sent) >= apart);
        *told.unwrap_or(&self.sent[0])
    }

    /// The ttl that was granted last.
    pub(super) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Takes note that a server granted `ttl` when the session came back to it, as asked for at `asked`; whether that is
    /// another one.
    ///
    /// What was promised is not prolonged by that: as long as nobody has renewed, the server may be one that is cut off.
    pub(super) fn regrant(&mut self, ttl: Duration, asked: Moment) -> bool {
        if ttl == self.ttl {
            return false;
        }
        let promised = self.counts_from() + self.ttl;
        self.sent = VecDeque::from([asked.min(promised - ttl)]);
        (self.ttl, self.regranted) = (ttl, true);
        true
    }

    /// Whoever keeps the lease has renewed, and knows the ttl.
    pub(super) fn kept(&mut self) {
        self.regranted = false;
    }

    /// Whether another ttl was granted that whoever keeps the lease does not know yet.
    pub(super) fn is_regranted(&self) -> bool {
        self.regranted
    }

    /// When the session is over if nobody renews; where only this knows of its ttl, when its command must be ended.
    pub(super) fn ends(&self) -> Moment {
        let last = self.sent[self.sent.len() - 1];
        match LeaseTimes::new(self.ttl.max(LeaseTimes::LEAST_TTL), Duration::ZERO) {
            Ok(terms) if self.regranted => terms.kill_at(last),
            _ => last + self.ttl,
        }
    }
}

/// What the keeper of a lease knows of its renewals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lease {
    /// How many there were.
    renewals: u64,
    /// When the last one was seen, or the lease began.
    from: Moment,
}

impl Lease {
    /// One of which `renewals` are known at its beginning.
    pub(super) fn begin(renewals: u64, now: Moment) -> Self {
        Self { renewals, from: now }
    }

    /// Takes over how many there are.
    pub(super) fn look(&mut self, renewals: u64, now: Moment) {
        if renewals != self.renewals {
            *self = Self { renewals, from: now };
        }
    }

    /// From when it counts.
    pub(super) fn counts_from(&self) -> Moment {
        self.from
    }
}

pub(super) struct Shared {
    pub(super) ensemble: Arc<Ensemble>,
    pub(super) request: Request,
    pub(super) session: i64,
    own: Mutex<Vec<Own>>,
    pub(super) proofs: Mutex<Proofs>,
    /// When the session ends has changed.
    pub(super) regranted: Notify,
    pub(super) publisher: Publisher,
    pub(super) recorded: AtomicBool,
    /// What there is to remember successes in.
    memory: Mutex<Memory>,
    /// Of nobody's process: when it was renewed last.
    lease: Mutex<Option<Lease>>,
    pub(super) watcher: StateWatcher,
    client: Mutex<Option<Client>>,
    /// Everything under way that has the session in its hands.
    tasks: Mutex<JoinSet<()>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Claim({} in session {:#x})", self.request.id, self.session)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(
        ensemble: Arc<Ensemble>,
        request: Request,
        client: Client,
        own: Vec<Own>,
        proofs: Proofs,
    ) -> Arc<Self> {
        let lock = request.names.first().cloned();
        Arc::new(Self {
            publisher: Publisher::new(NAME, lock, ensemble.clock, proofs.counts_from()),
            ensemble,
            request,
            session: client.session_id().0,
            own: Mutex::new(own),
            proofs: Mutex::new(proofs),
            regranted: Notify::new(),
            recorded: AtomicBool::new(false),
            memory: Mutex::default(),
            lease: Mutex::default(),
            watcher: client.state_watcher(),
            client: Mutex::new(Some(client)),
            tasks: Mutex::new(JoinSet::new()),
        })
    }

    pub(super) fn own(&self) -> Vec<Own> {
        locked(&self.own).clone()
    }

    /// Takes note of the slot that it has in the queue at `queue`.
    pub(super) fn set_slot(&self, queue: &str, number: u32) {
        for own in locked(&self.own).iter_mut().filter(|own| own.queue == queue) {
            own.slot = Some(number);
        }
    }

    pub(super) fn memory(&self) -> Memory {
        *locked(&self.memory)
    }

    pub(super) fn set_memory(&self, memory: Memory) {
        *locked(&self.memory) = memory;
    }

    pub(super) fn lease(&self) -> MutexGuard<'_, Option<Lease>> {
        locked(&self.lease)
    }

    /// The path of the record of its first name.
    pub(super) fn first_record(&self) -> Option<String> {
        let own = locked(&self.own);
        let first = own.iter().find(|own| self.request.names.first() == Some(&own.name));
        first.and_then(|own| own.nodes.first().cloned())
    }

    pub(super) fn proofs(&self) -> MutexGuard<'_, Proofs> {
        locked(&self.proofs)
    }

    /// The session, unless it was closed.
    pub(super) fn client(&self) -> Option<Client> {
        locked(&self.client).clone()
    }

    /// Runs `work` until it is done or the session is closed.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = locked(&self.tasks);
        while tasks.try_join_next().is_some() {}
        if self.client().is_some() {
            tasks.spawn(work);
        }
    }

    /// Nobody listens any more, and nothing is done that was begun; the session stays.
    pub(super) fn hush(&self) {
        locked(&self.tasks).abort_all();
    }

    /// Closes the session, which removes all nodes of the claim. It ends once everything that uses it has let
    /// go; `watcher` tells when.
    pub(super) fn close(&self) {
        drop(locked(&self.client).take());
        locked(&self.tasks).abort_all();
    }

    pub(super) fn set_waiting(&self, ahead: u32, holder: Option<crate::lock::Entry>) {
        self.publisher.publish(ClaimState::Waiting { ahead: Some(ahead), holder: holder.map(Box::new) });
    }

    pub(super) fn set_held(&self) {
        let names =
            locked(&self.own).iter().map(|own| Granted { token: own.token, slot: own.slot }).collect();
        let counts_from = self.proofs().counts_from();
        self.publisher.publish(ClaimState::Held(Grant { names, counts_from }));
    }

    /// It cannot be followed at the moment, which is worth telling unless it was only a connection that broke.
    pub(super) fn cannot_follow(&self, why: Fault) {
        if !matches!(&why, Fault::Service(error) if is_ambiguous(error)) {
            self.publisher.cannot_follow(self.ensemble.explain(why));
        }
    }

    /// The claim is over, and not by its own doing. What is left of it goes too.
    pub(super) fn end(&self, state: ClaimState) {
        self.publisher.publish(state);
        self.close();
    }

    pub(super) fn lose(&self, reason: LossReason) {
        self.end(ClaimState::Lost(reason));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(1_000_000_000 * seconds)
    }

    fn counted(single: bool, sent: &[u64]) -> Moment {
        let mut proofs = Proofs::new(at(100), Duration::from_secs(20));
        proofs.single = Some(single);
        for seconds in sent {
            proofs.add(at(*seconds));
        }
        proofs.counts_from()
    }

    #[test]
    fn behind_a_follower_the_renewal_before_the_last_counts() {
        assert_eq!(counted(false, &[]), at(100));
        assert_eq!(counted(false, &[105]), at(100));
        assert_eq!(counted(false, &[105, 110, 115]), at(110));
        assert_eq!(counted(false, &[105, 106, 107, 108]), at(100), "too close to the last");
        assert_eq!(counted(false, &[105, 106, 107, 112]), at(107));
        assert_eq!(counted(true, &[105, 106]), at(106));
    }

    #[test]
    fn in_a_short_lease_a_tick_must_have_passed() {
        let mut proofs = Proofs::new(at(100), Duration::from_secs(20));
        (proofs.single, proofs.tick) = (Some(false), Some(Duration::from_secs(10)));
        for (sent, from) in [(105, 100), (110, 100), (115, 105), (120, 110)] {
            proofs.add(at(sent));
            assert_eq!(proofs.counts_from(), at(from), "{sent}");
        }
    }

    #[test]
    fn another_grant_counts_from_when_it_was_asked_for_and_prolongs_nothing() {
        let regranted = |ttl: u64, asked: u64| {
            let mut proofs = Proofs::new(at(100), Duration::from_secs(20));
            proofs.single = Some(true);
            proofs.add(at(105));
            assert!(proofs.regrant(Duration::from_secs(ttl), at(asked)));
            (proofs.counts_from(), proofs)
        };
        let (from, mut proofs) = regranted(4, 110);
        assert_eq!(from, at(110));
        assert!(proofs.ends() < at(114) && proofs.is_regranted(), "the command has to be gone by then");
        proofs.add(at(111));
        proofs.kept();
        assert_eq!((proofs.counts_from(), proofs.ends()), (at(111), at(115)));
        assert_eq!(regranted(4, 124).0, at(121), "no longer than was promised");
        assert_eq!(regranted(30, 110).0, at(95));
        assert!(!Proofs::new(at(100), Duration::from_secs(20)).regrant(Duration::from_secs(20), at(101)));
    }

    #[test]
    fn what_counts_never_goes_back() {
        for single in [false, true] {
            let mut proofs = Proofs::new(at(0), Duration::from_secs(20));
            proofs.single = Some(single);
            let mut last = proofs.counts_from();
            for seconds in [1, 2, 3, 3, 9, 10, 15, 15, 30, 31, 32, 33, 34, 35, 60] {
                proofs.add(at(seconds));
                assert!(proofs.counts_from() >= last, "{seconds}");
                last = proofs.counts_from();
                assert_eq!(proofs.ends(), at(seconds) + Duration::from_secs(20));
            }
        }
    }

    #[test]
    fn a_lease_counts_from_when_its_last_renewal_is_seen() {
        let mut lease = Lease::begin(2, at(100));
        lease.look(2, at(105));
        assert_eq!(lease.from, at(100));
        lease.look(3, at(110));
        lease.look(3, at(115));
        assert_eq!(lease.from, at(110));
    }
}
