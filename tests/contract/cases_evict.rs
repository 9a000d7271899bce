//! C09: evicting a claim.

use dlock::backend::Evict;
use dlock::lock::{ClaimState, LossReason};

use crate::bench::Bench;
use crate::cases::cases;

cases![
    c09_stale_id_leaves_the_new_holder[],
    c09_id_of_another_lock_evicts_no_claim[],
    c09_evicted_holder_learns_its_evicter[],
    c09_asked_holder_learns_and_stays_until_it_leaves[],
    c09_waiter_is_evicted[Queue],
    c09_claim_on_several_names_goes_whole[AtomicNames],
    c09_only_a_holder_publishes[],
];

async fn c09_stale_id_leaves_the_new_holder(b: Bench) {
    let lock = b.name("a");
    let old = b.hold(b.ask(&lock)).await;
    let new = b.enter(b.ask(&lock)).await;
    old.leave().await;
    new.held().await;
    for how in [Evict::Ask, Evict::Force] {
        let (found, _) = b.evict(&lock, old.id(), how).await;
        assert!(!found, "{how:?} of an entry that is gone");
    }
    new.still_holds().await;
}

async fn c09_id_of_another_lock_evicts_no_claim(b: Bench) {
    let here = b.hold(b.ask(&b.name("here"))).await;
    let there = b.hold(b.ask(&b.name("there"))).await;
    // Some claims listen only after they have held for a moment.
    for claim in [&here, &there, &here, &there] {
        claim.still_holds().await;
    }
    let (found, _) = b.evict(&b.name("there"), here.id(), Evict::Force).await;
    assert!(!found);
    here.still_holds().await;
    there.still_holds().await;
}

async fn c09_evicted_holder_learns_its_evicter(b: Bench) {
    let lock = b.name("a");
    let holder = b.hold(b.ask(&lock)).await;
    let next = b.enter(b.ask(&lock)).await;
    let (found, by) = b.evict(&lock, holder.id(), Evict::Force).await;
    assert!(found);
    match holder.lost().await {
        LossReason::Evicted(who) => assert!(who.is_none_or(|who| who == by), "the one who did it"),
        other => panic!("evicted, not {other:?}"),
    }
    next.held().await;
}

async fn c09_asked_holder_learns_and_stays_until_it_leaves(b: Bench) {
    let lock = b.name("a");
    let holder = b.hold(b.ask(&lock)).await;
    let next = b.enter(b.ask(&lock)).await;
    let seen = holder.state().await;
    let (found, by) = b.evict(&lock, holder.id(), Evict::Ask).await;
    assert!(found);
    let asked = b.by(b.soon(), holder.next(Some(&seen))).await.expect("is notified soon");
    assert_eq!(asked, ClaimState::AskedToLeave { by });
    next.waits().await;
    assert_eq!(b.ids(&lock).await, (vec![holder.id()], b.shown(&[next.id()])));
    holder.leave().await;
    next.held().await;
}

async fn c09_waiter_is_evicted(b: Bench) {
    let lock = b.name("a");
    let holder = b.hold(b.ask(&lock)).await;
    let waiter = b.enter(b.ask(&lock)).await;
    let next = b.enter(b.ask(&lock)).await;
    let (found, _) = b.evict(&lock, waiter.id(), Evict::Force).await;
    assert!(found);
    assert!(matches!(waiter.lost_in_the_queue().await, LossReason::Evicted(_)));
    assert_eq!(b.ids(&lock).await, (vec![holder.id()], vec![next.id()]));
    holder.leave().await;
    next.held().await;
}

async fn c09_claim_on_several_names_goes_whole(b: Bench) {
    let (x, y) = (b.name("x"), b.name("y"));
    let _holder = b.hold(b.ask(&x)).await;
    let both = b.enter(b.ask_all(&[x.clone(), y.clone()])).await;
    let (found, _) = b.evict(&y, both.id(), Evict::Force).await;
    assert!(found);
    both.lost_in_the_queue().await;
    assert!(b.line(&y).await.is_empty());
    assert_eq!(b.ids(&x).await.1, []);
}

async fn c09_only_a_holder_publishes(b: Bench) {
    let (lock, other) = (b.name("a"), b.name("b"));
    let holder = b.hold(b.ask(&lock)).await;
    let waiter = b.enter(b.ask(&lock)).await;
    waiter.waits().await;
    let gone = b.ask(&lock).id;
    let client = b.connect().await;
    for (name, id) in [(&lock, waiter.id()), (&lock, gone), (&other, holder.id())] {
        let published = client.publish(name, id, "mine", b.soon()).await;
        assert!(!published.expect("an answer"), "{id:?} does not hold {name}");
    }
    let line = b.line(&lock).await;
    assert!(line.holders.iter().chain(&line.waiters).all(|entry| entry.label.is_none()));
    assert!(b.line(&other).await.is_empty());
    holder.leave().await;
    waiter.held().await;
    assert!(!client.publish(&lock, holder.id(), "late", b.soon()).await.expect("an answer"));
    assert!(client.publish(&lock, waiter.id(), "mine", b.soon()).await.expect("an answer"));
    assert_eq!(b.line(&lock).await.holders[0].label.as_deref(), Some("mine"));
}
