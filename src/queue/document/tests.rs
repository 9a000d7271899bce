//! Claims on a store that loses requests and answers, executes late, and drops items.

#[path = "random_tests.rs"]
mod random;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::DocumentStore;
use super::testing::{Fake, Mishap};
use crate::backend::{Backend, Claim, Evict};
use crate::clock::Clock;
use crate::lock::{
    ClaimId, ClaimState, ErrorKind, Holder, LockName, LossReason, Mode, Moment, Request, Result,
};
use crate::queue::Queues;
use crate::queue::store::Note;

const TTL: Duration = Duration::from_secs(30);

pub(super) struct Scene {
    pub(super) fake: Arc<Fake>,
    clock: Clock,
}

pub(super) fn name(text: &str) -> LockName {
    text.parse().expect("valid")
}

pub(super) fn id(n: u128) -> ClaimId {
    ClaimId::from_number(n)
}

fn request(n: u128, names: &[&str]) -> Request {
    Request {
        names: names.iter().map(|text| name(text)).collect(),
        id: id(n),
        mode: Mode::Exclusive,
        ttl: TTL,
        holder: Holder { host: format!("host{n}"), user: "u".into(), ..Holder::default() },
        ancestors: Vec::new(),
        supersede: false,
    }
}

impl Scene {
    pub(super) fn new() -> Self {
        Self::with_room(1_000_000)
    }

    fn with_room(room: usize) -> Self {
        Self { fake: Arc::new(Fake::new(room)), clock: Clock::Runtime(tokio::time::Instant::now()) }
    }

    /// Creates a client that shares nothing with the others.
    pub(super) fn client(&self) -> Queues {
        Queues::new(Arc::new(DocumentStore::new(self.fake.clone(), self.clock)), self.clock)
    }

    pub(super) fn soon(&self) -> Moment {
        self.clock.now() + Duration::from_secs(5)
    }

    async fn enter(&self, n: u128) -> Result<Arc<dyn Claim>> {
        self.client().enter(&request(n, &["a"]), self.soon()).await
    }

    pub(super) async fn hold(&self, n: u128) -> Arc<dyn Claim> {
        let claim = self.enter(n).await.expect("enters");
        assert!(holds(&claim).await);
        claim
    }

    async fn evict(&self, n: u128) -> bool {
        let by = Holder { host: "judge".into(), ..Holder::default() };
        self.client().evict(&name("a"), id(n), Evict::Force, &by, self.soon()).await.expect("evicts")
    }

    async fn withdraw(&self, n: u128) {
        self.client().withdraw(&request(n, &["a"]), self.soon()).await.expect("withdraws");
    }

    /// Returns the claims in the queue of `lock`.
    async fn queue(&self, lock: &str) -> Vec<ClaimId> {
        let status = self.client().inspect(&name(lock), self.soon()).await.expect("inspects");
        status.holders.iter().chain(&status.waiters).filter_map(|entry| entry.claim).collect()
    }

    async fn sleep(&self, length: Duration) {
        self.clock.sleep_until(self.clock.now() + length).await;
    }
}

async fn state(claim: &Arc<dyn Claim>) -> ClaimState {
    claim.changed(None).await.expect("follows")
}

async fn holds(claim: &Arc<dyn Claim>) -> bool {
    // The first answer may come from the attempt to enter.
    claim.changed(None).await.expect("follows");
    matches!(state(claim).await, ClaimState::Held(_))
}

#[tokio::test(start_paused = true)]
async fn late_entry_counts_unless_the_claim_has_ended() {
    let scene = Scene::new();
    scene.fake.expect(&[Some(Mishap::Late)]);
    assert!(scene.enter(1).await.is_err());
    assert_eq!(scene.fake.deliver(), [true], "no client has ended it");
    assert_eq!(scene.queue("a").await, [id(1)]);

    scene.fake.expect(&[Some(Mishap::Late)]);
    assert!(scene.enter(2).await.is_err());
    scene.withdraw(2).await;
    assert_eq!(scene.fake.deliver(), [false], "the queue has changed since");
    assert_eq!(scene.queue("a").await, [id(1)]);
}

/// The removal after a mismatch may be executed late. If the claim entered again, that would end its hold.
#[tokio::test(start_paused = true)]
async fn late_removal_of_a_misfit_cannot_end_a_hold() {
    let scene = Scene::new();
    let slots = Request { mode: Mode::Slots(NonZeroU32::MIN), ..request(1, &["a"]) };
    let _holder = scene.client().enter(&slots, scene.soon()).await.expect("enters");
    scene.fake.expect(&[&[None][..], &[Some(Mishap::Late); 500]].concat());
    let error = scene.enter(2).await.expect_err("another kind");
    assert_eq!(error.kind, ErrorKind::Mismatch, "{error}");
}

/// A newer claim writes its note before it supersedes a waiter, and may come too late.
#[tokio::test(start_paused = true)]
async fn forgotten_hold_is_not_called_superseded() {
    let scene = Scene::new();
    let holder = scene.hold(1).await;
    let held = state(&holder).await;
    let note = Note::Superseded(Holder::default());
    let note = serde_json::to_vec(&note.stored()).expect("is JSON");
    scene.fake.write(&format!("a/gone/{}", id(1)), &note);
    scene.fake.forget("a");
    let why = "fake no longer has the item of the lock: it was evicted, deleted or overwritten, or fake was restarted";
    let lost = ClaimState::Lost(LossReason::Replaced(why.into()));
    assert_eq!(holder.changed(Some(&held)).await.ok(), Some(lost));
}

#[tokio::test(start_paused = true)]
async fn a_queue_of_a_newer_form_is_waited_for() {
    let scene = Scene::new();
    scene.fake.write("a", b"{\"dlock\":2,\"queue\":[]}");
    let claim = scene.enter(1).await.expect("waits");
    assert!(matches!(state(&claim).await, ClaimState::Waiting { .. }));
    assert!(scene.fake.has("a"));
}

#[tokio::test(start_paused = true)]
async fn full_queue_refuses_further_claims() {
    let scene = Scene::with_room(2000);
    let mut claims = vec![scene.hold(1).await];
    let error = loop {
        match scene.enter(claims.len() as u128 + 1).await {
            Ok(claim) => claims.push(claim),
            Err(error) => break error,
        }
        assert!(claims.len() < 100, "there is always room");
    };
    assert!(error.kind == ErrorKind::Full && error.is_transient(), "{error}");
    assert!(error.reason.to_string().contains(&format!("{} claims", claims.len())), "{error}");
    assert!(claims.len() > 2);
    claims[0].renew(scene.soon()).await.expect("renews");
    claims.remove(0).leave(false, scene.soon()).await.expect("leaves");
    scene.enter(99).await.expect("there is room again");
}

#[tokio::test(start_paused = true)]
async fn tokens_rise_over_a_forgotten_counter() {
    let scene = Scene::new();
    let mut last = 0;
    let _shared = {
        let mut first = request(1, &["a"]);
        first.mode = Mode::Shared;
        scene.client().enter(&first, scene.soon()).await.expect("enters")
    };
    for n in 2..6 {
        let mut next = request(n, &["a"]);
        next.mode = Mode::Shared;
        let claim = scene.client().enter(&next, scene.soon()).await.expect("enters");
        let ClaimState::Held(grant) = state(&claim).await else { panic!("does not hold") };
        assert!(grant.names[0].token.get() > last);
        last = grant.names[0].token.get();
        scene.fake.forget_counter("a");
    }
}

#[tokio::test(start_paused = true)]
async fn eviction_with_a_lost_answer_has_removed_the_claim() {
    let scene = Scene::new();
    let _holder = scene.hold(1).await;
    scene.enter(2).await.expect("enters");
    scene.fake.expect(&[Some(Mishap::AnswerLost)]);
    assert!(scene.evict(2).await, "it was there");
    assert_eq!(scene.queue("a").await, [id(1)]);
}

#[tokio::test(start_paused = true)]
async fn only_a_long_hold_after_a_wait_records_its_start() {
    for (works, recorded) in [(900, false), (1_200, true)] {
        let scene = Scene::new();
        let one = scene.hold(1).await;
        let two = scene.enter(2).await.expect("enters");
        assert!(matches!(state(&two).await, ClaimState::Waiting { .. }));
        one.leave(false, scene.soon()).await.expect("leaves");
        assert!(holds(&two).await);
        scene.sleep(Duration::from_millis(works)).await;
        let status = scene.client().inspect(&name("a"), scene.soon()).await.expect("inspects");
        // The clock of this host, which the paused time does not move.
        let ago = status.holders[0].since.and_then(|since| SystemTime::now().duration_since(since).ok());
        assert_eq!(ago.is_some_and(|ago| ago >= Duration::from_secs(1)), recorded, "{ago:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn waiter_behind_foreign_item_stays_out_after_leaving() {
    let scene = Scene::new();
    scene.fake.write("a", b"theirs");
    let waiter = scene.enter(1).await.expect("waits");
    scene.fake.forget("a");
    // The attempt to enter, which the task in the background makes, is slow.
    scene.fake.expect(&[Some(Mishap::Held)]);
    scene.sleep(Duration::from_secs(2)).await;
    waiter.renew(scene.soon()).await.expect("it has no entry");
    waiter.leave(false, scene.soon()).await.expect("leaves");
    scene.fake.resume();
    scene.sleep(Duration::from_secs(2)).await;
    assert_eq!(scene.queue("a").await, []);
}

#[tokio::test(start_paused = true)]
async fn waiter_behind_foreign_item_is_refused_by_another_kind() {
    let scene = Scene::new();
    scene.fake.write("a", b"theirs");
    let waiter = scene.enter(1).await.expect("waits");
    let seen = state(&waiter).await;
    scene.fake.forget("a");
    let slots = Mode::Slots(std::num::NonZeroU32::MIN);
    let other = Request { mode: slots, ..request(2, &["a"]) };
    let _other = scene.client().enter(&other, scene.soon()).await.expect("enters");
    let refused = waiter.changed(Some(&seen)).await.expect_err("kinds do not mix");
    assert_eq!((refused.kind, refused.is_final), (ErrorKind::Mismatch, true));
}
