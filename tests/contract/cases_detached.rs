//! Renewing a claim by its id, by whoever knows it.

use std::time::Duration;

use dlock::lock::{ErrorKind, Holder, LockName, Moment, Request, Verb};

use crate::bench::{Bench, Member, Skip};
use crate::cases::cases;

cases![
    c07_a_renewal_by_id_prolongs_that_claim_and_revives_nothing[Leased],
    c07_a_kept_lease_lasts_for_one_ttl_from_its_last_renewal[],
    c07_a_renewal_at_the_end_of_a_kept_lease_counts_or_is_refused[],
];

/// How often a claim is renewed: for longer than its ttl.
const TIMES: u32 = 4;
/// How often an end and a renewal meet.
const ROUNDS: u32 = 20;
/// The leases that they are about.
const BRIEF: Duration = Duration::from_millis(200);

async fn c07_a_renewal_by_id_prolongs_that_claim_and_revives_nothing(b: Bench) {
    let client = b.connect().await;
    let (lock, other) = (b.name("a"), b.name("b"));
    if client.needs_keeper() {
        std::panic::panic_any(Skip("claims are kept by processes".to_owned()));
    }
    if !client.is_detachable(2) {
        let error =
            client.renew(&lock, b.id(), b.soon()).await.expect_err("it keeps no lease without a process");
        return assert_eq!(error.kind, ErrorKind::Unsupported);
    }
    let brief = |request: Request| Request { ttl: b.fixture.short_ttl(), ..request };
    loop {
        let holder = b.hold(brief(b.ask_all(&[lock.clone(), other.clone()]))).await;
        let next = b.enter(b.ask(&lock)).await;
        let ttl: Duration = holder.claim.ttl().expect("leased");
        let mut proof = b.clock.now();
        let mut lives = true;
        for _ in 0..TIMES {
            b.sleep(ttl / 3).await;
            let begin = b.clock.now();
            lives = client.renew(&lock, holder.id(), b.soon()).await.expect("an answer");
            if !lives {
                assert!(b.clock.now() >= proof + ttl, "gone before the end of a lease from {proof:?}");
                break;
            }
            proof = begin;
        }
        if !lives {
            // The machine stood still.
            next.leave().await;
            continue;
        }
        assert_eq!(b.ids(&lock).await, (vec![holder.id()], vec![next.id()]));
        assert_eq!(b.ids(&other).await, (vec![holder.id()], vec![]));
        for (name, id) in [(&lock, b.id()), (&lock, next.id()), (&b.name("c"), holder.id())] {
            let renewed = client.renew(name, id, b.soon()).await.expect("an answer");
            assert!(!renewed, "{id} does not hold {name}");
        }
        let end = b.clock.now() + ttl + b.bound().await;
        next.held_by(end).await.expect("the lease ran out");
        assert!(!client.renew(&lock, holder.id(), b.soon()).await.expect("an answer"), "it was over");
        next.still_holds().await;
        assert_eq!(b.ids(&lock).await, (vec![next.id()], vec![]));
        // Where no step reaches several queues each of them has time until then.
        while b.ids(&other).await != (vec![], vec![]) {
            assert!(b.clock.now() < end, "it still holds {other}");
            b.sleep(b.fixture.blink()).await;
        }
        return;
    }
}

/// A claim that the service cannot let end by itself, as its keeper has it.
async fn kept(b: &Bench, names: &[LockName]) -> Member {
    let request = b.ask_all(names);
    let holder = Holder { verb: Verb::Detach, ..request.holder.clone() };
    b.hold(Request { holder, ..request }).await
}

/// Lets the lease of `ttl` end if it is over: until when it lasts, if it is not.
async fn expire_if_due(b: &Bench, kept: &Member, ttl: Duration) -> Option<Moment> {
    kept.claim.expire_if_due(ttl, b.soon()).await.expect("an answer")
}

async fn c07_a_kept_lease_lasts_for_one_ttl_from_its_last_renewal(b: Bench) {
    let client = b.connect().await;
    let (lock, other) = (b.name("a"), b.name("b"));
    let holder = kept(&b, &[lock.clone(), other.clone()]).await;
    let ttl = b.fixture.short_ttl();
    if !client.needs_keeper() {
        return assert_eq!(expire_if_due(&b, &holder, ttl).await, Some(Moment::NEVER));
    }
    let next = b.enter(b.ask(&lock)).await;
    let begun = b.clock.now();
    let first = expire_if_due(&b, &holder, ttl).await.expect("it has just begun");
    assert!(first >= begun + ttl, "{first:?} of {begun:?}");
    let mut renewed = begun;
    // By any of its names.
    for name in [&lock, &other, &other] {
        b.sleep(ttl / 2).await;
        renewed = b.clock.now();
        assert!(client.renew(name, holder.id(), b.soon()).await.expect("an answer"), "it holds");
    }
    next.waits().await;
    let until = expire_if_due(&b, &holder, ttl).await.expect("it was renewed");
    assert!(until >= renewed + ttl, "{until:?} of {renewed:?}");
    assert!(until <= b.clock.now() + ttl, "longer than one ttl");
    for (name, id) in [(&lock, b.id()), (&lock, next.id()), (&b.name("c"), holder.id())] {
        assert!(!client.renew(name, id, b.soon()).await.expect("an answer"), "{id} does not hold {name}");
    }
    b.clock.sleep_until(until).await;
    assert_eq!(expire_if_due(&b, &holder, ttl).await, None, "nobody has renewed it since");
    next.held().await;
    for name in [&lock, &other] {
        assert!(!client.renew(name, holder.id(), b.soon()).await.expect("an answer"), "it is over");
    }
    assert_eq!(b.ids(&lock).await, (vec![next.id()], vec![]));
    assert_eq!(b.ids(&other).await, (vec![], vec![]));
}

async fn c07_a_renewal_at_the_end_of_a_kept_lease_counts_or_is_refused(b: Bench) {
    let client = b.connect().await;
    let lock = b.name("a");
    if !client.needs_keeper() {
        let holder = kept(&b, &[lock]).await;
        return assert_eq!(expire_if_due(&b, &holder, Duration::ZERO).await, Some(Moment::NEVER));
    }
    for _ in 0..ROUNDS {
        let holder = kept(&b, std::slice::from_ref(&lock)).await;
        expire_if_due(&b, &holder, BRIEF).await.expect("it has just begun");
        b.sleep(BRIEF).await;
        // Whoever begins first need not come first.
        let (before_end, before_renewal) = (b.random(500), b.random(500));
        let end = async {
            b.sleep(Duration::from_micros(before_end)).await;
            (expire_if_due(&b, &holder, BRIEF).await, b.clock.now())
        };
        let renewal = async {
            b.sleep(Duration::from_micros(before_renewal)).await;
            (b.clock.now(), client.renew(&lock, holder.id(), b.soon()).await.expect("an answer"))
        };
        let ((until, answered), (sent, renewed)) = tokio::join!(end, renewal);
        // Unless the machine stood still, and what was renewed was over again.
        if answered.since(sent) < BRIEF {
            assert_eq!(until.is_some(), renewed, "until {until:?}, renewed from {sent:?}");
        }
        holder.leave().await;
        assert_eq!(b.ids(&lock).await, (vec![], vec![]));
    }
}
