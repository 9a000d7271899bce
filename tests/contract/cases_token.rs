//! C03: fencing tokens.

use dlock::lock::{ClaimState, Mode};

use crate::bench::{Bench, Member, token};
use crate::cases::cases;

cases![
    c03_tokens_rise_over_200_hand_overs[],
    c03_tokens_rise_across_modes[Queue, Shared],
    c03_tokens_rise_over_idle_times[],
    c03_tokens_rise_over_a_restart[Restart],
    c03_tokens_rise_for_each_of_several_names[AtomicNames],
    c03_restart_changes_nothing[Queue, Restart],
];

/// Lets `member` hold and leave. Returns its token, which must be greater than `last`.
async fn pass(member: &Member, last: u64) -> u64 {
    let number = token(&member.held().await);
    assert!(number > last, "{number} after {last}");
    member.leave().await;
    number
}

async fn c03_tokens_rise_over_200_hand_overs(b: Bench) {
    let lock = b.name("a");
    let clients = [b.connect().await, b.connect().await];
    let mut last = 0;
    let mut holder = b.enter_with(&clients[0], b.ask(&lock)).await;
    for n in 0..200 {
        // Without a queue, a claim that arrives before this one holds may overtake it.
        holder.held().await;
        let next = b.enter_with(&clients[n % 2], b.ask(&lock)).await;
        last = pass(&holder, last).await;
        holder = next;
    }
}

/// Readers are compared with the writers before and after them, not with each other.
async fn c03_tokens_rise_across_modes(b: Bench) {
    let lock = b.name("a");
    let mut floor = 0;
    for _ in 0..20 {
        let writer = b.enter(b.ask(&lock)).await;
        let mut readers = Vec::new();
        for _ in 0..=b.random(3) {
            readers.push(b.enter(b.ask_as(&lock, Mode::Shared)).await);
        }
        let written = token(&writer.held().await);
        assert!(written > floor, "writer {written} after {floor}");
        writer.leave().await;
        floor = written;
        let mut highest = written;
        for reader in &readers {
            let number = token(&reader.held().await);
            assert!(number > written, "reader {number} after writer {written}");
            highest = highest.max(number);
        }
        for reader in readers {
            reader.leave().await;
        }
        floor = floor.max(highest);
    }
}

async fn c03_tokens_rise_over_idle_times(b: Bench) {
    let lock = b.name("a");
    let mut last = 0;
    for _ in 0..3 {
        last = pass(&b.hold(b.ask(&lock)).await, last).await;
        assert!(b.line(&lock).await.is_empty());
        b.sleep(b.fixture.blink()).await;
    }
}

async fn c03_tokens_rise_over_a_restart(b: Bench) {
    let lock = b.name("a");
    let mut last = 0;
    for _ in 0..3 {
        last = pass(&b.hold(b.ask(&lock)).await, last).await;
        b.fixture.restart().await;
    }
}

async fn c03_tokens_rise_for_each_of_several_names(b: Bench) {
    let (x, y) = (b.name("x"), b.name("y"));
    let on_x = b.hold(b.ask(&x)).await;
    let on_y = b.hold(b.ask(&y)).await;
    let (x_token, y_token) = (token(&on_x.held().await), token(&on_y.held().await));
    let both = b.enter(b.ask_all(&[y.clone(), x.clone()])).await;
    on_x.leave().await;
    on_y.leave().await;
    let grant = both.held().await;
    assert!(grant.names[0].token.get() > y_token && grant.names[1].token.get() > x_token, "{grant:?}");
}

async fn c03_restart_changes_nothing(b: Bench) {
    let lock = b.name("a");
    let holder = b.hold(b.ask(&lock)).await;
    let grant = holder.held().await;
    let first = token(&grant);
    let waiter = b.enter(b.ask(&lock)).await;
    let late = b.enter(b.ask(&lock)).await;
    b.fixture.restart().await;
    assert_eq!(holder.state().await, ClaimState::Held(grant));
    holder.renew().await;
    waiter.waits().await;
    holder.leave().await;
    assert!(token(&waiter.held().await) > first);
    late.waits().await;
}
