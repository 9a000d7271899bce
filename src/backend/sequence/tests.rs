//! A sequence over one service for each name, on paused time.

#[path = "tests_doubtful.rs"]
mod doubtful;

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::backend::memory::{MemoryBackend, MemoryServer};
use crate::backend::{Backend, Evict};
use crate::lock::{ClaimId, Grant, Holder, LockName, LossReason, Mode};

const TTL: Duration = Duration::from_secs(30);

/// One service for each name.
#[derive(Debug)]
struct Services {
    clock: Clock,
    servers: HashMap<LockName, Arc<MemoryServer>>,
    /// Attempts to enter fail, as if nobody answered.
    down: AtomicBool,
    /// They are refused.
    denied: AtomicBool,
    entered: Mutex<Vec<String>>,
    /// Who writes keeps withdrawals back.
    withdrawing: tokio::sync::RwLock<()>,
}

fn down(operation: &'static str) -> Error {
    Error::new(ErrorKind::Unavailable, "memory", operation, None, "down")
}

#[async_trait]
impl PartBackend for Services {
    fn backend(&self) -> &'static str {
        "memory"
    }
    async fn enter(&self, part: &Request, deadline: Moment) -> Result<Arc<dyn Claim>> {
        if self.down.load(Ordering::Relaxed) {
            return Err(down("join the queue"));
        }
        if self.denied.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Denied, "memory", "join the queue", None, "no right"));
        }
        self.entered.lock().expect("not poisoned").push(part.names[0].to_string());
        self.client(&part.names[0]).enter(part, deadline).await
    }
    async fn withdraw(&self, part: &Request, deadline: Moment) -> Result<()> {
        let _open = self.withdrawing.read().await;
        let name = &part.names[0];
        self.client(name).evict(name, part.id, Evict::Force, &part.holder, deadline).await.map(drop)
    }
}

impl Services {
    fn new() -> Arc<Self> {
        let clock = Clock::Runtime(tokio::time::Instant::now());
        let servers = ["a", "b", "c"].map(|text| (name(text), MemoryServer::new(clock))).into();
        let (down, denied) = (AtomicBool::new(false), AtomicBool::new(false));
        let (entered, withdrawing) = (Mutex::default(), tokio::sync::RwLock::default());
        Arc::new(Self { clock, servers, down, denied, entered, withdrawing })
    }
    fn client(&self, name: &LockName) -> MemoryBackend {
        MemoryBackend::connect(&self.servers[name])
    }
    fn soon(&self) -> Moment {
        self.clock.now() + Duration::from_secs(5)
    }
    async fn take(self: &Arc<Self>, request: &Request) -> Result<Sequence> {
        let parts = parts_by(request, |place| request.names[place].clone());
        enter(Arc::clone(self) as Arc<dyn PartBackend>, parts, self.clock, self.soon()).await
    }
    /// Who holds and who waits, after everything that happens by itself has happened.
    async fn queue(&self, text: &str) -> (Vec<ClaimId>, Vec<ClaimId>) {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let status = self.client(&name(text)).inspect(&name(text), self.soon()).await.expect("inspects");
        let ids = |entries: &[crate::lock::Entry]| entries.iter().filter_map(|e| e.claim).collect();
        (ids(&status.holders), ids(&status.waiters))
    }
    async fn hold(&self, text: &str, id: u8) -> Arc<dyn Claim> {
        self.client(&name(text)).enter(&request(id, &[text]), self.soon()).await.expect("enters")
    }
}

fn name(text: &str) -> LockName {
    LockName::new(text).expect("valid")
}

fn id(id: u8) -> ClaimId {
    ClaimId::from_bytes([id; 16])
}

fn request(number: u8, names: &[&str]) -> Request {
    let holder =
        Holder { host: "h".into(), pid: 1, user: "u".into(), command: "c".into(), ..Holder::default() };
    Request {
        names: names.iter().map(|text| name(text)).collect(),
        id: id(number),
        mode: Mode::Exclusive,
        ttl: TTL,
        holder,
        ancestors: Vec::new(),
        supersede: false,
    }
}

async fn held(claim: &Sequence) -> Grant {
    let mut seen = None;
    loop {
        match claim.changed(seen.as_ref()).await.expect("follows") {
            ClaimState::Held(grant) => return grant,
            state @ ClaimState::Waiting { .. } => seen = Some(state),
            other => panic!("neither waits nor holds: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_free_is_held_at_once_in_the_order_of_the_keys() {
    let services = Services::new();
    // Older tokens on one service tell them apart.
    for _ in 0..3 {
        services.hold("c", 9).await.leave(false, services.soon()).await.expect("leaves");
    }
    let claim = services.take(&request(1, &["c", "a", "b"])).await.expect("enters");
    let ClaimState::Held(grant) = claim.changed(None).await.expect("answers") else { panic!("all is free") };
    assert_eq!(*services.entered.lock().expect("not poisoned"), ["a", "b", "c"]);
    let tokens: Vec<u64> = grant.names.iter().map(|granted| granted.token.get()).collect();
    assert!(tokens[0] > tokens[1] && tokens[1] == tokens[2], "in the order asked for: {tokens:?}");
    claim.leave(false, services.soon()).await.expect("leaves");
    for text in ["a", "b", "c"] {
        assert_eq!(services.queue(text).await, (vec![], vec![]));
    }
    let error = claim.changed(None).await.expect_err("it has left");
    assert_eq!((error.backend, error.lock), ("memory", Some(name("a"))), "C12");
}

#[tokio::test(start_paused = true)]
async fn a_part_is_asked_for_only_when_the_former_ones_are_held() {
    let services = Services::new();
    let other = services.hold("b", 2).await;
    let claim = services.take(&request(1, &["a", "b", "c"])).await.expect("enters");
    let state = claim.changed(None).await.expect("answers");
    assert!(matches!(state, ClaimState::Waiting { ahead: Some(1), holder: Some(_) }), "{state:?}");
    assert_eq!(services.queue("a").await.0, [id(1)]);
    assert_eq!(services.queue("c").await, (vec![], vec![]));
    other.leave(false, services.soon()).await.expect("leaves");
    held(&claim).await;
    assert_eq!(services.queue("c").await.0, [id(1)]);
}

#[tokio::test(start_paused = true)]
async fn opposite_orders_do_not_wait_for_each_other() {
    let services = Services::new();
    let both = [(0, ["a", "b"]), (100, ["b", "a"])];
    let runs = both.map(|(first, names)| {
        let services = Arc::clone(&services);
        tokio::spawn(async move {
            for round in 0..20 {
                let claim = services.take(&request(first + round, &names)).await.expect("enters");
                held(&claim).await;
                tokio::task::yield_now().await;
                claim.leave(false, services.soon()).await.expect("leaves");
            }
        })
    });
    for run in runs {
        tokio::time::timeout(TTL, run).await.expect("no deadlock").expect("no panic");
    }
}

#[tokio::test(start_paused = true)]
async fn a_loss_while_holding_frees_nothing_before_it_leaves() {
    let services = Services::new();
    let claim = services.take(&request(1, &["a", "b"])).await.expect("enters");
    let state = ClaimState::Held(held(&claim).await);
    assert!(services.servers[&name("b")].sever(id(1)));
    let lost = claim.changed(Some(&state)).await.expect("answers");
    assert_eq!(lost, ClaimState::Lost(LossReason::SessionEnded));
    assert_eq!(services.queue("a").await.0, [id(1)], "its command may still run");
    claim.leave(false, services.soon()).await.expect("leaves");
    assert_eq!(services.queue("a").await.0, []);
}

#[tokio::test(start_paused = true)]
async fn a_loss_while_waiting_gives_back_the_rest() {
    let services = Services::new();
    let other = services.hold("b", 2).await;
    let claim = services.take(&request(1, &["a", "b"])).await.expect("enters");
    let state = claim.changed(None).await.expect("answers");
    assert!(services.servers[&name("b")].sever(id(1)));
    let lost = claim.changed(Some(&state)).await.expect("answers");
    assert_eq!(lost, ClaimState::Lost(LossReason::SessionEnded));
    assert_eq!(services.queue("a").await, (vec![], vec![]));
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn renewals_keep_all_parts_and_the_earliest_counts() {
    let services = Services::new();
    let other = services.hold("b", 2).await;
    let claim = services.take(&request(1, &["a", "b"])).await.expect("enters");
    for _ in 0..6 {
        tokio::time::sleep(TTL / 3).await;
        let begun = services.clock.now();
        assert_eq!(claim.renew(services.soon()).await.expect("renews"), begun);
        other.renew(services.soon()).await.expect("renews");
    }
    let renewed = services.clock.now();
    tokio::time::sleep(TTL / 6).await;
    other.leave(false, services.soon()).await.expect("leaves");
    assert_eq!(held(&claim).await.counts_from, renewed);
    services.servers[&name("a")].freeze();
    tokio::time::sleep(TTL / 6).await;
    let failed = claim.renew(services.clock.now() + Duration::from_secs(1)).await;
    assert!(failed.expect_err("one does not answer").is_transient());
    services.servers[&name("a")].thaw();
    assert_eq!(claim.ttl(), Some(TTL));
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_refused_at_once_leaves_nothing() {
    let services = Services::new();
    let slots = Mode::Slots(NonZeroU32::new(2).expect("positive"));
    let asked = Request { mode: slots, ..request(2, &["b"]) };
    let _other = services.client(&name("b")).enter(&asked, services.soon()).await.expect("enters");
    let refused = services.take(&request(1, &["a", "b"])).await.expect_err("kinds do not mix");
    assert_eq!(refused.kind, ErrorKind::Mismatch);
    assert_eq!(services.queue("a").await, (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_refused_later_is_an_error_and_leaves_the_rest() {
    let services = Services::new();
    let slots = Mode::Slots(NonZeroU32::new(2).expect("positive"));
    let first = services.hold("a", 2).await;
    let asked = Request { mode: slots, ..request(3, &["b"]) };
    let _second = services.client(&name("b")).enter(&asked, services.soon()).await.expect("enters");
    let claim = services.take(&request(1, &["a", "b"])).await.expect("waits");
    let mut seen = claim.changed(None).await.expect("answers");
    first.leave(false, services.soon()).await.expect("leaves");
    let refused = loop {
        match claim.changed(Some(&seen)).await {
            Err(error) => break error,
            Ok(state @ ClaimState::Waiting { .. }) => seen = state,
            Ok(other) => panic!("does not wait: {other:?}"),
        }
    };
    assert_eq!(refused.kind, ErrorKind::Mismatch);
    assert_eq!(services.queue("a").await, (vec![], vec![]));
    claim.leave(false, services.soon()).await.expect("leaves");
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_denied_later_ends_the_wait() {
    let services = Services::new();
    let first = services.hold("a", 2).await;
    let claim = services.take(&request(1, &["a", "b"])).await.expect("waits");
    let seen = claim.changed(None).await.expect("answers");
    services.denied.store(true, Ordering::Relaxed);
    first.leave(false, services.soon()).await.expect("leaves");
    let refused = claim.changed(Some(&seen)).await.expect_err("it may not");
    assert_eq!((refused.kind, refused.is_final), (ErrorKind::Denied, true));
    assert_eq!(services.queue("a").await, (vec![], vec![]));
    let renewed = claim.renew(services.soon()).await.expect_err("there is nothing to renew");
    assert_eq!(renewed.kind, ErrorKind::Denied);
    claim.leave(false, services.soon()).await.expect("leaves");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_down_when_its_turn_comes_is_asked_again() {
    let services = Services::new();
    let other = services.hold("a", 2).await;
    let claim = services.take(&request(1, &["a", "b"])).await.expect("enters");
    let state = claim.changed(None).await.expect("answers");
    services.down.store(true, Ordering::Relaxed);
    other.leave(false, services.soon()).await.expect("leaves");
    let mut seen = state;
    let error = loop {
        match claim.changed(Some(&seen)).await {
            Err(error) => break error,
            Ok(state) => seen = state,
        }
    };
    assert!(error.is_transient());
    services.down.store(false, Ordering::Relaxed);
    let still = |claim: Sequence| async move {
        loop {
            if let Ok(ClaimState::Held(_)) = claim.changed(None).await {
                return claim;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let claim = tokio::time::timeout(TTL, still(claim)).await.expect("holds in the end");
    claim.leave(false, services.soon()).await.expect("leaves");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_failed_takes_nothing_from_the_next_one() {
    let services = Services::new();
    let asked = request(1, &["a", "b"]);
    services.servers[&name("b")].freeze();
    let failed = services.take(&asked).await.expect_err("b does not answer");
    assert!(failed.is_transient());
    let kept_back = services.withdrawing.write().await;
    services.servers[&name("b")].thaw();
    let claim = services.take(&asked).await.expect("enters");
    let state = ClaimState::Held(held(&claim).await);
    drop(kept_back);
    for text in ["a", "b"] {
        assert_eq!(services.queue(text).await, (vec![id(1)], vec![]), "{text}");
    }
    assert_eq!(claim.changed(None).await.expect("answers"), state);
}

#[tokio::test(start_paused = true)]
async fn giving_up_while_entering_leaves_nothing() {
    for at in ["a", "b", "c"] {
        let services = Services::new();
        services.servers[&name(at)].freeze();
        let asked = request(1, &["a", "b", "c"]);
        let entering = services.take(&asked);
        assert!(tokio::time::timeout(Duration::from_millis(10), entering).await.is_err());
        services.servers[&name(at)].thaw();
        for text in ["a", "b", "c"] {
            assert_eq!(services.queue(text).await, (vec![], vec![]), "{at}, {text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn leaving_while_a_part_is_entered_leaves_nothing() {
    let services = Services::new();
    let first = services.hold("a", 2).await;
    let claim = services.take(&request(1, &["a", "b"])).await.expect("waits");
    services.servers[&name("b")].freeze();
    first.leave(false, services.soon()).await.expect("leaves");
    assert_eq!(services.queue("a").await.0, [id(1)]);
    let late = services.clock.now() + Duration::from_secs(1);
    assert!(claim.leave(false, late).await.expect_err("b does not answer").is_transient());
    assert_eq!(services.queue("a").await, (vec![], vec![]));
    services.servers[&name("b")].thaw();
    claim.leave(false, services.soon()).await.expect("leaves");
    assert_eq!(services.queue("b").await, (vec![], vec![]));
}

#[test]
fn names_with_the_same_key_are_one_part() {
    let asked = request(1, &["bb", "a", "c", "dd"]);
    let parts = parts_by(&asked, |place| asked.names[place].as_str().len());
    let names: Vec<Vec<String>> =
        parts.iter().map(|part| part.request.names.iter().map(ToString::to_string).collect()).collect();
    assert_eq!(names, [["a", "c"], ["bb", "dd"]]);
    assert_eq!([&*parts[0].places, &*parts[1].places], [[1, 2], [0, 3]]);
}
