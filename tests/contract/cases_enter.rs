//! C05, C06, C08: repeated, dropped and lost calls.

use std::future::Future;
use std::time::Duration;

use dlock::backend::Evict;
use dlock::lock::{ClaimState, LossReason, Mode, Moment};

use crate::bench::{Bench, slots};
use crate::cases::cases;

cases![
    c05_same_id_twice_is_one_entry[],
    c05_same_id_twice_waits_once[Queue],
    c05_dropped_enter_on_a_free_lock_can_be_undone[],
    c05_dropped_enter_behind_a_holder_can_be_undone[],
    c05_dropped_enter_can_be_repeated[],
    c05_enter_after_its_eviction_stays_out[Overtaking],
    c06_dropping_changed_200_times_loses_nothing[],
    c06_dropping_changed_loses_no_loss[Queue],
    c06_nothing_new_is_not_told[],
    c06_loss_wakes_a_listener[Queue],
    c08_try_leaves_nothing[],
    c08_leaving_twice_is_no_error[],
    c08_leaving_after_a_loss_is_no_error[Sever],
    c08_dropped_leave_can_be_repeated[],
    c08_success_is_recorded_and_ages[],
    c08_failure_is_not_recorded[],
    c08_the_last_success_is_of_the_last_to_acquire[],
];

async fn c05_same_id_twice_is_one_entry(b: Bench) {
    let lock = b.name("a");
    let request = b.ask(&lock);
    let client = b.connect().await;
    let one = b.enter_with(&client, request.clone()).await;
    let grant = one.held().await;
    let two = b.enter_with(&client, request).await;
    assert_eq!(two.held().await.names, grant.names);
    assert_eq!(b.ids(&lock).await, (vec![one.id()], vec![]));
    one.leave().await;
    assert!(b.line(&lock).await.is_empty());
}

async fn c05_same_id_twice_waits_once(b: Bench) {
    let lock = b.name("a");
    let holder = b.hold(b.ask(&lock)).await;
    let request = b.ask(&lock);
    let client = b.connect().await;
    let one = b.enter_with(&client, request.clone()).await;
    let _two = b.enter_with(&client, request).await;
    assert_eq!(b.ids(&lock).await, (vec![holder.id()], vec![one.id()]));
}

/// Polls `work` up to `polls` + 1 times and, from four on, for a random moment more; then drops it.
async fn drop_after<T>(b: &Bench, polls: u64, work: impl Future<Output = T>) -> Option<T> {
    let cut = async {
        for _ in 0..polls {
            tokio::task::yield_now().await;
        }
        if polls >= 4 {
            b.sleep(Duration::from_micros(b.random(2000))).await;
        }
    };
    tokio::select! {
        biased;
        value = work => Some(value),
        () = cut => None,
    }
}

async fn c05_dropped_enter_on_a_free_lock_can_be_undone(b: Bench) {
    for polls in 0..8 {
        let names = [b.name(&format!("{polls}-a")), b.name(&format!("{polls}-b"))];
        let client = b.connect().await;
        let names = b.in_one_step(&names);
        let request = b.ask_all(names);
        drop(drop_after(&b, polls, client.enter(&request, b.soon())).await);
        client.withdraw(&request, b.soon()).await.expect("a service that answers");
        for name in names {
            assert!(b.line(name).await.is_empty(), "after {polls} polls");
        }
    }
}

async fn c05_dropped_enter_behind_a_holder_can_be_undone(b: Bench) {
    for polls in 0..8 {
        let lock = b.name(&polls.to_string());
        let holder = b.hold(b.ask(&lock)).await;
        let request = b.ask(&lock);
        let client = b.connect().await;
        drop(drop_after(&b, polls, client.enter(&request, b.soon())).await);
        client.withdraw(&request, b.soon()).await.expect("a service that answers");
        assert_eq!(b.ids(&lock).await, (vec![holder.id()], vec![]), "after {polls} polls");
    }
}

async fn c05_dropped_enter_can_be_repeated(b: Bench) {
    for polls in 0..8 {
        let lock = b.name(&polls.to_string());
        let request = b.ask(&lock);
        let client = b.connect().await;
        drop(drop_after(&b, polls, client.enter(&request, b.soon())).await);
        let member = b.enter_with(&client, request).await;
        member.held().await;
        assert_eq!(b.ids(&lock).await, (vec![member.id()], vec![]), "after {polls} polls");
    }
}

/// An eviction overtakes a request to enter whose call was dropped.
async fn c05_enter_after_its_eviction_stays_out(b: Bench) {
    let lock = b.name("a");
    let request = b.ask(&lock);
    let client = b.connect().await;
    assert!(!b.evict(&lock, request.id, Evict::Force).await.0, "it was not there");
    let entered = client.enter(&request, b.soon()).await;
    assert!(b.line(&lock).await.is_empty(), "came after all: {entered:?}");
    if let Ok(claim) = entered {
        let state = b.by(b.soon(), claim.changed(None)).await;
        assert!(matches!(state, Some(Ok(ClaimState::Lost(LossReason::Evicted(_))))), "{state:?}");
    }
    b.hold(b.ask(&lock)).await;
}

/// `changed` is dropped at random points while ten claims hand over. Each still sees its hold.
async fn c06_dropping_changed_200_times_loses_nothing(b: Bench) {
    let lock = b.name("a");
    let mut dropped = 0;
    let mut before = b.hold(b.ask(&lock)).await;
    while dropped < 200 {
        let member = b.enter(b.ask(&lock)).await;
        let mut seen = Some(member.state().await);
        let leave_at = b.random(20);
        for round in 0..20 {
            if round == leave_at {
                before.leave().await;
            }
            let polls = b.random(8);
            match drop_after(&b, polls, member.claim.changed(seen.as_ref())).await {
                Some(state) => seen = Some(state.expect("follows")),
                None => dropped += 1,
            }
        }
        while !matches!(seen, Some(ClaimState::Held(_))) {
            let next = b.by(b.soon(), member.next(seen.as_ref())).await;
            seen = Some(next.expect("the hold is reported, whatever was dropped before"));
        }
        before = member;
    }
}

async fn c06_dropping_changed_loses_no_loss(b: Bench) {
    for polls in 0..6 {
        let lock = b.name(&polls.to_string());
        let holder = b.hold(b.ask(&lock)).await;
        let waiter = b.enter(b.ask(&lock)).await;
        let seen = waiter.state().await;
        b.evict(&lock, waiter.id(), Evict::Force).await;
        drop(drop_after(&b, polls, waiter.claim.changed(Some(&seen))).await);
        waiter.lost().await;
        holder.leave().await;
    }
}

async fn c06_nothing_new_is_not_told(b: Bench) {
    let lock = b.name("a");
    let holder = b.hold(b.ask(&lock)).await;
    let waiter = b.enter(b.ask(&lock)).await;
    for member in [&holder, &waiter] {
        let seen = member.state().await;
        member.renew().await;
        let quiet = b.clock.now() + b.fixture.blink();
        assert_eq!(b.by(quiet, member.next(Some(&seen))).await, None);
    }
}

async fn c06_loss_wakes_a_listener(b: Bench) {
    let lock = b.name("a");
    let _holder = b.hold(b.ask(&lock)).await;
    let waiter = b.enter(b.ask(&lock)).await;
    let seen = waiter.state().await;
    let evict = async {
        b.evict(&lock, waiter.id(), Evict::Force).await;
        if !b.fixture.tells_waiters() {
            waiter.renew().await;
        }
    };
    let (state, ()) = tokio::join!(b.by(b.soon(), waiter.next(Some(&seen))), evict);
    assert!(matches!(state, Some(ClaimState::Lost(_))), "{state:?}");
}

async fn c08_try_leaves_nothing(b: Bench) {
    use Mode::{Exclusive as X, Shared as S};
    for (n, (first, second)) in [(X, X), (slots(1), slots(1)), (X, S)].into_iter().enumerate() {
        if b.offered(&[first, second]).len() < 2 {
            continue;
        }
        let lock = b.name(&n.to_string());
        let first = b.hold(b.ask_as(&lock, first)).await;
        let second = b.enter(b.ask_as(&lock, second)).await;
        assert!(matches!(second.state().await, ClaimState::Waiting { .. }));
        second.leave().await;
        assert_eq!(b.ids(&lock).await, (vec![first.id()], vec![]));
        first.leave().await;
        b.hold(b.ask_as(&lock, second.request.mode)).await;
    }
}

async fn c08_leaving_twice_is_no_error(b: Bench) {
    let lock = b.name("a");
    let holder = b.hold(b.ask(&lock)).await;
    let waiter = b.enter(b.ask(&lock)).await;
    let next = b.enter(b.ask(&lock)).await;
    waiter.leave().await;
    waiter.leave().await;
    holder.leave().await;
    holder.leave().await;
    next.held().await;
    holder.leave().await;
    next.still_holds().await;
}

async fn c08_leaving_after_a_loss_is_no_error(b: Bench) {
    let lock = b.name("a");
    let a = b.hold(b.ask(&lock)).await;
    b.fixture.sever(a.id(), &lock).await;
    a.renew().await;
    a.lost().await;
    let next = b.enter(b.ask(&lock)).await;
    a.leave().await;
    next.held().await;
    a.leave().await;
    next.still_holds().await;
}

async fn c08_dropped_leave_can_be_repeated(b: Bench) {
    let lock = b.name("a");
    for polls in 0..6 {
        let member = b.hold(b.ask(&lock)).await;
        drop(drop_after(&b, polls, member.claim.leave(false, b.soon())).await);
        member.leave().await;
        assert!(b.line(&lock).await.is_empty(), "after {polls} polls");
    }
}

async fn c08_success_is_recorded_and_ages(b: Bench) {
    let lock = b.name("a");
    let client = b.connect().await;
    assert_eq!(client.last_success(&lock, b.soon()).await.expect("reads"), None);
    let before: Moment = b.clock.now();
    let member = b.hold(b.ask(&lock)).await;
    let after = b.clock.now();
    b.sleep(b.fixture.blink()).await;
    member.finish(true).await;
    b.sleep(b.fixture.blink()).await;
    let asked = b.clock.now();
    let age = client.last_success(&lock, b.soon()).await.expect("reads").expect("recorded");
    // Some services count in seconds.
    let slack = Duration::from_secs(1);
    assert!(age + slack >= asked.since(after) && age <= b.clock.now().since(before) + slack, "{age:?}");
    assert_eq!(client.last_success(&b.name("other"), b.soon()).await.expect("reads"), None);
}

async fn c08_failure_is_not_recorded(b: Bench) {
    let lock = b.name("a");
    let client = b.connect().await;
    let member = b.hold(b.ask(&lock)).await;
    member.finish(false).await;
    assert_eq!(client.last_success(&lock, b.soon()).await.expect("reads"), None);
    b.hold(b.ask(&lock)).await.finish(true).await;
    b.hold(b.ask(&lock)).await.finish(false).await;
    assert!(client.last_success(&lock, b.soon()).await.expect("reads").is_some(), "the earlier one stays");
}

/// A claim that holds together with others may end after one that acquired later.
async fn c08_the_last_success_is_of_the_last_to_acquire(b: Bench) {
    for mode in b.offered(&[Mode::Shared, slots(3)]) {
        the_last_success_is_of_the_last_to_acquire(&b, mode).await;
    }
}

async fn the_last_success_is_of_the_last_to_acquire(b: &Bench, mode: Mode) {
    let lock = b.name(&mode.to_string());
    let first = b.hold(b.ask_as(&lock, mode)).await;
    let longest = b.hold(b.ask_as(&lock, mode)).await;
    // Some services count in seconds, both when they record a success and when they report its age.
    let unit = Duration::from_secs(1);
    b.sleep(3 * unit).await;
    let before: Moment = b.clock.now();
    let last = b.hold(b.ask_as(&lock, mode)).await;
    let after = b.clock.now();

    first.finish(true).await;
    let asked = b.clock.now();
    let age = last.client.last_success(&lock, b.soon()).await.expect("reads").expect("recorded");
    assert!(age + unit > asked.since(before), "the only success is that of the first: {age:?}");

    let failed = b.hold(b.ask_as(&lock, mode)).await;
    for (member, succeeded) in [(&last, true), (&longest, true), (&failed, false)] {
        member.finish(succeeded).await;
        let asked = b.clock.now();
        let age = b.connect().await.last_success(&lock, b.soon()).await.expect("reads").expect("recorded");
        let now = b.clock.now();
        assert!(
            age + unit >= asked.since(after) && age <= now.since(before) + unit,
            "it was acquired {:?} ago, not {age:?}",
            now.since(before)
        );
    }
}
