//! Who is newer, on the reference service.

use std::sync::Arc;

use super::*;
use crate::backend::Claim;
use crate::backend::memory::{MemoryBackend, MemoryServer};
use crate::clock::Clock;
use crate::lock::{ClaimState, Mode};

const CLOCK: Clock = Clock::Boot;

fn request(n: u8) -> Request {
    let pid = u32::from(n);
    Request {
        names: vec!["a".parse().expect("valid")],
        id: ClaimId::from_bytes([n; 16]),
        mode: Mode::Exclusive,
        ttl: Duration::from_secs(3600),
        holder: Holder { host: "h".into(), pid, replace: true, ..Holder::default() },
        ancestors: Vec::new(),
        supersede: true,
        again: false,
    }
}

/// The same host and pid as everybody else's.
fn as_init(n: u8) -> Request {
    let request = request(n);
    Request { holder: Holder { pid: 1, label: Some(n.to_string()), ..request.holder.clone() }, ..request }
}

/// The claim `n` of the run of `first`, which was there before.
fn again(first: &Request, n: u8) -> Request {
    Request { id: ClaimId::from_bytes([n; 16]).of_run(first.id.run()), again: true, ..first.clone() }
}

fn soon() -> Moment {
    CLOCK.now() + Duration::from_secs(60)
}

async fn enter(service: &MemoryBackend, request: &Request) -> Arc<dyn Claim> {
    service.enter(request, soon()).await.expect("enters")
}

async fn state(claim: &Arc<dyn Claim>) -> ClaimState {
    claim.changed(None).await.expect("a state")
}

async fn stays(service: &MemoryBackend, request: &Request, known: &Known) -> Known {
    match look(service, request, true, known.clone(), soon()).await.expect("looks") {
        Looked::Stays(known) => known,
        Looked::Newer(by) => panic!("taken for newer: {by}"),
    }
}

async fn leaves_to(service: &MemoryBackend, request: &Request, known: &Known, newer: &Request) {
    let looked = look(service, request, true, known.clone(), soon()).await.expect("looks");
    assert!(matches!(&looked, Looked::Newer(by) if *by == newer.holder), "{looked:?}");
}

fn service() -> MemoryBackend {
    MemoryBackend::connect(&MemoryServer::new(CLOCK))
}

async fn leave(claim: Arc<dyn Claim>) {
    claim.leave(false, soon()).await.expect("leaves");
}

#[tokio::test]
async fn a_newcomer_asks_the_holder_that_it_meets_once() {
    let service = service();
    let (holder, newcomer) = (request(1), request(2));
    let held = enter(&service, &holder).await;
    enter(&service, &newcomer).await;
    let known = stays(&service, &newcomer, &Known::default()).await;
    assert_eq!((known.met.as_deref(), known.asked.as_slice()), (Some(&[holder.id][..]), &[holder.id][..]));
    assert_eq!(state(&held).await, ClaimState::AskedToLeave { by: newcomer.holder.clone() });
    assert_eq!(known.memory(&newcomer), holder.id.to_number());
}

/// As dlock is process 1 of each container, and containers may have one host name.
#[tokio::test]
async fn runs_with_the_same_host_and_pid_are_no_less_several() {
    let service = service();
    let (holder, newcomer) = (as_init(1), as_init(2));
    let held = enter(&service, &holder).await;
    let waiting = enter(&service, &newcomer).await;
    let known = stays(&service, &newcomer, &Known::default()).await;
    assert_eq!(known.asked, [holder.id]);
    assert_eq!(state(&held).await, ClaimState::AskedToLeave { by: newcomer.holder.clone() });
    leave(waiting).await;
    leave(held).await;
    let newest = as_init(4);
    enter(&service, &newest).await;
    let back = again(&newcomer, 5);
    enter(&service, &back).await;
    leaves_to(&service, &back, &known, &newest).await;
}

#[tokio::test]
async fn one_that_comes_again_leaves_to_a_newer_holder_and_does_not_ask_it() {
    let service = service();
    let (older, newer) = (request(1), request(2));
    let known = stays(&service, &older, &Known::default()).await;
    assert_eq!(known.memory(&older), older.id.to_number(), "it has met nobody");
    let held = enter(&service, &newer).await;
    let back = again(&older, 3);
    enter(&service, &back).await;
    leaves_to(&service, &back, &known, &newer).await;
    assert!(matches!(state(&held).await, ClaimState::Held(_)));
}

#[tokio::test]
async fn one_that_comes_again_waits_for_the_holder_that_it_met_and_asks_it() {
    let service = service();
    let (holder, older) = (request(1), request(2));
    let held = enter(&service, &holder).await;
    let known = Known { met: Some(vec![holder.id]), asked: Vec::new() };
    let back = again(&older, 3);
    enter(&service, &back).await;
    stays(&service, &back, &known).await;
    assert_eq!(state(&held).await, ClaimState::AskedToLeave { by: older.holder });
}

#[tokio::test]
async fn who_is_older_is_not_guessed() {
    let service = service();
    let (holder, other) = (request(1), request(2));
    let held = enter(&service, &holder).await;
    let back = again(&other, 3);
    enter(&service, &back).await;
    let known = stays(&service, &back, &Known::default()).await;
    assert!(known.asked.is_empty() && known.met.is_none());
    assert!(matches!(state(&held).await, ClaimState::Held(_)));
}

#[tokio::test]
async fn one_that_comes_again_leaves_to_a_waiter_ahead_but_not_to_its_own_last_claim() {
    let service = service();
    let plain = Request { supersede: false, ..request(1) };
    let held = enter(&service, &plain).await;
    let older = request(2);
    let last = enter(&service, &older).await;
    let back = again(&older, 3);
    enter(&service, &back).await;
    stays(&service, &back, &Known::default()).await;
    leave(last).await;
    let newer = request(4);
    let ahead = enter(&service, &newer).await;
    let back = again(&older, 5);
    enter(&service, &back).await;
    leaves_to(&service, &back, &Known::default(), &newer).await;
    assert!(matches!(state(&ahead).await, ClaimState::Waiting { .. }), "who takes nobody's place");
    assert!(matches!(state(&held).await, ClaimState::Held(_)));
}

/// Which of them is the newer nobody knows.
#[tokio::test]
async fn of_two_that_come_again_neither_leaves_to_the_other() {
    let service = service();
    let held = enter(&service, &Request { supersede: false, ..request(1) }).await;
    let (one, two) = (again(&request(2), 2), again(&request(3), 3));
    let ahead = enter(&service, &one).await;
    enter(&service, &two).await;
    stays(&service, &one, &Known::default()).await;
    let met_nobody = Known { met: Some(Vec::new()), asked: Vec::new() };
    stays(&service, &two, &met_nobody).await;
    leave(held).await;
    let known = stays(&service, &two, &met_nobody).await;
    assert!(known.asked.is_empty());
    assert!(matches!(state(&ahead).await, ClaimState::Held(_)));
}
