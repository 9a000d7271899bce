//! The queue: which claims hold, in what order, and what other processes do to them.

use super::storage::QueueFile;
use super::testing::*;
use crate::backend::{Backend, Evict};
use crate::lock::{ClaimId, ClaimState, ErrorKind, Mode, Request};

#[tokio::test]
async fn failed_entry_supersedes_no_waiter() {
    let f = fixture();
    let asks = |id| Request { supersede: true, ..request(id, &["a"], Mode::Exclusive) };
    let first = enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await;
    held(&first).await;
    let waiter = enter(&f.backend, &asks(2)).await;
    assert_eq!(waits(&waiter).await, 1);
    // Its FIFO cannot be created.
    let path = f.temp.path().join(format!(".a.{}", ClaimId::from_bytes([3; 16])));
    std::fs::create_dir(path).expect("made");
    f.backend.enter(&asks(3), soon()).await.expect_err("no FIFO");
    assert_eq!(waits(&waiter).await, 1);
    leave(&first).await;
    held(&waiter).await;
}

#[tokio::test]
async fn a_living_hold_is_asked_to_leave_and_not_removed() {
    for mode in [Mode::Exclusive, Mode::Shared, slots(1)] {
        let f = fixture();
        let claim = enter(&f.backend, &request(1, &["a"], mode)).await;
        let hold = held(&claim).await;
        let (lock, id, by) = (name("a"), ClaimId::from_bytes([1; 16]), holder("admin"));
        let error = f.backend.evict(&lock, id, Evict::Force, &by, soon()).await.expect_err("it lives");
        let pid = format!("process {}", holder("h").pid);
        assert!(error.kind == ErrorKind::Unsupported && error.reason.to_string().contains(&pid), "{error}");
        assert_eq!(held(&claim).await, hold);
        let hold = state(&claim).await;
        assert!(f.backend.evict(&lock, id, Evict::Ask, &by, soon()).await.expect("done"));
        assert_eq!(next(&claim, &hold).await, ClaimState::AskedToLeave { by: by.clone() });
        leave(&claim).await;
        assert!(!f.backend.evict(&lock, id, Evict::Force, &by, soon()).await.expect("done"));
    }
}

#[tokio::test]
async fn killed_readers_are_cleared_away_by_later_ones() {
    let f = fixture();
    for id in 0..3 {
        abandon(enter(&f.backend, &request(id, &["a"], Mode::Shared)).await);
    }
    let claim = enter(&f.backend, &request(9, &["a"], Mode::Shared)).await;
    assert_eq!(files(&f).len(), 3, "{:?}", files(&f));
    leave(&claim).await;
}

#[tokio::test]
async fn observing_shows_arrivals_and_deaths() {
    let f = fixture();
    let mut observer = f.backend.observe(&name("a")).await.expect("observes");
    assert!(observer.next().await.expect("status").is_empty());
    let claim = enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await;
    let shown = tokio::time::timeout(PLENTY, observer.next()).await.expect("in time").expect("status");
    assert_eq!(shown.holders.len(), 1);
    abandon(claim);
    let shown = tokio::time::timeout(PLENTY, observer.next()).await.expect("in time").expect("status");
    assert!(shown.is_empty(), "{shown:?}");
}

#[tokio::test]
async fn future_dated_success_is_unknown_and_replaceable() {
    let f = fixture();
    let succeed = async |id| {
        let claim = enter(&f.backend, &request(id, &["a"], Mode::Exclusive)).await;
        held(&claim).await;
        claim.leave(true, soon()).await.expect("leaves");
        f.backend.last_success(&name("a"), soon()).await.expect("read")
    };
    assert!(succeed(1).await.is_some());
    let directory = f.backend.made();
    let queue = QueueFile::open(directory, &name("a"), true).expect("opens").expect("there");
    let mut header = queue.read().expect("reads").header;
    header.success += 3_600_000_000;
    queue.write_header(&header).expect("written");
    assert_eq!(f.backend.last_success(&name("a"), soon()).await.expect("read"), None);
    assert!(succeed(2).await.is_some());
}
