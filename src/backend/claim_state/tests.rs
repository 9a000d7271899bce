//! The rules of which state may follow which, and of when the state is read, without a service.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use super::*;
use crate::lock::FencingToken;

const TTL: Duration = Duration::from_secs(30);

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
async fn a_hold_counts_from_the_last_proof_before_it() {
    let clock = clock();
    let begun = clock.now();
    let publisher = publisher(clock);
    tokio::time::advance(Duration::from_secs(3)).await;
    publisher.prove(begun + Duration::from_secs(2));
    publisher.prove(begun + Duration::from_secs(1));
    assert_eq!(publisher.proof(), begun + Duration::from_secs(2), "never earlier");
    publisher.publish_held(granted(7));
    publisher.prove(begun + Duration::from_secs(3));
    let ClaimState::Held(grant) = publisher.state() else { panic!("it holds") };
    assert_eq!(grant.counts_from, begun + Duration::from_secs(2));
    assert_eq!(publisher.held_at(), Some(begun + Duration::from_secs(3)));
}

#[tokio::test(start_paused = true)]
async fn leaving_claim_publishes_no_further_state() {
    let publisher = publisher(clock());
    publisher.publish(waiting(1));
    publisher.begin_leaving();
    publisher.publish(LOST);
    assert_eq!(publisher.changed(None).await.expect("it has not left yet"), waiting(1));
    assert!(publisher.is_over() && !publisher.has_ended());
}

#[tokio::test(start_paused = true)]
async fn changed_fails_when_the_claim_leaves() {
    let publisher = publisher(clock());
    publisher.publish(waiting(1));
    let seen = waiting(1);
    let (answer, ()) = tokio::join!(publisher.changed(Some(&seen)), async { publisher.leave() });
    assert_eq!(answer.expect_err("it has left").kind, ErrorKind::Invalid);
    assert!(publisher.changed(None).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn follow_error_reaches_current_callers_only() {
    let publisher = publisher(clock());
    publisher.publish(waiting(1));
    let seen = waiting(1);
    publisher.cannot_follow(Fault::new(ErrorKind::Denied, "before"));
    let (answer, ()) = tokio::join!(publisher.changed(Some(&seen)), async {
        publisher.cannot_follow(Fault::new(ErrorKind::Denied, "no right to write"));
    });
    let error = answer.expect_err("in trouble");
    let said = error.to_string();
    assert_eq!((error.kind, error.is_final), (ErrorKind::Denied, false));
    assert!(said.contains("no right to write"), "{said}");
    let (answer, ()) = tokio::join!(publisher.changed(Some(&seen)), async {
        publisher.cannot_follow(Fault::new(ErrorKind::Denied, "overcome"));
        publisher.publish(seen.clone());
        tokio::task::yield_now().await;
        publisher.publish(waiting(0));
    });
    assert_eq!(answer.expect("it is out of trouble"), waiting(0));
}

#[tokio::test(start_paused = true)]
async fn end_reason_is_the_note_or_the_ttl_expiry() {
    let publisher = publisher(clock());
    let by = Holder::default();
    let ended = |why, by: Option<&Holder>| publisher.ended(why, by, TTL);
    assert_eq!(ended(Some("superseded"), Some(&by)), ClaimState::Superseded { by: by.clone() });
    let evicted = |by| ClaimState::Lost(LossReason::Evicted(by));
    assert_eq!(ended(Some("evicted"), Some(&by)), evicted(Some(by.clone())));
    assert_eq!(ended(Some("superseded"), None), evicted(None), "by an unknown client");
    assert_eq!(ended(None, None), evicted(None));
    tokio::time::advance(TTL).await;
    assert_eq!(ended(None, None), ClaimState::Lost(LossReason::Expired));
    assert_eq!(ended(Some("evicted"), None), evicted(None), "that was noted");
}

/// A service with a state that the test sets.
struct Scripted<'a> {
    publisher: &'a Publisher,
    fresh: AtomicBool,
    /// Whether the service notifies of changes.
    tells: bool,
    told: Notify,
    due: Moment,
    found: Mutex<Vec<ClaimState>>,
    looks: Mutex<Vec<Cause>>,
}

impl<'a> Scripted<'a> {
    fn new(publisher: &'a Publisher, found: &[ClaimState]) -> Self {
        let found = Mutex::new(found.iter().rev().cloned().collect());
        let (fresh, told, looks) = (AtomicBool::new(false), Notify::new(), Mutex::default());
        Self { publisher, fresh, tells: true, told, due: Moment::NEVER, found, looks }
    }

    fn looks(&self) -> Vec<Cause> {
        self.looks.lock().expect("not poisoned").clone()
    }
}

impl Source for Scripted<'_> {
    fn is_fresh(&self) -> bool {
        self.fresh.load(Ordering::Relaxed)
    }

    fn wakes(&self) -> (Option<impl Future<Output = ()> + Send>, Moment) {
        (self.tells.then(|| self.told.notified()), self.due)
    }

    async fn look(&self, cause: Cause) -> Result<()> {
        self.looks.lock().expect("not poisoned").push(cause);
        let found = self.found.lock().expect("not poisoned").pop();
        let state = found.ok_or_else(|| Error::new(ErrorKind::Invalid, "nothing more is to be found"))?;
        self.publisher.publish(state);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn first_follow_returns_the_state_from_enter() {
    let publisher = publisher(clock());
    publisher.publish(waiting(1));
    let source = Scripted::new(&publisher, &[waiting(0)]);
    assert_eq!(publisher.follow(None, &source).await.expect("told"), waiting(1));
    assert_eq!(source.looks(), []);
    assert_eq!(publisher.follow(None, &source).await.expect("found"), waiting(0));
    assert_eq!(source.looks(), [Cause::Asked]);
    source.fresh.store(true, Ordering::Relaxed);
    assert_eq!(publisher.follow(None, &source).await.expect("fresh"), waiting(0));
    assert_eq!(source.looks(), [Cause::Asked]);
}

#[tokio::test(start_paused = true)]
async fn distrusted_enter_state_is_looked_up_again() {
    let publisher = publisher(clock());
    publisher.distrust();
    let source = Scripted::new(&publisher, &[waiting(3)]);
    assert_eq!(publisher.follow(None, &source).await.expect("found"), waiting(3));
    assert_eq!(source.looks(), [Cause::Asked]);
}

#[tokio::test(start_paused = true)]
async fn follow_looks_when_notified_or_due_until_a_change() {
    let clock = clock();
    let publisher = publisher(clock);
    publisher.publish(waiting(2));
    let seen = waiting(2);
    let mut source = Scripted::new(&publisher, &[waiting(2), waiting(1)]);
    source.due = clock.now() + TTL;
    source.told.notify_one();
    assert_eq!(publisher.follow(Some(&seen), &source).await.expect("found"), waiting(1));
    assert_eq!(source.looks(), [Cause::Notified, Cause::Due]);
    assert_eq!(clock.now(), source.due);
}

#[tokio::test(start_paused = true)]
async fn without_notifications_waits_and_long_holds_are_polled() {
    let clock = clock();
    let publisher = publisher(clock);
    publisher.publish(waiting(2));
    let held = publisher.held(granted(7));
    let mut source = Scripted::new(&publisher, &[held.clone(), asked("a")]);
    source.tells = false;
    assert_eq!(publisher.follow(Some(&waiting(2)), &source).await.expect("found"), held);
    let begun = clock.now();
    assert_eq!(publisher.follow(Some(&held), &source).await.expect("found"), asked("a"));
    assert_eq!(clock.now(), begun + SHORT_HOLD);
    assert_eq!(source.looks(), [Cause::Due, Cause::Due]);
}

#[tokio::test(start_paused = true)]
async fn known_end_needs_no_look() {
    let publisher = publisher(clock());
    publisher.distrust();
    publisher.publish(LOST);
    let source = Scripted::new(&publisher, &[]);
    assert_eq!(publisher.follow(None, &source).await.expect("final"), LOST);
    assert_eq!(source.looks(), []);
}

#[tokio::test(start_paused = true)]
async fn failed_look_is_an_error_and_no_state() {
    let publisher = publisher(clock());
    let source = Scripted::new(&publisher, &[]);
    source.told.notify_one();
    let seen = publisher.state();
    assert!(publisher.follow(Some(&seen), &source).await.is_err());
    assert_eq!(publisher.state(), seen);
}

#[tokio::test(start_paused = true)]
async fn state_published_elsewhere_ends_the_wait_without_a_look() {
    let publisher = publisher(clock());
    publisher.publish(waiting(2));
    let source = Scripted::new(&publisher, &[]);
    let seen = waiting(2);
    let (answer, ()) = tokio::join!(publisher.follow(Some(&seen), &source), async {
        publisher.publish(LOST);
    });
    assert_eq!(answer.expect("told"), LOST);
    assert_eq!(source.looks(), []);
}

#[test]
fn patience_with_a_look_is_bounded() {
    assert_eq!(patience(TTL), TTL / 6);
    assert_eq!(patience(TTL * 10), Duration::from_secs(5));
}
