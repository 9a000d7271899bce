//! Claims over a store that loses, delays and refuses answers.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::super::Queues;
use super::super::testing::{Fate, Memory};
use crate::backend::claim_state::SHORT_HOLD;
use crate::backend::{Backend, Claim, Evict};
use crate::clock::Clock;
use crate::lock::{ClaimId, ClaimState, Grant, Holder, LockName, Mode, Moment, Request};

const TTL: Duration = Duration::from_secs(9);

fn clock() -> Clock {
    Clock::Runtime(tokio::time::Instant::now())
}

fn request(id: u128, mode: Mode) -> Request {
    Request {
        names: vec!["x".parse().expect("a name")],
        id: ClaimId::from_number(id),
        mode,
        ttl: TTL,
        holder: Holder { host: format!("h{id}"), ..Holder::default() },
        ancestors: Vec::new(),
        supersede: false,
    }
}

fn slots(n: u32) -> Mode {
    Mode::Slots(NonZeroU32::new(n).expect("positive"))
}

struct World {
    store: Arc<Memory>,
    queues: Queues,
    clock: Clock,
}

impl World {
    fn new(late_tokens: bool) -> Self {
        let clock = clock();
        let store = Memory::new(clock, late_tokens);
        Self { queues: Queues::new(Arc::<Memory>::clone(&store), clock), store, clock }
    }

    fn soon(&self) -> Moment {
        self.clock.now() + TTL
    }

    async fn enter(&self, request: &Request) -> Arc<dyn Claim> {
        self.queues.enter(request, self.soon()).await.expect("enters")
    }

    fn requests(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.store.requests.lock().expect("no panic"))
    }
}

async fn state(claim: &Arc<dyn Claim>) -> ClaimState {
    claim.changed(None).await.expect("a state")
}

async fn held(claim: &Arc<dyn Claim>) -> Grant {
    let mut seen = state(claim).await;
    loop {
        match seen {
            ClaimState::Held(grant) => return grant,
            ClaimState::Waiting { .. } => seen = claim.changed(Some(&seen)).await.expect("a state"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_departure_wakes_the_next_claim_at_one_request() {
    for (late_tokens, wake) in [(false, "read"), (true, "commit")] {
        let world = World::new(late_tokens);
        let one = world.enter(&request(1, Mode::Exclusive)).await;
        assert_eq!(world.requests(), ["append"]);
        let first = held(&one).await.names[0].token;
        let two = world.enter(&request(2, Mode::Exclusive)).await;
        let ClaimState::Waiting { ahead, holder } = state(&two).await else { panic!("it waits") };
        assert_eq!((ahead, holder.and_then(|holder| holder.host)), (Some(1), Some("h1".into())));
        assert_eq!(world.requests(), ["append"]);
        one.leave(true, world.soon()).await.expect("leaves");
        let next = held(&two).await.names[0].token;
        assert!(next > first, "{next} after {first}");
        let requests = world.requests();
        assert!(requests.starts_with(&["commit", wake]), "{requests:?}");
        assert_eq!(world.store.successes().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_long_hold_after_a_wait_records_its_start() {
    for (works, recorded) in [(900, false), (1_200, true)] {
        let world = World::new(false);
        let one = world.enter(&request(1, Mode::Exclusive)).await;
        held(&one).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let two = world.enter(&request(2, Mode::Exclusive)).await;
        one.leave(false, world.soon()).await.expect("leaves");
        held(&two).await;
        tokio::time::sleep(Duration::from_millis(works)).await;
        two.leave(false, world.soon()).await.expect("leaves");
        let shown = world.store.held_for();
        assert_eq!(shown.is_some_and(|shown| shown >= Duration::from_secs(1)), recorded, "{shown:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_at_any_request_loses_nothing() {
    for fate in [Fate::Lost, Fate::Unanswered, Fate::Late(Duration::from_millis(700))] {
        for (nth, mode) in (0..6).flat_map(|nth| [(nth, Mode::Exclusive), (nth, slots(1))]) {
            let world = World::new(true);
            let one = world.enter(&request(1, mode)).await;
            held(&one).await;
            let mut fates = vec![Fate::Answered; nth];
            fates.push(fate);
            world.store.expect(&fates);
            let second = request(2, mode);
            let two = loop {
                match world.queues.enter(&second, world.soon()).await {
                    Ok(claim) => break claim,
                    Err(error) => assert!(error.is_transient(), "{error:?}"),
                }
            };
            assert!(matches!(state(&two).await, ClaimState::Waiting { .. }), "{fate:?} {nth}");
            while one.leave(false, world.soon()).await.is_err() {}
            let mut seen = state(&two).await;
            while !matches!(seen, ClaimState::Held(_)) {
                match two.changed(Some(&seen)).await {
                    Ok(state) => seen = state,
                    Err(error) => assert!(error.is_transient(), "{error:?}"),
                }
            }
            world.store.expect(&[]);
            let three = world.enter(&request(3, mode)).await;
            assert!(matches!(state(&three).await, ClaimState::Waiting { .. }), "{fate:?} {nth}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn abandoned_holder_is_followed_at_the_end_of_its_lease() {
    let world = World::new(false);
    let one = world.enter(&request(1, Mode::Exclusive)).await;
    held(&one).await;
    let two = world.enter(&request(2, Mode::Exclusive)).await;
    drop(one);
    let begun = world.clock.now();
    while world.clock.now() < begun + TTL / 2 {
        tokio::time::sleep(TTL / 3).await;
        two.renew(world.soon()).await.expect("renews");
    }
    held(&two).await;
    assert!(world.clock.now().since(begun) < TTL + Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn young_hold_is_followed_after_one_pause() {
    let world = World::new(false);
    let (name, by): (LockName, _) = ("x".parse().expect("a name"), Holder::default());
    let one = world.enter(&request(1, Mode::Exclusive)).await;
    let two = world.enter(&request(2, Mode::Exclusive)).await;
    let mut grants = Vec::new();
    for (id, claim) in [(1, &one), (2, &two)] {
        grants.push((claim, held(claim).await, world.clock.now()));
        tokio::time::sleep(SHORT_HOLD / 2).await;
        let gone = world.queues.evict(&name, ClaimId::from_number(id), Evict::Force, &by, world.soon());
        assert!(gone.await.expect("answers"));
    }
    for (claim, grant, begun) in grants {
        let seen = claim.changed(Some(&ClaimState::Held(grant))).await.expect("a state");
        assert!(matches!(seen, ClaimState::Lost(_)), "{seen:?}");
        let found = world.clock.now().since(begun);
        assert!(found >= SHORT_HOLD && found < SHORT_HOLD + SHORT_HOLD / 10, "{found:?}");
    }
}

/// The acts of one claim in a random schedule.
#[derive(Clone, Debug)]
struct Life {
    mode: usize,
    starts: u64,
    works: u64,
    supersede: bool,
    fates: Vec<Fate>,
}

fn life() -> impl Strategy<Value = Life> {
    let fate = prop_oneof![
        6 => Just(Fate::Answered),
        1 => Just(Fate::Lost),
        1 => Just(Fate::Unanswered),
        1 => (1u64..6000).prop_map(|ms| Fate::Late(Duration::from_millis(ms))),
    ];
    let fates = prop::collection::vec(fate, 0..8);
    (0usize..2, 0u64..4000, 1u64..3000, any::<bool>(), fates)
        .prop_map(|(mode, starts, works, supersede, fates)| Life { mode, starts, works, supersede, fates })
}

/// A hold as its client could rely on it.
#[derive(Clone, Debug)]
struct Held {
    mode: Mode,
    slot: Option<u32>,
    token: u64,
    from: Moment,
    to: Moment,
}

async fn live(world: Arc<World>, id: u128, life: Life, modes: [Mode; 2]) -> Option<Held> {
    tokio::time::sleep(Duration::from_millis(life.starts)).await;
    world.store.expect(&life.fates);
    let request = Request { supersede: life.supersede, ..request(id, modes[life.mode]) };
    let until = world.clock.now() + TTL * 3;
    let claim = loop {
        match world.queues.enter(&request, world.soon()).await {
            Ok(claim) => break claim,
            Err(error) if error.is_transient() && world.clock.now() < until => {}
            Err(_) => {
                while world.queues.withdraw(&request, world.soon()).await.is_err() {}
                return None;
            }
        }
    };
    let mut held = None;
    let mut seen = None;
    let mut renew_at = world.clock.now() + TTL / 3;
    while world.clock.now() < until && held.is_none() {
        let deadline = renew_at.min(until);
        tokio::select! {
            state = claim.changed(seen.as_ref()) => match state {
                Ok(ClaimState::Held(grant)) => {
                    let (granted, from) = (grant.names[0], world.clock.now());
                    let mode = modes[life.mode];
                    held = Some(Held { mode, slot: granted.slot, token: granted.token.get(), from, to: from });
                }
                Ok(state) if state.is_final() => return None,
                Ok(state) => seen = Some(state),
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            },
            () = world.clock.sleep_until(deadline) => {
                drop(claim.renew(world.soon()).await);
                renew_at = world.clock.now() + TTL / 3;
            }
        }
    }
    if let Some(held) = &mut held {
        tokio::time::sleep(Duration::from_millis(life.works)).await;
        held.to = world.clock.now();
    }
    while claim.leave(held.is_some(), world.soon()).await.is_err() {}
    held
}

#[test]
fn random_schedules_with_lost_answers_keep_order_and_exclusion() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let holds = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(Config { cases: 100, ..Config::default() });
    let plan = (prop::collection::vec(life(), 2..9), any::<bool>(), any::<bool>());
    let run = runner.run(&plan, |(lives, late_tokens, with_slots)| {
        let modes = if with_slots { [slots(2), slots(2)] } else { [Mode::Exclusive, Mode::Shared] };
        let all = runtime().expect("a runtime").block_on(async {
            let world = Arc::new(World::new(late_tokens));
            let each = lives.into_iter().enumerate();
            let tasks: Vec<_> = each
                .map(|(at, life)| tokio::spawn(live(Arc::clone(&world), at as u128 + 1, life, modes)))
                .collect();
            let mut all = Vec::new();
            for task in tasks {
                all.extend(task.await.expect("no panic"));
            }
            all
        });
        holds.set(holds.get() + all.len());
        for (at, one) in all.iter().enumerate() {
            for other in &all[at + 1..] {
                let overlap = one.from < other.to && other.from < one.to;
                let may = match (one.mode, other.mode) {
                    (Mode::Shared, Mode::Shared) => true,
                    (Mode::Slots(_), Mode::Slots(_)) => one.slot != other.slot,
                    _ => false,
                };
                prop_assert!(!overlap || may, "{one:?} beside {other:?}");
                let (first, last) = if one.to <= other.from { (one, other) } else { (other, one) };
                if !with_slots && first.to <= last.from {
                    prop_assert!(
                        first.mode == Mode::Shared && last.mode == Mode::Shared || first.token < last.token,
                        "{first:?} before {last:?}"
                    );
                }
            }
        }
        Ok(())
    });
    run.expect("order and exclusion");
    assert!(holds.get() > 130, "only {} holds", holds.get());
}
