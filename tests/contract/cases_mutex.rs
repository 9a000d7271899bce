//! The rules of a mutex, for each way to request one.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use dlock::lock::{ClaimState, Mode};

use crate::bench::{Bench, slots};
use crate::cases::cases;

cases![c01_mutex_contenders_never_overlap[], c08_mutex_try_leaves_nothing[]];

/// Six clients lock in turn; with slots they share the last of five.
async fn c01_mutex_contenders_never_overlap(b: Bench) {
    for (mode, others) in [(Mode::Exclusive, 0), (slots(5), 4)] {
        let lock = b.name(&others.to_string());
        let mut holders = Vec::new();
        for _ in 0..others {
            holders.push(b.hold(b.ask_as(&lock, mode)).await);
        }
        let inside = Arc::new(AtomicUsize::new(0));
        let contenders: Vec<_> = (0..6)
            .map(|_| {
                let (b, lock, inside) = (b.clone(), lock.clone(), inside.clone());
                tokio::spawn(async move {
                    for _ in 0..5 {
                        let member = b.enter(b.ask_as(&lock, mode)).await;
                        member.pass_alone(&inside).await;
                    }
                })
            })
            .collect();
        for contender in contenders {
            contender.await.expect("no contender fails");
        }
        drop(holders);
    }
}

async fn c08_mutex_try_leaves_nothing(b: Bench) {
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
