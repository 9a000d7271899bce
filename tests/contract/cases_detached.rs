//! Renewals of a claim by its id, from any client that knows the id.

use std::time::Duration;

use dlock::lock::{ErrorKind, Request};

use crate::bench::Bench;
use crate::cases::cases;

cases![c07_renewal_by_id_prolongs_one_claim_and_revives_none[Leased],];

/// The number of renewals: together longer than the TTL.
const TIMES: u32 = 4;

async fn c07_renewal_by_id_prolongs_one_claim_and_revives_none(b: Bench) {
    let client = b.connect().await;
    let (lock, other) = (b.name("a"), b.name("b"));
    let names = [lock.clone(), other.clone()];
    let names = b.in_one_step(&names);
    if !client.client().is_detachable() {
        let error =
            client.renew(&lock, b.id(), b.soon()).await.expect_err("it keeps no lease without a process");
        return assert_eq!(error.kind, ErrorKind::Unsupported);
    }
    let brief = |request: Request| Request { ttl: b.fixture.short_ttl(), ..request };
    loop {
        let holder = b.hold(brief(b.ask_all(names))).await;
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
        for other in &names[1..] {
            assert_eq!(b.ids(other).await, (vec![holder.id()], vec![]));
        }
        for (name, id) in [(&lock, b.id()), (&lock, next.id()), (&b.name("c"), holder.id())] {
            let renewed = client.renew(name, id, b.soon()).await.expect("an answer");
            assert!(!renewed, "{id} does not hold {name}");
        }
        let end = b.clock.now() + ttl + b.bound().await;
        next.held_by(end).await.expect("the lease ran out");
        assert!(!client.renew(&lock, holder.id(), b.soon()).await.expect("an answer"), "it was over");
        next.still_holds().await;
        assert_eq!(b.ids(&lock).await, (vec![next.id()], vec![]));
        for other in &names[1..] {
            assert_eq!(b.ids(other).await, (vec![], vec![]));
        }
        return;
    }
}
