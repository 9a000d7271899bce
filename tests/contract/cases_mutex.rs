//! The rules of a mutex, once for each way to request one.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use dlock::lock::{ClaimState, LockName, Mode, Request};

use crate::bench::{Bench, Member, slots};
use crate::cases::cases;

cases![
    c01_mutex_contenders_never_overlap[],
    c01_mutex_contenders_never_overlap_as_one_slot[],
    c01_mutex_contenders_never_overlap_as_last_of_five_slots[],
    c02_mutex_holds_in_order[Queue],
    c02_mutex_holds_in_order_as_one_slot[Queue],
    c02_mutex_holds_in_order_as_last_of_five_slots[Queue],
    c02_mutex_holds_in_order_as_exclusive_against_shared[Queue, Shared],
    c08_mutex_try_leaves_nothing[],
    c08_mutex_try_leaves_nothing_as_one_slot[],
    c08_mutex_try_leaves_nothing_as_last_of_five_slots[],
    c08_mutex_try_leaves_nothing_as_exclusive_against_shared[Shared],
];

/// A request for which two claims exclude each other.
#[derive(Clone, Copy)]
enum Way {
    Exclusive,
    OneSlot,
    LastOfFive,
    AgainstShared,
}

/// A lock on which every two claims exclude each other.
struct Mutex {
    b: Bench,
    lock: LockName,
    way: Way,
    _others: Vec<Member>,
}

impl Mutex {
    async fn new(b: &Bench, way: Way) -> Self {
        let lock = b.name("m");
        let mut others = Vec::new();
        if matches!(way, Way::LastOfFive) {
            for _ in 0..4 {
                others.push(b.hold(b.ask_as(&lock, slots(5))).await);
            }
        }
        Self { b: b.clone(), lock, way, _others: others }
    }

    /// Returns the request of the `n`th contender.
    fn ask(&self, n: usize) -> Request {
        let mode = match self.way {
            Way::Exclusive => Mode::Exclusive,
            Way::OneSlot => slots(1),
            Way::LastOfFive => slots(5),
            Way::AgainstShared if n.is_multiple_of(2) => Mode::Exclusive,
            Way::AgainstShared => Mode::Shared,
        };
        self.b.ask_as(&self.lock, mode)
    }
}

async fn never_overlap(b: Bench, way: Way) {
    let m = Arc::new(Mutex::new(&b, way).await);
    let inside = Arc::new(AtomicUsize::new(0));
    let contenders: Vec<_> = (0..6)
        .map(|_| {
            let (b, m, inside) = (b.clone(), m.clone(), inside.clone());
            tokio::spawn(async move {
                for _ in 0..5 {
                    let member = b.enter(m.ask(0)).await;
                    member.pass_alone(&inside).await;
                }
            })
        })
        .collect();
    for contender in contenders {
        contender.await.expect("no contender fails");
    }
}

async fn in_order(b: Bench, way: Way) {
    let m = Mutex::new(&b, way).await;
    let mut members = Vec::new();
    for n in 0..5 {
        members.push(b.enter(m.ask(n)).await);
    }
    while !members.is_empty() {
        members[0].held().await;
        for later in &members[1..] {
            let state = later.state().await;
            assert!(matches!(state, ClaimState::Waiting { .. }), "{state:?} before its turn");
        }
        members.remove(0).leave().await;
    }
}

async fn try_leaves_nothing(b: Bench, way: Way) {
    let m = Mutex::new(&b, way).await;
    let first = b.hold(m.ask(0)).await;
    // Some services have no order of holders.
    let ids = async || {
        let (mut holders, waiters) = b.ids(&m.lock).await;
        holders.sort_unstable();
        (holders, waiters)
    };
    let before = ids().await;
    let second = b.enter(m.ask(1)).await;
    assert!(matches!(second.state().await, ClaimState::Waiting { .. }));
    second.leave().await;
    assert_eq!(ids().await, before);
    first.leave().await;
    b.hold(m.ask(1)).await;
}

macro_rules! ways {
    ($($name:ident = $body:ident($way:ident)),* $(,)?) => {
        $(async fn $name(b: Bench) {
            $body(b, Way::$way).await;
        })*
    };
}

ways![
    c01_mutex_contenders_never_overlap = never_overlap(Exclusive),
    c01_mutex_contenders_never_overlap_as_one_slot = never_overlap(OneSlot),
    c01_mutex_contenders_never_overlap_as_last_of_five_slots = never_overlap(LastOfFive),
    c02_mutex_holds_in_order = in_order(Exclusive),
    c02_mutex_holds_in_order_as_one_slot = in_order(OneSlot),
    c02_mutex_holds_in_order_as_last_of_five_slots = in_order(LastOfFive),
    c02_mutex_holds_in_order_as_exclusive_against_shared = in_order(AgainstShared),
    c08_mutex_try_leaves_nothing = try_leaves_nothing(Exclusive),
    c08_mutex_try_leaves_nothing_as_one_slot = try_leaves_nothing(OneSlot),
    c08_mutex_try_leaves_nothing_as_last_of_five_slots = try_leaves_nothing(LastOfFive),
    c08_mutex_try_leaves_nothing_as_exclusive_against_shared = try_leaves_nothing(AgainstShared),
];
