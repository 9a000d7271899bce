//! Random schedules of claims, whose requests are lost, unanswered or late.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;

/// The acts of one claim in a random schedule.
#[derive(Clone, Debug)]
struct Life {
    mode: usize,
    starts: u64,
    works: u64,
    supersede: bool,
    mishaps: Vec<Option<Mishap>>,
    /// After how many milliseconds its late requests are executed.
    late: u64,
}

fn life() -> impl Strategy<Value = Life> {
    let mishap = prop_oneof![
        6 => Just(None),
        1 => Just(Some(Mishap::RequestLost)),
        1 => Just(Some(Mishap::AnswerLost)),
        1 => Just(Some(Mishap::Late)),
    ];
    let mishaps = prop::collection::vec(mishap, 0..8);
    (0usize..2, 0u64..4000, 1u64..3000, any::<bool>(), mishaps, 1u64..6000).prop_map(
        |(mode, starts, works, supersede, mishaps, late)| Life {
            mode,
            starts,
            works,
            supersede,
            mishaps,
            late,
        },
    )
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

async fn live(scene: Arc<Scene>, n: u128, life: Life, modes: [Mode; 2]) -> Option<Held> {
    let (clock, client, mode) = (scene.clock, scene.client(), modes[life.mode]);
    scene.sleep(Duration::from_millis(life.starts)).await;
    scene.fake.expect(&life.mishaps);
    let late = Arc::clone(&scene);
    tokio::spawn(async move {
        late.sleep(Duration::from_millis(life.late)).await;
        late.fake.deliver();
    });
    let request = Request { mode, supersede: life.supersede, ..request(n, &["a"]) };
    let until = clock.now() + TTL * 3;
    let claim = loop {
        match client.enter(&request, scene.soon()).await {
            Ok(claim) => break claim,
            Err(error) if error.is_transient() && clock.now() < until => {}
            Err(_) => {
                while client.withdraw(&request, scene.soon()).await.is_err() {}
                return None;
            }
        }
    };
    let mut held = None;
    let mut seen = None;
    let mut renew_at = clock.now() + TTL / 3;
    while clock.now() < until && held.is_none() {
        tokio::select! {
            state = claim.changed(seen.as_ref()) => match state {
                Ok(ClaimState::Held(grant)) => {
                    let (granted, from) = (grant.names[0], clock.now());
                    held = Some(Held { mode, slot: granted.slot, token: granted.token.get(), from, to: from });
                }
                Ok(state) if state.is_final() => return None,
                Ok(state) => seen = Some(state),
                Err(_) => scene.sleep(Duration::from_millis(1)).await,
            },
            () = clock.sleep_until(renew_at.min(until)) => {
                drop(claim.renew(scene.soon()).await);
                renew_at = clock.now() + TTL / 3;
            }
        }
    }
    if let Some(held) = &mut held {
        scene.sleep(Duration::from_millis(life.works)).await;
        held.to = clock.now();
    }
    while claim.leave(held.is_some(), scene.soon()).await.is_err() {}
    held
}

#[test]
fn random_schedules_with_lost_answers_keep_order_and_exclusion() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let holds = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(Config { cases: 100, ..Config::default() });
    let plan = (prop::collection::vec(life(), 2..9), any::<bool>());
    let run = runner.run(&plan, |(lives, with_slots)| {
        let slots = Mode::Slots(2.try_into().expect("positive"));
        let modes = if with_slots { [slots; 2] } else { [Mode::Exclusive, Mode::Shared] };
        let all = runtime().expect("a runtime").block_on(async {
            let scene = Arc::new(Scene::new());
            let each = lives.into_iter().zip(1..);
            let tasks: Vec<_> =
                each.map(|(life, n)| tokio::spawn(live(Arc::clone(&scene), n, life, modes))).collect();
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
