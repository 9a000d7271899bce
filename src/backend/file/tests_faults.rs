//! System calls that fail.

use rustix::io::Errno;

use super::storage::{Call, QueueFile};
use super::testing::*;
use crate::backend::{Backend, Evict};
use crate::lock::{ClaimId, ErrorKind, Mode};

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
