//! Cases with other processes.

use crate::bench::Bench;
use crate::cases::cases;
use crate::taker::{ROUNDS, Taker};

cases![
    c01_processes_count_exactly[OtherProcess],
    c04_killed_holder_is_gone_within_the_bound[OtherProcess],
    c04_killed_waiter_is_gone_within_the_bound[OtherProcess],
];

impl Bench {
    /// Returns the moment by which the claim of a process that is killed now is gone.
    async fn gone(&self, leased: bool) -> dlock::lock::Moment {
        let ttl = if leased { self.fixture.short_ttl() } else { std::time::Duration::ZERO };
        self.clock.now() + ttl + self.bound().await + self.fixture.patience()
    }
}

async fn c01_processes_count_exactly(b: Bench) {
    let lock = b.name("a");
    let path = std::env::temp_dir().join(format!("dlock-count-{}", b.id()));
    std::fs::write(&path, "0").expect("writes");
    let takers: Vec<Taker> = (0..3).map(|_| Taker::start(&b, &lock, Some(&path))).collect();
    let n = takers.len() as u64;
    for taker in takers {
        assert!(taker.succeeds(), "no taker fails");
    }
    let count = std::fs::read_to_string(&path).expect("reads");
    std::fs::remove_file(&path).expect("removes");
    assert_eq!(count, (n * ROUNDS).to_string());
    assert!(b.line(&lock).await.is_empty());
}

async fn c04_killed_holder_is_gone_within_the_bound(b: Bench) {
    let lock = b.name("a");
    let mut taker = Taker::start(&b, &lock, None);
    assert_eq!(taker.says(), "held");
    let next = b.enter(b.ask(&lock)).await;
    next.waits().await;
    taker.kill();
    let gone = b.gone(next.claim.ttl().is_some()).await;
    next.held_by(gone).await.expect("the next one gets the lock within the bound");
}

async fn c04_killed_waiter_is_gone_within_the_bound(b: Bench) {
    let lock = b.name("a");
    let holder = b.hold(b.ask(&lock)).await;
    let mut taker = Taker::start(&b, &lock, None);
    assert_eq!(taker.says(), "waiting");
    let next = b.enter(b.ask(&lock)).await;
    taker.kill();
    let gone = b.gone(next.claim.ttl().is_some()).await;
    holder.leave().await;
    next.held_by(gone).await.expect("the next one gets the lock within the bound");
    assert_eq!(b.ids(&lock).await, (vec![next.id()], vec![]));
}
