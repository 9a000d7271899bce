//! C04, C07, C13: how claims stay and end.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use dlock::lock::{ClaimState, LossReason, Moment, Request};

use crate::bench::{Bench, Member};
use crate::cases::cases;
use crate::fixture::Skew;

cases![
    c04_abandoned_holder_is_gone_within_the_bound[Leased, Abandon],
    c04_abandoned_waiter_is_gone_within_the_bound[Leased, Abandon],
    c04_severed_holder_is_out_of_the_queue[Sever, Leased],
    c04_severed_waiter_is_out_of_the_queue[Queue, Sever, Leased],
    c07_renew_keeps_three_ttls[Leased],
    c07_renew_keeps_a_waiter[Leased],
    c07_renew_never_revives_expired[Leased],
    c07_expiry_is_not_early[Leased],
    c07_renew_after_an_unobserved_end_prolongs_nothing[Leased],
    c07_renew_counts_from_its_beginning[Leased, Freeze],
    c07_renew_is_never_later_than_its_beginning[],
    c07_grant_counts_from_the_last_proof[Queue, Leased],
    c07_renew_of_a_lost_claim_is_no_error[Sever],
    c07_loss_is_final[Leased],
    c07_granted_ttl_counts[Leased],
    c13_client_clock_behind_or_ahead_changes_nothing[Leased, Skew],
];

impl Bench {
    fn brief(&self, request: Request) -> Request {
        Request { ttl: self.fixture.short_ttl(), ..request }
    }
}

fn ttl(member: &Member) -> Duration {
    member.claim.ttl().expect("leased")
}

async fn c04_abandoned_holder_is_gone_within_the_bound(b: Bench) {
    let lock = b.name("a");
    let a = b.hold(b.brief(b.ask(&lock))).await;
    let next = b.enter(b.ask(&lock)).await;
    next.waits().await;
    let end = b.clock.now() + ttl(&a) + b.bound().await;
    b.fixture.abandon(a.client, a.claim).await;
    next.held_by(end).await.expect("gone within ttl and bound");
}

async fn c04_abandoned_waiter_is_gone_within_the_bound(b: Bench) {
    let lock = b.name("a");
    let holder = b.hold(b.ask(&lock)).await;
    let a = b.enter(b.brief(b.ask(&lock))).await;
    let end = b.clock.now() + ttl(&a) + b.bound().await;
    b.fixture.abandon(a.client, a.claim).await;
    while b.ids(&lock).await != (vec![holder.id()], vec![]) {
        assert!(b.clock.now() < end, "the waiter is still there after its ttl and the bound");
        b.sleep(b.fixture.blink()).await;
    }
}

/// Returns whether the reason names no other client. Without sessions, a removal is all that can be reported.
fn is_unexplained(reason: &LossReason) -> bool {
    matches!(reason, LossReason::SessionEnded | LossReason::Evicted(None))
}

async fn c04_severed_holder_is_out_of_the_queue(b: Bench) {
    let lock = b.name("a");
    let a = b.hold(b.ask(&lock)).await;
    let next = b.enter(b.ask(&lock)).await;
    next.waits().await;
    b.fixture.sever(a.id(), &lock).await;
    next.held().await;
    assert!(is_unexplained(&a.lost().await));
}

async fn c04_severed_waiter_is_out_of_the_queue(b: Bench) {
    let lock = b.name("a");
    let holder = b.hold(b.ask(&lock)).await;
    let waiter = b.enter(b.ask(&lock)).await;
    let next = b.enter(b.ask(&lock)).await;
    b.fixture.sever(waiter.id(), &lock).await;
    assert!(is_unexplained(&waiter.lost().await));
    holder.leave().await;
    next.held().await;
}

/// Renews so many times, at every third of the TTL. Returns false if the machine stood still for longer than the lease,
/// so that the loss is right.
async fn keeps(b: &Bench, member: &Member, times: u32) -> bool {
    let mut proof = member.renew().await;
    for _ in 0..times {
        b.sleep(ttl(member) / 3).await;
        let last = member.renew().await;
        if let ClaimState::Lost(reason) = member.state().await {
            assert_eq!(reason, LossReason::Expired);
            assert!(b.clock.now() >= proof + ttl(member), "lost before the end of a lease from {proof:?}");
            return false;
        }
        proof = last;
    }
    true
}

async fn c07_renew_keeps_three_ttls(b: Bench) {
    let lock = b.name("a");
    loop {
        let a = b.hold(b.brief(b.ask(&lock))).await;
        let next = b.enter(b.ask(&lock)).await;
        if keeps(&b, &a, 9).await {
            assert!(matches!(a.state().await, ClaimState::Held(_)));
            return next.waits().await;
        }
        a.leave().await;
        next.leave().await;
    }
}

async fn c07_renew_keeps_a_waiter(b: Bench) {
    let lock = b.name("a");
    loop {
        let holder = b.hold(b.ask(&lock)).await;
        let waiter = b.enter(b.brief(b.ask(&lock))).await;
        let kept = keeps(&b, &waiter, 6).await;
        holder.leave().await;
        if kept {
            waiter.held().await;
            return;
        }
        waiter.leave().await;
    }
}

async fn c07_renew_never_revives_expired(b: Bench) {
    let lock = b.name("a");
    let a = b.hold(b.brief(b.ask(&lock))).await;
    let good = a.renew().await;
    let end = b.clock.now() + ttl(&a) + b.bound().await;
    let next = b.enter(b.ask(&lock)).await;
    next.held_by(end).await.expect("the lease ran out");
    assert_eq!(a.renew().await, good, "the last good moment again");
    assert_eq!(a.lost().await, LossReason::Expired);
    next.still_holds().await;
    assert_eq!(b.ids(&lock).await, (vec![next.id()], vec![]));
}

async fn c07_renew_after_an_unobserved_end_prolongs_nothing(b: Bench) {
    let a = b.hold(b.brief(b.ask(&b.name("a")))).await;
    let good = a.renew().await;
    b.sleep(ttl(&a) + b.bound().await).await;
    assert_eq!(a.renew().await, good, "the last good moment again");
    assert_eq!(a.lost().await, LossReason::Expired);
}

async fn c07_expiry_is_not_early(b: Bench) {
    let lock = b.name("a");
    let begin = b.clock.now();
    let a = b.hold(b.brief(b.ask(&lock))).await;
    let next = b.enter(b.ask(&lock)).await;
    let early = begin + ttl(&a).mul_f64(0.98);
    assert_eq!(next.held_by(early).await, None, "the lease has not run out");
}

/// A renewal counts from the moment when it was sent, even if the service is slow.
async fn c07_renew_counts_from_its_beginning(b: Bench) {
    let a = b.hold(b.ask(&b.name("a"))).await;
    b.fixture.freeze().await;
    let begin = b.clock.now();
    let renewal = tokio::spawn({
        let (claim, deadline) = (a.claim.clone(), begin + b.fixture.patience() * 10);
        async move { claim.renew(deadline).await }
    });
    b.sleep(b.fixture.patience()).await;
    b.fixture.thaw().await;
    let from = renewal.await.expect("no panic").expect("renews after the thaw");
    let sent = begin + b.fixture.patience() / 2;
    assert!(from <= sent, "counts from {from:?}, long after {begin:?}");
}

async fn c07_renew_is_never_later_than_its_beginning(b: Bench) {
    let a = b.hold(b.ask(&b.name("a"))).await;
    let mut last = a.held().await.counts_from;
    for _ in 0..5 {
        b.sleep(b.fixture.blink()).await;
        let (begun, from) = first_poll(&b, a.renew()).await;
        assert!(from <= begun && from >= last, "{from:?} is between {last:?} and {begun:?}");
        last = from;
    }
}

/// Returns the outcome of `work` and a moment when it had certainly begun: the end of its first poll.
async fn first_poll<T>(b: &Bench, work: impl Future<Output = T>) -> (Moment, T) {
    let mut work = pin!(work);
    let first = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
    let begun = b.clock.now();
    match first {
        Poll::Ready(value) => (begun, value),
        Poll::Pending => (begun, work.await),
    }
}

/// A hold that is granted without a renewal lasts only for the rest of the TTL.
async fn c07_grant_counts_from_the_last_proof(b: Bench) {
    let lock = b.name("a");
    let holder = b.hold(b.ask(&lock)).await;
    let waiter = b.enter(b.brief(b.ask(&lock))).await;
    let proof = b.clock.now();
    waiter.renew().await;
    b.sleep(ttl(&waiter) / 3).await;
    let begin = b.clock.now();
    holder.leave().await;
    let grant = waiter.held().await;
    let next = b.enter(b.ask(&lock)).await;
    let lives = next.held_by(grant.counts_from + ttl(&waiter).mul_f64(0.98)).await;
    assert_eq!(lives, None, "the ttl that the grant promises is kept");
    assert!(grant.counts_from <= begin.max(proof), "{grant:?}");
}

async fn c07_renew_of_a_lost_claim_is_no_error(b: Bench) {
    let lock = b.name("a");
    let a = b.hold(b.ask(&lock)).await;
    let good = a.renew().await;
    b.fixture.sever(a.id(), &lock).await;
    b.sleep(b.fixture.blink()).await;
    assert_eq!(a.renew().await, good, "the last good moment again");
    a.lost().await;
    // If the kernel still has the lock of the process, the next claim waits until that one has left.
    a.leave().await;
    b.hold(b.ask(&lock)).await;
}

async fn c07_loss_is_final(b: Bench) {
    let lock = b.name("a");
    let a = b.hold(b.brief(b.ask(&lock))).await;
    let end = b.clock.now() + ttl(&a) + b.bound().await;
    a.lost_by(end).await.expect("the lease ran out");
    for _ in 0..3 {
        a.renew().await;
        assert_eq!(a.state().await, ClaimState::Lost(LossReason::Expired));
    }
    let news =
        b.by(b.clock.now() + b.fixture.blink(), a.next(Some(&ClaimState::Lost(LossReason::Expired)))).await;
    assert_eq!(news, None);
}

async fn c07_granted_ttl_counts(b: Bench) {
    let lock = b.name("a");
    let a = b.hold(b.brief(b.ask(&lock))).await;
    assert!(ttl(&a) >= b.fixture.short_ttl(), "at least what was asked for");
    let left = b.line(&lock).await.holders[0].ttl.expect("leased");
    assert!(left <= ttl(&a) && left >= ttl(&a) / 2, "{left:?} of {:?} left", ttl(&a));
}

async fn c13_client_clock_behind_or_ahead_changes_nothing(b: Bench) {
    for skew in [Skew::Behind, Skew::Ahead] {
        skewed(&b, skew).await;
    }
}

async fn skewed(b: &Bench, skew: Skew) {
    let lock = b.name(&format!("{skew:?}"));
    let client = b.fixture.connect_skewed(skew).await;
    let begin = b.clock.now();
    let request = b.brief(b.ask(&lock));
    // It measures deadlines by its own wrong clock, so it gets none.
    let claim = client.enter(&request, Moment::NEVER).await.expect("enters");
    let length = claim.ttl().expect("leased");
    let next = b.enter(b.ask(&lock)).await;
    b.sleep(length / 3).await;
    claim.renew(Moment::NEVER).await.expect("renews");
    let renewed = b.clock.now();
    let early = begin + length.mul_f64(1.25);
    assert_eq!(next.held_by(early).await, None, "the service counts the ttl");
    next.held_by(renewed + length + b.bound().await).await.expect("and to its end only");
}
