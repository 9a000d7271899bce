//! The tools of a case: clients, claims and time, all from the fixture.

use std::future::Future;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dlock::backend::{Backend, Claim, Evict, deadlock};
use dlock::clock::Clock;
use dlock::lock::{
    ClaimId, ClaimState, ErrorKind, Grant, Holder, LockName, LockStatus, LossReason, Mode, Moment, Request,
    Result,
};

use crate::fixture::{Fixture, Need};
use crate::fixtures::Subject;
use crate::support::bounds;
use crate::support::chance::Random;

/// The panic payload of a case that this backend does not support.
pub(crate) struct Skip(pub(crate) String);

/// The tools of one case.
#[derive(Clone)]
pub(crate) struct Bench {
    pub(crate) subject: Subject,
    pub(crate) fixture: Arc<dyn Fixture>,
    pub(crate) clock: Clock,
    random: Arc<Mutex<Random>>,
    case: &'static str,
    next: Arc<AtomicU64>,
}

impl Bench {
    pub(crate) fn new(subject: Subject, fixture: Arc<dyn Fixture>, case: &'static str, seed: u64) -> Self {
        let clock = fixture.clock();
        let (random, next) = (Arc::new(Mutex::new(Random(seed))), Arc::new(AtomicU64::new(1)));
        Self { subject, fixture, clock, random, case, next }
    }

    /// Returns the next number of the seeded sequence, below `end`.
    pub(crate) fn random(&self, end: u64) -> u64 {
        self.random.lock().expect("never poisoned").next() % end
    }

    pub(crate) fn id(&self) -> ClaimId {
        let bytes: Vec<u8> = (0..16).map(|_| u8::try_from(self.random(256)).expect("a byte")).collect();
        ClaimId::from_bytes(bytes.try_into().expect("sixteen"))
    }

    /// Returns a name that no other case uses.
    pub(crate) fn name(&self, suffix: &str) -> LockName {
        name(&format!("{}-{suffix}", self.case))
    }

    pub(crate) async fn connect(&self) -> Arc<dyn Backend> {
        self.fixture.connect().await
    }

    /// Returns a holder that no other claim has.
    pub(crate) fn holder(&self) -> Holder {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        Holder {
            host: format!("host{n}"),
            pid: u32::try_from(n).expect("few"),
            user: format!("user{n}"),
            command: format!("./job{n}"),
            ..Holder::default()
        }
    }

    /// Returns a request for `name`, exclusive, with a long TTL.
    pub(crate) fn ask(&self, name: &LockName) -> Request {
        self.ask_all(std::slice::from_ref(name))
    }

    /// Returns as many of `names` as the service can acquire in one step: all, or the first.
    pub(crate) fn in_one_step<'a>(&self, names: &'a [LockName]) -> &'a [LockName] {
        if self.subject.lacks(Need::AtomicNames).is_none() { names } else { &names[..1] }
    }

    pub(crate) fn ask_all(&self, names: &[LockName]) -> Request {
        Request {
            names: names.to_vec(),
            id: self.id(),
            mode: Mode::Exclusive,
            ttl: Duration::from_secs(3600),
            holder: self.holder(),
            ancestors: Vec::new(),
            supersede: false,
        }
    }

    pub(crate) fn ask_as(&self, name: &LockName, mode: Mode) -> Request {
        Request { mode, ..self.ask(name) }
    }

    /// Returns the deadline of a call that waits for no TTL.
    pub(crate) fn soon(&self) -> Moment {
        self.clock.now() + self.fixture.patience() + self.slack()
    }

    /// Returns the time that a real service and its machine may lose on the way.
    pub(crate) fn slack(&self) -> Duration {
        if self.subject.is_paused() { Duration::ZERO } else { bounds::slack() }
    }

    /// Returns the time beyond the TTL after which an abandoned claim is gone (C04).
    pub(crate) async fn bound(&self) -> Duration {
        self.fixture.bound().await + self.slack()
    }

    pub(crate) async fn sleep(&self, length: Duration) {
        self.clock.sleep_until(self.clock.now() + length).await;
    }

    /// Returns the outcome of `work` if it is ready by `deadline`.
    pub(crate) async fn by<T>(&self, deadline: Moment, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            outcome = work => Some(outcome),
            () = self.clock.sleep_until(deadline) => None,
        }
    }

    /// Enters as a new client.
    pub(crate) async fn enter(&self, request: Request) -> Member {
        self.enter_with(&self.connect().await, request).await
    }

    pub(crate) async fn enter_with(&self, client: &Arc<dyn Backend>, request: Request) -> Member {
        let claim = self.enter_by(client, &request).await.expect("enters");
        Member { bench: self.clone(), client: Arc::clone(client), claim, request }
    }

    /// Enters as a new client and holds at once.
    pub(crate) async fn hold(&self, request: Request) -> Member {
        let member = self.enter(request).await;
        member.held().await;
        member
    }

    pub(crate) async fn try_enter(&self, request: &Request) -> Result<Arc<dyn Claim>> {
        let client = self.connect().await;
        self.enter_by(&client, request).await
    }

    /// Enters as a run does, which searches for deadlocks.
    async fn enter_by(&self, client: &Arc<dyn Backend>, request: &Request) -> Result<Arc<dyn Claim>> {
        let entered = deadlock::enter(&**client, request, self.clock, self.soon());
        self.by(self.soon(), entered).await.expect("enter returns by its deadline")
    }

    pub(crate) async fn line(&self, name: &LockName) -> LockStatus {
        self.connect().await.inspect(name, self.soon()).await.expect("inspects")
    }

    /// Returns the claims that hold and wait, in order.
    pub(crate) async fn ids(&self, name: &LockName) -> (Vec<ClaimId>, Vec<ClaimId>) {
        let line = self.line(name).await;
        let ids = |entries: Vec<dlock::lock::Entry>| entries.into_iter().filter_map(|e| e.claim).collect();
        (ids(line.holders), ids(line.waiters))
    }

    /// Returns the waiters that are shown: none if there is no queue.
    pub(crate) fn shown(&self, waiters: &[ClaimId]) -> Vec<ClaimId> {
        if self.subject.lacks(Need::Queue).is_some() { Vec::new() } else { waiters.to_vec() }
    }

    /// Returns `modes` without those that the service does not have.
    pub(crate) fn offered(&self, modes: &[Mode]) -> Vec<Mode> {
        let lacks_shared = self.subject.lacks(Need::Shared).is_some();
        modes.iter().copied().filter(|mode| *mode != Mode::Shared || !lacks_shared).collect()
    }

    /// Evicts as a new client. If the backend cannot evict this entry, the case is skipped.
    pub(crate) async fn evict(&self, name: &LockName, id: ClaimId, how: Evict) -> (bool, Holder) {
        let by = self.holder();
        let client = self.connect().await;
        match client.evict(name, id, how, &by, self.soon()).await {
            Ok(found) => (found, by),
            Err(e) if e.kind == ErrorKind::Unsupported => std::panic::panic_any(Skip(e.reason.to_string())),
            Err(e) => panic!("cannot evict: {e}"),
        }
    }
}

/// A claim, its client and its request.
pub(crate) struct Member {
    bench: Bench,
    pub(crate) client: Arc<dyn Backend>,
    pub(crate) claim: Arc<dyn Claim>,
    pub(crate) request: Request,
}

impl Member {
    pub(crate) fn id(&self) -> ClaimId {
        self.request.id
    }

    pub(crate) async fn state(&self) -> ClaimState {
        let deadline = self.bench.soon();
        self.bench.by(deadline, self.next(None)).await.expect("the first answer is prompt")
    }

    /// Returns the state after `seen`. A transient error is not a state.
    pub(crate) async fn next(&self, seen: Option<&ClaimState>) -> ClaimState {
        loop {
            match self.claim.changed(seen).await {
                Ok(state) => return state,
                Err(e) if e.is_transient() => self.bench.sleep(Duration::from_millis(1)).await,
                Err(e) => panic!("cannot follow the queue: {e}"),
            }
        }
    }

    /// Returns the first state by `deadline` that `wanted` accepts. Panics if another final state comes first.
    pub(crate) async fn until<T>(
        &self,
        deadline: Moment,
        wanted: impl Fn(&ClaimState) -> Option<T>,
    ) -> Option<T> {
        let follow = async {
            let mut seen = None;
            loop {
                let state = self.next(seen.as_ref()).await;
                if let Some(found) = wanted(&state) {
                    return found;
                }
                let last = state.is_final();
                assert!(!last, "ended otherwise: {state:?}");
                seen = Some(state);
            }
        };
        self.bench.by(deadline, follow).await
    }

    /// Waits until it holds, as it must soon.
    pub(crate) async fn held(&self) -> Grant {
        self.held_by(self.bench.soon()).await.expect("holds soon")
    }

    pub(crate) async fn held_by(&self, deadline: Moment) -> Option<Grant> {
        let grant = self
            .until(deadline, |state| match state {
                ClaimState::Held(grant) => Some(grant.clone()),
                _ => None,
            })
            .await?;
        assert_eq!(grant.names.len(), self.request.names.len(), "one grant for each name");
        Some(grant)
    }

    /// Waits until it is lost, as it must be soon.
    pub(crate) async fn lost(&self) -> LossReason {
        self.lost_by(self.bench.soon()).await.expect("lost soon")
    }

    /// Waits until a waiter is lost. If the service notifies no waiters, it renews first.
    pub(crate) async fn lost_in_the_queue(&self) -> LossReason {
        if !self.bench.fixture.tells_waiters() {
            self.renew().await;
        }
        self.lost().await
    }

    pub(crate) async fn lost_by(&self, deadline: Moment) -> Option<LossReason> {
        let lost = |state: &ClaimState| match state {
            ClaimState::Lost(reason) => Some(reason.clone()),
            _ => None,
        };
        self.until(deadline, lost).await
    }

    /// Fails if it holds, now or shortly.
    pub(crate) async fn waits(&self) {
        let state = self.state().await;
        assert!(matches!(state, ClaimState::Waiting { .. }), "waits, but is {state:?}");
        let grant = self.held_by(self.bench.clock.now() + self.bench.fixture.blink()).await;
        assert_eq!(grant, None, "holds although it must wait");
    }

    /// Fails if it does not hold any more, now or shortly.
    pub(crate) async fn still_holds(&self) {
        let state = self.state().await;
        assert!(matches!(state, ClaimState::Held(_)), "holds, but is {state:?}");
        let quiet = self.bench.clock.now() + self.bench.fixture.blink();
        let news = self.bench.by(quiet, self.next(Some(&state))).await;
        assert_eq!(news, None, "holds and receives nothing else");
    }

    pub(crate) async fn renew(&self) -> Moment {
        self.claim.renew(self.bench.soon()).await.expect("renews")
    }

    pub(crate) async fn leave(&self) {
        self.finish(false).await;
    }

    pub(crate) async fn finish(&self, succeeded: bool) {
        let left = self.bench.by(self.bench.soon(), self.claim.leave(succeeded, self.bench.soon())).await;
        left.expect("leave returns by its deadline").expect("leaves");
    }
}

/// Returns the token of the first name.
pub(crate) fn token(grant: &Grant) -> u64 {
    grant.names[0].token.get()
}

pub(crate) fn name(text: &str) -> LockName {
    LockName::new(text).expect("a valid name")
}

pub(crate) fn slots(n: u32) -> Mode {
    Mode::Slots(std::num::NonZeroU32::new(n).expect("positive"))
}
