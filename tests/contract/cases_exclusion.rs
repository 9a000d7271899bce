//! C01: the claims that may hold together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dlock::lock::{ClaimState, LockName, Mode, Request, queue};

use crate::bench::{Bench, Member, slots};
use crate::cases::cases;

cases![
    c01_another_id_of_the_same_holder_waits[],
    c01_pairs_of_modes[],
    c01_slots_exhausted_and_returned[],
    c01_slots_are_all_different_in_any_order_of_looks[],
    c01_simultaneous_claims_hold_one_by_one[],
    c01_queue_always_satisfies_the_grant_rule[Queue, Shared],
    c01_several_names_hold_all_or_none[AtomicNames],
    c01_several_names_in_opposite_orders_never_deadlock[AtomicNames],
    c01_several_names_share[AtomicNames, Shared],
    c01_several_names_with_slots_wait_with_one_place_on_each[AtomicNames],
];

async fn c01_another_id_of_the_same_holder_waits(b: Bench) {
    let a = b.hold(b.ask(&b.name("a"))).await;
    let mut again = b.ask(&b.name("a"));
    again.holder = a.request.holder.clone();
    let again = b.enter_with(&a.client, again).await;
    again.waits().await;
    a.leave().await;
    again.held().await;
}

async fn c01_pairs_of_modes(b: Bench) {
    use Mode::{Exclusive as X, Shared as S};
    let table = [
        (X, X, false),
        (X, S, false),
        (S, X, false),
        (S, S, true),
        (slots(1), slots(1), false),
        (slots(2), slots(2), true),
    ];
    for (i, (first, second, together)) in table.into_iter().enumerate() {
        if b.offered(&[first, second]).len() < 2 {
            continue;
        }
        let lock = b.name(&i.to_string());
        let a = b.hold(b.ask_as(&lock, first)).await;
        let c = b.enter(b.ask_as(&lock, second)).await;
        if together {
            c.held().await;
        } else {
            c.waits().await;
            a.still_holds().await;
            a.leave().await;
            c.held().await;
        }
    }
}

async fn c01_slots_exhausted_and_returned(b: Bench) {
    let lock = b.name("a");
    let mut taken = Vec::new();
    let mut holders = Vec::new();
    for _ in 0..3 {
        let member = b.enter(b.ask_as(&lock, slots(3))).await;
        taken.extend(member.held().await.names[0].slot);
        holders.push(member);
    }
    taken.sort_unstable();
    assert_eq!(taken, [1, 2, 3], "each slot once");
    let fourth = b.enter(b.ask_as(&lock, slots(3))).await;
    fourth.waits().await;
    holders.remove(1).leave().await;
    fourth.held().await;
    let fifth = b.enter(b.ask_as(&lock, slots(3))).await;
    fifth.waits().await;
}

/// Of two claims that may hold, the second in the queue may notice first.
async fn c01_slots_are_all_different_in_any_order_of_looks(b: Bench) {
    let lock = b.name("a");
    let mut members = Vec::new();
    for _ in 0..4 {
        members.push(b.enter(b.ask_as(&lock, slots(2))).await);
    }
    let (fourth, third) = (members.pop().expect("four"), members.pop().expect("four"));
    for holder in &members {
        holder.held().await;
    }
    third.waits().await;
    fourth.waits().await;
    for holder in members {
        holder.leave().await;
    }
    // If the second claim waits until the first has polled, it gets its slot later.
    fourth.held_by(b.clock.now() + b.fixture.blink() * 10).await;
    assert_ne!(third.held().await.names[0].slot, fourth.held().await.names[0].slot);
}

/// Claims that enter at the same moment may learn of each other in different orders, wherever the service keeps its
/// queues.
async fn c01_simultaneous_claims_hold_one_by_one(b: Bench) {
    let mut clients = Vec::new();
    for _ in 0..5 {
        let client = b.connect().await;
        client.inspect(&b.name("other"), b.soon()).await.expect("inspects");
        clients.push(client);
    }
    for round in 0..8 {
        let lock = b.name(&round.to_string());
        let entering = clients.iter().map(|client| {
            let (b, client, request) = (b.clone(), client.clone(), b.ask(&lock));
            tokio::spawn(async move { b.enter_with(&client, request).await })
        });
        let mut members = Vec::new();
        for one in entering.collect::<Vec<_>>() {
            members.push(one.await.expect("enters"));
        }
        while !members.is_empty() {
            let holder = first_of(&b, &members).await;
            for (n, member) in members.iter().enumerate().filter(|(n, _)| *n != holder) {
                let state = member.state().await;
                assert!(matches!(state, ClaimState::Waiting { .. }), "{n} beside {holder}: {state:?}");
            }
            members.remove(holder).leave().await;
        }
    }
}

/// Returns the first of them to hold, as one must soon.
async fn first_of(b: &Bench, members: &[Member]) -> usize {
    let deadline = b.soon();
    loop {
        for (n, member) in members.iter().enumerate() {
            if matches!(member.state().await, ClaimState::Held(_)) {
                return n;
            }
        }
        assert!(b.clock.now() < deadline, "no claim holds");
        b.sleep(std::time::Duration::from_millis(1)).await;
    }
}

async fn c01_queue_always_satisfies_the_grant_rule(b: Bench) {
    let lock = b.name("a");
    let mut members = Vec::new();
    for _ in 0..40 {
        if members.len() < 2 || b.random(3) > 0 {
            let mode = if b.random(2) == 0 { Mode::Exclusive } else { Mode::Shared };
            members.push(b.enter(b.ask_as(&lock, mode)).await);
        } else {
            let gone = usize::try_from(b.random(members.len() as u64)).expect("small");
            members.remove(gone).leave().await;
        }
        let modes: Vec<Mode> = members.iter().map(|m| m.request.mode).collect();
        for (i, member) in members.iter().enumerate() {
            if i < queue::held(&modes) {
                member.held().await;
            } else {
                let state = member.state().await;
                assert!(
                    matches!(state, dlock::lock::ClaimState::Waiting { .. }),
                    "{i} of {modes:?}: {state:?}"
                );
            }
        }
    }
}

async fn c01_several_names_hold_all_or_none(b: Bench) {
    let (x, y) = (b.name("x"), b.name("y"));
    let on_y = b.hold(b.ask(&y)).await;
    let both = b.enter(b.ask_all(&[x.clone(), y.clone()])).await;
    both.waits().await;
    on_y.leave().await;
    let grant = both.held().await;
    assert_eq!(grant.names.len(), 2);
    both.leave().await;
    b.hold(b.ask(&x)).await;
    b.hold(b.ask(&y)).await;
}

async fn c01_several_names_share(b: Bench) {
    let (x, y) = (b.name("x"), b.name("y"));
    let mut both = b.ask_all(&[x.clone(), y.clone()]);
    both.mode = Mode::Shared;
    let both = b.hold(both).await;
    let reader = b.hold(b.ask_as(&y, Mode::Shared)).await;
    let writer = b.enter(b.ask(&x)).await;
    writer.waits().await;
    both.leave().await;
    writer.held().await;
    reader.still_holds().await;
}

/// Creates two holders of `x`, which has two slots, and a waiter for `x` and `y`.
async fn waits_for_x(b: &Bench, y: &LockName) -> ([Member; 2], Member) {
    let x = b.name("x");
    let on_x = [b.hold(b.ask_as(&x, slots(2))).await, b.hold(b.ask_as(&x, slots(2))).await];
    let both = b.enter(Request { mode: slots(2), ..b.ask_all(&[x, y.clone()]) }).await;
    both.waits().await;
    (on_x, both)
}

/// A claim that waits for another name has one place here. Other claims get the rest.
async fn c01_several_names_with_slots_wait_with_one_place_on_each(b: Bench) {
    let y = b.name("y");
    let ([on_x, _also_on_x], both) = waits_for_x(&b, &y).await;
    let on_y = b.enter(b.ask_as(&y, slots(2))).await;
    let slot = on_y.held().await.names[0].slot;
    let third = b.enter(b.ask_as(&y, slots(2))).await;
    third.waits().await;
    both.waits().await;
    on_x.leave().await;
    assert_ne!(both.held().await.names[1].slot, slot);
    on_y.still_holds().await;
    third.waits().await;
    both.leave().await;
    third.held().await;
}

async fn c01_several_names_in_opposite_orders_never_deadlock(b: Bench) {
    for (mode, most) in [(Mode::Exclusive, 1), (slots(2), 2)] {
        let names = ["x", "y", "z"].map(|name| b.name(&format!("{name}{most}")));
        let inside = Arc::new(names.each_ref().map(|_| AtomicUsize::new(0)));
        let clients: Vec<_> = (0..9)
            .map(|i| {
                let (b, inside) = (b.clone(), inside.clone());
                let mut order: Vec<(usize, LockName)> = names.iter().cloned().enumerate().collect();
                order.rotate_left(i % 3);
                if i % 2 == 1 {
                    order.reverse();
                }
                order.truncate(1 + i % 3);
                tokio::spawn(async move {
                    let client = b.connect().await;
                    let asked: Vec<LockName> = order.iter().map(|(_, name)| name.clone()).collect();
                    for _ in 0..4 {
                        let request = Request { mode, ..b.ask_all(&asked) };
                        let member = b.enter_with(&client, request).await;
                        let deadline = b.clock.now() + b.fixture.patience() * 100;
                        member.held_by(deadline).await.expect("its turn comes");
                        for (at, _) in &order {
                            assert!(inside[*at].fetch_add(1, Ordering::SeqCst) < most, "{most} at most");
                        }
                        tokio::task::yield_now().await;
                        for (at, _) in &order {
                            inside[*at].fetch_sub(1, Ordering::SeqCst);
                        }
                        member.leave().await;
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.expect("no client fails");
        }
    }
}
