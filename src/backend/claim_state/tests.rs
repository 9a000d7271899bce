//! The rules of which state may follow which, and of when the state is read, without a service.

use std::future::Ready;

use super::*;
use crate::lock::{FencingToken, Holder};

fn clock() -> Clock {
    Clock::Runtime(tokio::time::Instant::now())
}

fn publisher(clock: Clock) -> Publisher {
    Publisher::new(clock, clock.now())
}

fn waiting(ahead: u32) -> ClaimState {
    ClaimState::Waiting { ahead: Some(ahead), holder: None }
}

fn granted(token: u64) -> Vec<Granted> {
    vec![Granted { token: FencingToken::new(token).expect("positive"), slot: None }]
}

async fn changed(publisher: &Publisher, seen: Option<&ClaimState>) -> Result<ClaimState> {
    publisher.changed(seen, None::<Ready<_>>).await
}

fn asked(host: &str) -> ClaimState {
    ClaimState::AskedToLeave { by: Holder { host: host.to_owned(), ..Holder::default() } }
}

const LOST: ClaimState = ClaimState::Lost(LossReason::SessionEnded);

/// The published state after each pair of states.
#[tokio::test(start_paused = true)]
async fn published_state_never_goes_back() {
    let clock = clock();
    let held = |token| publisher(clock).held(granted(token));
    let course = [waiting(2), waiting(1), held(7), asked("a"), LOST];
    for (before, present) in course.iter().enumerate() {
        for (after, next) in course.iter().enumerate() {
            let publisher = publisher(clock);
            publisher.publish(present.clone());
            publisher.publish(next.clone());
            // Of two waiting states the later one counts, even with a worse position.
            let told = if after > before || after < 2 && before < 2 { next } else { present };
            assert_eq!(publisher.state(), *told, "{next:?} after {present:?}");
        }
    }
    let publisher = publisher(clock);
    publisher.publish(held(7));
    publisher.publish(held(8));
    assert_eq!(publisher.state(), held(7), "the hold as it was first seen");
    publisher.publish(asked("a"));
    publisher.publish(asked("b"));
    assert_eq!(publisher.state(), asked("b"), "the last to ask");
    publisher.publish(LOST);
    publisher.publish(ClaimState::Lost(LossReason::Expired));
    assert_eq!(publisher.state(), LOST);
}

/// A command may run under a hold, so the end of a hold is a loss, even if a newer claim supersedes it.
#[tokio::test(start_paused = true)]
async fn superseded_hold_ends_as_lost() {
    let clock = clock();
    let by = Holder { host: "newer".to_owned(), ..Holder::default() };
    let superseded = || ClaimState::Superseded { by: by.clone() };
    for (before, end) in [
        (waiting(1), superseded()),
        (asked("a"), superseded()),
        (publisher(clock).held(granted(7)), ClaimState::Lost(LossReason::Evicted(Some(by.clone())))),
    ] {
        let publisher = publisher(clock);
        publisher.publish(before.clone());
        publisher.publish(superseded());
        assert_eq!(publisher.state(), end, "after {before:?}");
    }
    let publisher = publisher(clock);
    publisher.publish_held(granted(7));
    publisher.publish(asked("a"));
    publisher.publish(superseded());
    assert_eq!(publisher.state(), ClaimState::Lost(LossReason::Evicted(Some(by))));
}

#[tokio::test(start_paused = true)]
async fn leaving_claim_publishes_no_further_state() {
    let publisher = publisher(clock());
    publisher.publish(waiting(1));
    publisher.begin_leaving();
    publisher.publish(LOST);
    assert_eq!(changed(&publisher, None).await.expect("it has not left yet"), waiting(1));
    assert!(publisher.is_over() && !publisher.has_ended());
}

#[tokio::test(start_paused = true)]
async fn changed_fails_when_the_claim_leaves() {
    let publisher = publisher(clock());
    publisher.publish(waiting(1));
    let seen = waiting(1);
    let (answer, ()) = tokio::join!(changed(&publisher, Some(&seen)), async { publisher.leave() });
    assert_eq!(answer.expect_err("it has left").kind, ErrorKind::Invalid);
    assert!(changed(&publisher, None).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn follow_error_reaches_current_callers_only() {
    let publisher = publisher(clock());
    publisher.publish(waiting(1));
    let seen = waiting(1);
    publisher.cannot_follow(Fault::new(ErrorKind::Denied, "before"));
    let (answer, ()) = tokio::join!(changed(&publisher, Some(&seen)), async {
        publisher.cannot_follow(Fault::new(ErrorKind::Denied, "no right to write"));
    });
    let error = answer.expect_err("in trouble");
    let said = error.to_string();
    assert_eq!((error.kind, error.is_final), (ErrorKind::Denied, false));
    assert!(said.contains("no right to write"), "{said}");
    let (answer, ()) = tokio::join!(changed(&publisher, Some(&seen)), async {
        publisher.cannot_follow(Fault::new(ErrorKind::Denied, "overcome"));
        publisher.publish(seen.clone());
        tokio::task::yield_now().await;
        publisher.publish(waiting(0));
    });
    assert_eq!(answer.expect("it is out of trouble"), waiting(0));
}

#[tokio::test(start_paused = true)]
async fn state_from_enter_is_told_once_and_then_read_again() {
    let publisher = publisher(clock());
    publisher.publish(waiting(2));
    let asked = async |state| {
        let read = async {
            publisher.publish(state);
            Ok(())
        };
        publisher.changed(None, Some(read)).await.expect("told")
    };
    assert_eq!(asked(waiting(1)).await, waiting(2));
    assert_eq!(asked(waiting(1)).await, waiting(1));
    assert_eq!(changed(&publisher, None).await.expect("there is nothing to read"), waiting(1));
    publisher.publish(LOST);
    assert_eq!(asked(waiting(0)).await, LOST, "an end needs no read");
}

#[tokio::test(start_paused = true)]
async fn failed_read_is_an_error_and_no_state() {
    let publisher = publisher(clock());
    changed(&publisher, None).await.expect("the state from entering");
    let fails = async { Err(Error::new(ErrorKind::Invalid, "nothing is to be found")) };
    assert!(publisher.changed(None, Some(fails)).await.is_err());
    assert!(matches!(publisher.state(), ClaimState::Waiting { .. }));
}
