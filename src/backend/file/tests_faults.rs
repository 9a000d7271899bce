//! Files planted by other users, and system calls that fail.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode as Bits, mknodat};
use rustix::io::Errno;

use super::storage::{Call, QueueFile};
use super::testing::*;
use crate::backend::{Backend, Evict, deadlock};
use crate::clock::{self, Clock};
use crate::lock::{Ancestor, ClaimId, ClaimState, Error, ErrorKind, Mode, Request};

fn plant_fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Bits::RUSR | Bits::WUSR, 0).expect("a FIFO");
}

/// A planted file of every kind, at the path of a file.
fn plants() -> [fn(&Path); 4] {
    [
        plant_fifo,
        |path| drop(std::os::unix::net::UnixListener::bind(path).expect("a socket")),
        |path| std::fs::create_dir(path).expect("a directory"),
        |path| symlink("/proc/self/status", path).expect("a link"),
    ]
}

/// Runs `call` in a thread of its own, since a thread that blocks in open(2) would block for ever.
fn promptly<T: Send + 'static>(call: impl Future<Output = T> + Send + 'static) -> T {
    let (told, result) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        drop(told.send(runtime.block_on(call)));
    });
    result.recv_timeout(PLENTY).expect("an answer")
}

#[test]
fn planted_queue_is_skipped_by_list_and_an_error_elsewhere() {
    for plant in plants() {
        let f = fixture();
        plant(&f.temp.path().join(".a.queue"));
        let backend = Arc::new(f.backend);
        let b = Arc::clone(&backend);
        assert_eq!(promptly(async move { b.list("", soon()).await }).expect("a list"), []);
        let b = Arc::clone(&backend);
        let named = |error: Error| {
            assert!(
                error.kind == ErrorKind::Unwritable && error.reason.to_string().contains(".a.queue"),
                "{error}"
            );
        };
        named(promptly(async move { b.inspect(&name("a"), soon()).await }).expect_err("no queue"));
        let b = Arc::clone(&backend);
        named(
            promptly(async move { b.enter(&request(1, &["a"], Mode::Exclusive), soon()).await })
                .expect_err("no queue"),
        );
        // A search for deadlocks reads the queues of ancestors.
        let ancestor = Ancestor { claim: ClaimId::from_bytes([9; 16]), names: vec![name("a")] };
        let nested = Request { ancestors: vec![ancestor], ..request(2, &["b"], Mode::Exclusive) };
        let b = Arc::clone(&backend);
        promptly(async move {
            let _holds = enter(&b, &request(3, &["b"], Mode::Exclusive)).await;
            deadlock::enter(&**b, &nested, Clock::Boot, soon()).await.map(drop)
        })
        .expect("waits");
    }
}

#[test]
fn planted_lock_file_is_named_in_the_error() {
    for plant in plants() {
        let f = fixture();
        plant(&f.temp.path().join("a"));
        let backend = Arc::new(f.backend);
        let error =
            promptly(async move { backend.enter(&request(1, &["a"], Mode::Exclusive), soon()).await });
        let error = error.expect_err("no lock file");
        assert!(error.kind != ErrorKind::Unavailable && error.reason.to_string().contains("/a"), "{error}");
    }
}

#[test]
fn planted_permanent_fifo_is_bypassed() {
    for plant in plants().into_iter().skip(1) {
        let f = fixture();
        plant(&f.temp.path().join(".a.fifo"));
        promptly(async move {
            let claim = enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await;
            held(&claim).await;
            let behind = enter(&f.backend, &request(2, &["a"], Mode::Exclusive)).await;
            leave(&claim).await;
            held(&behind).await;
        });
    }
}

#[tokio::test]
async fn waiter_with_failing_io_leaves_and_keeps_nothing() {
    for (call, errno) in [(Call::Write, Errno::IO), (Call::Write, Errno::NOSPC), (Call::Read, Errno::IO)] {
        let f = fixture();
        let sick = open(&f.temp);
        let first = enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await;
        let ttl = Duration::from_millis(1200);
        let waiter = enter(&sick, &Request { ttl, ..request(2, &["a"], Mode::Exclusive) }).await;
        let seen = state(&waiter).await;
        let behind = enter(&f.backend, &request(3, &["a"], Mode::Exclusive)).await;
        sick.made().faults.add(call, errno);
        leave(&first).await;
        // The failure is transient at first, and no other process is kept out of the lock file meanwhile.
        let error = waiter.changed(Some(&seen)).await.expect_err("it cannot");
        assert!(error.is_transient(), "{error}");
        let lock = std::fs::File::open(f.temp.path().join("a")).expect("there");
        lock.try_lock().expect("it is free");
        lock.unlock().expect("let go");
        let begun = clock::now();
        let error = loop {
            let error = waiter.changed(Some(&seen)).await.expect_err("it cannot");
            if !error.is_transient() {
                break error;
            }
            assert!(clock::now().since(begun) < PLENTY, "still in the queue: {error}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        assert!(
            error.kind == ErrorKind::Unwritable && error.reason.to_string().contains(".a.queue"),
            "{error}"
        );
        held(&behind).await;
        leave(&waiter).await;
    }
}

#[tokio::test]
async fn waiter_stays_when_io_recovers_in_time() {
    let f = fixture();
    let sick = open(&f.temp);
    let first = enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await;
    let waiter = enter(&sick, &request(2, &["a"], Mode::Exclusive)).await;
    let seen = state(&waiter).await;
    sick.made().faults.add(Call::Write, Errno::NOSPC);
    leave(&first).await;
    assert!(waiter.changed(Some(&seen)).await.expect_err("it cannot").is_transient());
    sick.made().faults.clear();
    assert!(matches!(waiter.changed(Some(&seen)).await, Ok(ClaimState::Held(_))));
}

#[tokio::test]
async fn unreadable_queue_is_an_error_and_not_a_free_lock() {
    let f = fixture();
    let sick = open(&f.temp);
    let claim = enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await;
    sick.made().faults.add(Call::Read, Errno::IO);
    let id = ClaimId::from_bytes([1; 16]);
    assert_eq!(sick.inspect(&name("a"), soon()).await.expect_err("unread").kind, ErrorKind::Unwritable);
    sick.evict(&name("a"), id, Evict::Force, &holder("x"), soon()).await.expect_err("unread");
    sick.enter(&request(2, &["a"], Mode::Exclusive), soon()).await.expect_err("unread");
    sick.last_success(&name("a"), soon()).await.expect_err("unread");
    held(&claim).await;
    leave(&claim).await;
}

#[tokio::test]
async fn hold_survives_an_unreadable_queue_and_can_be_released() {
    let f = fixture();
    let sick = open(&f.temp);
    let claim = enter(&sick, &request(1, &["a"], Mode::Exclusive)).await;
    held(&claim).await;
    sick.made().faults.add(Call::Read, Errno::IO);
    claim.renew(soon()).await.expect("its files are there");
    let behind = enter(&f.backend, &request(2, &["a"], Mode::Exclusive)).await;
    assert_eq!(waits(&behind).await, 1);
    claim.leave(false, soon()).await.expect_err("its record stays");
    held(&behind).await;
}

#[tokio::test]
async fn c03_tokens_of_an_unwritten_reservation_are_never_granted() {
    let f = fixture();
    leave(&enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await).await;
    let queue = QueueFile::open(f.backend.made(), &name("a"), true).expect("opens").expect("there");
    let mut header = queue.read().expect("reads").header;
    header.next = header.limit;
    queue.write_header(&header).expect("written");
    f.backend.made().faults.add(Call::Sync, Errno::IO);
    f.backend.enter(&request(2, &["a"], Mode::Exclusive), soon()).await.expect_err("no disk");
    assert_eq!(queue.read().expect("reads").header.limit, header.limit);
    f.backend.made().faults.clear();
    let claim = enter(&f.backend, &request(3, &["a"], Mode::Exclusive)).await;
    assert_eq!(token(&held(&claim).await), header.limit);
}

#[tokio::test]
async fn unwritten_change_of_a_long_queue_hides_no_entry() {
    let f = fixture();
    let sick = open(&f.temp);
    let mut claims = vec![enter(&sick, &request(0, &["a"], Mode::Exclusive)).await];
    for id in 1..40 {
        claims.push(enter(&f.backend, &request(id, &["a"], Mode::Exclusive)).await);
    }
    held(&claims[0]).await;
    sick.made().faults.add(Call::Write, Errno::IO);
    claims[0].leave(false, soon()).await.expect_err("unwritten");
    let status = f.backend.inspect(&name("a"), soon()).await.expect("status");
    assert_eq!((status.holders.len(), status.waiters.len()), (1, 38));
    held(&claims[1]).await;
}
