//! C02: order of arrival, withdrawing, superseding, deadlocks.

use dlock::lock::{Ancestor, ClaimState, ErrorKind, Mode, Request, queue};

use crate::bench::{Bench, Member, slots};
use crate::cases::cases;

cases![
    c02_slots_are_given_in_order[Queue],
    c02_ahead_only_falls_and_ends_with_the_hold[Queue],
    c02_writer_is_not_starved[Queue, Shared],
    c02_supersede_removes_older_superseding_waiters[Queue],
    c02_supersede_spares_holders_and_others[Queue],
    c02_deadlock_exclusive_under_own_shared_hold[Shared],
    c02_deadlock_one_slot_under_itself[],
    c02_deadlock_refuses_the_later_of_two[Queue],
    c02_deadlock_closed_by_two_at_once_refuses_one[Queue],
    c02_deadlock_through_a_claim_on_two_names[AtomicNames],
    c02_deadlock_through_a_waiter_ahead[Queue, Shared],
    c02_nested_waits_without_a_cycle_are_none[],
];

async fn c02_slots_are_given_in_order(b: Bench) {
    let lock = b.name("a");
    let mut members = Vec::new();
    for _ in 0..7 {
        members.push(b.enter(b.ask_as(&lock, slots(3))).await);
    }
    while !members.is_empty() {
        let modes: Vec<Mode> = members.iter().map(|m| m.request.mode).collect();
        let held = queue::held(&modes);
        for member in &members[..held] {
            member.held().await;
        }
        for member in &members[held..] {
            let state = member.state().await;
            assert!(matches!(state, ClaimState::Waiting { .. }), "{state:?} before its turn in {modes:?}");
        }
        members.remove(0).leave().await;
    }
}

async fn c02_ahead_only_falls_and_ends_with_the_hold(b: Bench) {
    let lock = b.name("a");
    let mut before = Vec::new();
    for _ in 0..5 {
        before.push(b.enter(b.ask(&lock)).await);
    }
    let last = b.enter(b.ask(&lock)).await;
    let mut state = last.state().await;
    let mut fewest = u32::MAX;
    let mut falls = 0;
    while let ClaimState::Waiting { ahead, .. } = &state {
        // A late answer may show the queue between two departures.
        let ahead = ahead.expect("a queue in order knows");
        assert!(ahead <= fewest, "{ahead} after {fewest}");
        falls += u32::from(ahead < fewest);
        fewest = ahead;
        if ahead as usize == before.len() {
            // A waiter is notified of the claim directly ahead. It learns of the others then, or when it renews.
            if before.len() > 1 {
                before.remove(0).leave().await;
            }
            if let Some(nearest) = before.pop() {
                nearest.leave().await;
            }
            last.renew().await;
        }
        state = b.by(b.soon(), last.next(Some(&state))).await.expect("departures ahead are told");
    }
    assert!(matches!(state, ClaimState::Held(_)), "{state:?}");
    assert_eq!(fewest, 1);
    // Two departures at a time, if it learns of them together.
    assert!((3..=5).contains(&falls), "{falls}");
}

async fn c02_writer_is_not_starved(b: Bench) {
    let lock = b.name("a");
    let reader = b.hold(b.ask_as(&lock, Mode::Shared)).await;
    let writer = b.enter(b.ask(&lock)).await;
    let late = b.enter(b.ask_as(&lock, Mode::Shared)).await;
    late.waits().await;
    reader.leave().await;
    writer.held().await;
    late.waits().await;
    writer.leave().await;
    late.held().await;
}

fn newest(request: Request) -> Request {
    Request { supersede: true, ..request }
}

async fn c02_supersede_removes_older_superseding_waiters(b: Bench) {
    let lock = b.name("a");
    let holder = b.hold(b.ask(&lock)).await;
    let one = b.enter(newest(b.ask(&lock))).await;
    one.waits().await;
    let two = b.enter(newest(b.ask(&lock))).await;
    let by = one.until(b.soon(), |state| match state {
        ClaimState::Superseded { by } => Some(by.clone()),
        _ => None,
    });
    assert_eq!(by.await.as_ref(), Some(&two.request.holder), "says who came after it");
    two.waits().await;
    assert_eq!(b.ids(&lock).await, (vec![holder.id()], vec![two.id()]));
    one.leave().await;
    holder.leave().await;
    two.held().await;
}

async fn c02_supersede_spares_holders_and_others(b: Bench) {
    let lock = b.name("a");
    let holder = b.hold(newest(b.ask(&lock))).await;
    let other = b.enter(b.ask(&lock)).await;
    let new = b.enter(newest(b.ask(&lock))).await;
    other.waits().await;
    holder.still_holds().await;
    assert_eq!(b.ids(&lock).await, (vec![holder.id()], vec![other.id(), new.id()]));
}

fn inside(outer: &Member, request: Request) -> Request {
    let mut ancestors = outer.request.ancestors.clone();
    ancestors.push(Ancestor { claim: outer.id(), names: outer.request.names.clone() });
    Request { ancestors, ..request }
}

/// Expects that `request` is refused as a deadlock whose message has `words`, and leaves no entry.
async fn refused(b: &Bench, request: &Request, words: &[String]) {
    let line = b.ids(&request.names[0]).await;
    let error = b.try_enter(request).await.expect_err("the wait would never end");
    assert_eq!(error.kind, ErrorKind::Deadlock, "{error}");
    for word in words {
        assert!(error.reason.to_string().contains(word), "{word} is in: {}", error.reason);
    }
    assert_eq!(b.ids(&request.names[0]).await, line, "the entry is gone again");
}

async fn c02_deadlock_exclusive_under_own_shared_hold(b: Bench) {
    let lock = b.name("a");
    let outer = b.hold(b.ask_as(&lock, Mode::Shared)).await;
    let words = [lock.to_string(), outer.request.holder.user.clone()];
    refused(&b, &inside(&outer, b.ask(&lock)), &words).await;
    b.hold(inside(&outer, b.ask_as(&lock, Mode::Shared))).await;
}

async fn c02_deadlock_one_slot_under_itself(b: Bench) {
    let lock = b.name("a");
    let outer = b.hold(b.ask_as(&lock, slots(1))).await;
    refused(&b, &inside(&outer, b.ask_as(&lock, slots(1))), &[lock.to_string()]).await;
}

async fn c02_deadlock_refuses_the_later_of_two(b: Bench) {
    let (x, y) = (b.name("x"), b.name("y"));
    let one = b.hold(b.ask(&x)).await;
    let two = b.hold(b.ask(&y)).await;
    let first = b.enter(inside(&one, b.ask(&y))).await;
    first.waits().await;
    let words = [&one, &two].map(|m| m.request.holder.user.clone());
    refused(&b, &inside(&two, b.ask(&x)), &[x.to_string(), y.to_string()]).await;
    refused(&b, &inside(&two, b.ask(&x)), &words).await;
    two.leave().await;
    first.held().await;
}

async fn c02_deadlock_closed_by_two_at_once_refuses_one(b: Bench) {
    for round in 0..5 {
        let (x, y) = (b.name(&format!("x{round}")), b.name(&format!("y{round}")));
        let one = b.hold(b.ask(&x)).await;
        let two = b.hold(b.ask(&y)).await;
        let (first, second) = (inside(&one, b.ask(&y)), inside(&two, b.ask(&x)));
        let (first, second) = tokio::join!(b.try_enter(&first), b.try_enter(&second));
        let ((Ok(_), Err(refused)) | (Err(refused), Ok(_))) = (&first, &second) else {
            panic!("one of the two waits: {first:?}, {second:?}");
        };
        assert_eq!(refused.kind, ErrorKind::Deadlock, "{refused}");
    }
}

/// A claim on two names waits for the first. A nested claim waits behind it for the second.
async fn c02_deadlock_through_a_claim_on_two_names(b: Bench) {
    let (x, y, z) = (b.name("x"), b.name("y"), b.name("z"));
    let one = b.hold(b.ask(&x)).await;
    let two = b.hold(b.ask(&y)).await;
    let both = b.enter(b.ask_all(&[x.clone(), z.clone()])).await;
    both.waits().await;
    let behind = b.enter(inside(&two, b.ask(&z))).await;
    behind.waits().await;
    refused(&b, &inside(&one, b.ask(&y)), &[x.to_string(), y.to_string(), z.to_string()]).await;
    one.leave().await;
    both.held().await;
}

/// The nested claim waits for a waiter. The waiter waits for the nested claim's ancestor.
async fn c02_deadlock_through_a_waiter_ahead(b: Bench) {
    let lock = b.name("a");
    let outer = b.hold(b.ask_as(&lock, Mode::Shared)).await;
    let writer = b.enter(b.ask(&lock)).await;
    refused(
        &b,
        &inside(&outer, b.ask_as(&lock, Mode::Shared)),
        std::slice::from_ref(&writer.request.holder.user),
    )
    .await;
}

async fn c02_nested_waits_without_a_cycle_are_none(b: Bench) {
    let (x, y) = (b.name("x"), b.name("y"));
    let outer = b.hold(b.ask(&x)).await;
    let one = b.hold(inside(&outer, b.ask(&y))).await;
    let sibling = b.enter(inside(&outer, b.ask(&y))).await;
    sibling.waits().await;
    one.leave().await;
    sibling.held().await;
}
