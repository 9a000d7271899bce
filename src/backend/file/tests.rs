//! The queue: which claims hold, in what order, and what other processes do to them.

use super::storage::QueueFile;
use super::testing::*;
use crate::backend::{Backend, Evict, deadlock};
use crate::clock::Clock;
use crate::lock::{Ancestor, ClaimId, ClaimState, ErrorKind, Mode, Request};

#[tokio::test]
async fn several_names_are_all_or_none_in_one_order() {
    let f = fixture();
    let both = enter(&f.backend, &request(1, &["b", "a"], Mode::Exclusive)).await;
    let reverse = enter(&f.backend, &request(2, &["a", "b"], Mode::Exclusive)).await;
    let single = enter(&f.backend, &request(3, &["b"], Mode::Exclusive)).await;
    assert_eq!(held(&both).await.names.len(), 2);
    assert_eq!((waits(&reverse).await, waits(&single).await), (1, 2));
    leave(&both).await;
    held(&reverse).await;
    assert_eq!(waits(&single).await, 1);
    leave(&reverse).await;
    held(&single).await;
    leave(&single).await;
    assert_eq!(files(&f), [".a.queue", ".b.queue", "a", "b"]);
}

#[tokio::test]
async fn superseding_keeps_the_newest_and_never_a_holder() {
    let f = fixture();
    let asks = |id| Request { supersede: true, ..request(id, &["a"], Mode::Exclusive) };
    let first = enter(&f.backend, &asks(1)).await;
    held(&first).await;
    let second = enter(&f.backend, &asks(2)).await;
    let plain = enter(&f.backend, &request(3, &["a"], Mode::Exclusive)).await;
    let (waiting, behind) = (state(&second).await, state(&plain).await);
    let newest = enter(&f.backend, &asks(4)).await;
    assert_eq!(next(&second, &waiting).await, ClaimState::Superseded { by: holder("u4") });
    // The claim behind watched the superseded one. It must not wait until that one's owner leaves.
    assert!(matches!(next(&plain, &behind).await, ClaimState::Waiting { ahead: Some(1), .. }));
    leave(&first).await;
    held(&plain).await;
    leave(&plain).await;
    held(&newest).await;
}

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
async fn second_leave_request_is_delivered() {
    let f = fixture();
    let claim = enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await;
    let mut told = state(&claim).await;
    for who in ["x", "y"] {
        let by = holder(who);
        let id = ClaimId::from_bytes([1; 16]);
        assert!(f.backend.evict(&name("a"), id, Evict::Ask, &by, soon()).await.expect("done"));
        told = next(&claim, &told).await;
        assert_eq!(told, ClaimState::AskedToLeave { by });
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
async fn c06_a_hold_is_told_before_the_request_to_leave_it() {
    let f = fixture();
    let claim = enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await;
    let id = ClaimId::from_bytes([1; 16]);
    assert!(f.backend.evict(&name("a"), id, Evict::Ask, &holder("x"), soon()).await.expect("done"));
    let hold = state(&claim).await;
    assert!(matches!(hold, ClaimState::Held(_)), "{hold:?}");
    assert_eq!(next(&claim, &hold).await, ClaimState::AskedToLeave { by: holder("x") });
}

#[tokio::test]
async fn a_cycle_through_an_own_hold_is_a_deadlock() {
    let f = fixture();
    let ancestor = |n| {
        let held = if n == 1 { "a" } else { "b" };
        vec![Ancestor { claim: ClaimId::from_bytes([n; 16]), names: vec![name(held)] }]
    };
    let nested = |id, names: &[&str], under: u8| Request {
        ancestors: ancestor(under),
        ..request(id, names, Mode::Exclusive)
    };
    let a = enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await;
    let b = enter(&f.backend, &request(2, &["b"], Mode::Exclusive)).await;
    held(&a).await;
    held(&b).await;
    let search = |request: Request| {
        let backend = &f.backend;
        async move { deadlock::enter(&**backend, &request, Clock::Boot, soon()).await }
    };
    let waiting = search(nested(3, &["b"], 1)).await.expect("enters");
    assert_eq!(waits(&waiting).await, 1);
    for (request, part) in
        [(nested(4, &["a"], 2), "u2@h pid 1 runs u4@h"), (nested(5, &["a"], 1), "u1@h pid 1 runs")]
    {
        let error = search(request).await.expect_err("a deadlock");
        assert_eq!(error.kind, ErrorKind::Deadlock);
        assert!(
            error.reason.to_string().contains(part)
                && error.reason.to_string().contains("waits for a behind u1@h"),
            "{error}"
        );
    }
    let status = f.backend.inspect(&name("a"), soon()).await.expect("status");
    assert!(status.waiters.is_empty());
    leave(&b).await;
    held(&waiting).await;
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

#[tokio::test]
async fn c14_texts_come_back_and_a_label_can_be_replaced() {
    let f = fixture();
    let odd = "a/b \"é\\ .queue";
    let mut request = request(1, &[odd], Mode::Shared);
    request.holder.command = "tab\tnew\nline \u{1b}[0m".to_owned();
    let claim = enter(&f.backend, &request).await;
    held(&claim).await;
    for label in ["short", "a much longer one \n", &"x".repeat(9000), ""] {
        let id = request.id;
        assert!(f.backend.publish(&name(odd), id, label, soon()).await.expect("published"));
        let status = f.backend.inspect(&name(odd), soon()).await.expect("status");
        assert_eq!(status.holders[0].label.as_deref(), Some(label));
        assert_eq!(status.holders[0].command.as_ref(), Some(&request.holder.command));
    }
    let listed = f.backend.list("a/", soon()).await.expect("listed");
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].name, name(odd));
    assert!(f.backend.list("b", soon()).await.expect("listed").is_empty());
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
