//! C11, C12, C15: deadlines, errors, kinds.

use dlock::backend::Evict;
use dlock::lock::{ClaimState, Error, ErrorKind, Holder, Mode};

use crate::bench::{Bench, slots};
use crate::cases::cases;

cases![
    c11_frozen_service_every_verb_is_back_by_its_deadline[Freeze],
    c11_past_deadline_is_answered_at_once[],
    c11_thawed_service_goes_on[Freeze],
    c12_unavailable_has_action_and_place_and_is_transient[Freeze],
    c15_pairs_of_kinds[],
    c15_mismatch_names_the_holder_and_changes_nothing[],
    c15_mismatch_with_one_of_several_names_enters_none[AtomicNames],
    c15_kind_is_free_again_after_the_last[],
];

/// Returns the answer of each verb to a deadline that is `after` from now. Fails if one is late.
async fn every_verb(b: &Bench, after: std::time::Duration) -> Vec<(&'static str, Result<(), Error>)> {
    let lock = b.name("a");
    let a = b.hold(b.ask(&lock)).await;
    let (client, by, other) = (b.connect().await, b.holder(), b.ask(&b.name("other")));
    if !after.is_zero() {
        b.fixture.freeze().await;
    }
    let mut answers = Vec::new();
    macro_rules! verb {
        ($name:literal, |$deadline:ident| $call:expr) => {{
            let $deadline = b.clock.now() + after;
            let late = $deadline + b.fixture.patience() + b.slack();
            let answer = b.by(late, $call).await;
            answers.push(($name, answer.expect(concat!($name, " is back by its deadline")).map(|_| ())));
        }};
    }
    verb!("enter", |d| client.enter(&other, d));
    verb!("inspect", |d| client.inspect(&lock, d));
    verb!("list", |d| client.list("", d));
    verb!("ask", |d| client.evict(&lock, other.id, Evict::Ask, &by, d));
    verb!("evict", |d| client.evict(&lock, other.id, Evict::Force, &by, d));
    verb!("last_success", |d| client.last_success(&lock, d));
    verb!("publish", |d| client.publish(&lock, a.id(), "value", d));
    verb!("renew", |d| a.claim.renew(d));
    verb!("leave", |d| a.claim.leave(false, d));
    answers
}

async fn c11_frozen_service_every_verb_is_back_by_its_deadline(b: Bench) {
    for (verb, answer) in every_verb(&b, std::time::Duration::from_secs(1)).await {
        let error = answer.expect_err(verb);
        assert_eq!(error.kind, ErrorKind::Unavailable, "{verb}: {error}");
    }
}

/// The backend may still succeed. If it fails, its error has one of two kinds.
async fn c11_past_deadline_is_answered_at_once(b: Bench) {
    for (verb, answer) in every_verb(&b, std::time::Duration::ZERO).await {
        if let Err(error) = answer {
            let kinds = [ErrorKind::Unavailable, ErrorKind::Unsupported];
            assert!(kinds.contains(&error.kind), "{verb}: {error}");
        }
    }
}

async fn c11_thawed_service_goes_on(b: Bench) {
    let lock = b.name("a");
    let holder = b.hold(b.ask(&lock)).await;
    let waiter = b.enter(b.ask(&lock)).await;
    b.fixture.freeze().await;
    let renewal = holder.claim.renew(b.soon()).await;
    assert!(renewal.is_err_and(|e| e.is_transient()));
    b.fixture.thaw().await;
    holder.renew().await;
    assert!(matches!(waiter.state().await, ClaimState::Waiting { .. }));
    holder.leave().await;
    waiter.held().await;
}

fn says_all(b: &Bench, error: &Error, backend: &str) {
    let operation = error.operation.as_ref().expect("it is known during what");
    assert_eq!((operation.backend, operation.lock.as_ref()), (backend, Some(&b.name("a"))), "{error}");
    assert!(!operation.verb.is_empty() && !error.reason.to_string().is_empty(), "{error:?}");
}

async fn c12_unavailable_has_action_and_place_and_is_transient(b: Bench) {
    let lock = b.name("a");
    let a = b.hold(b.ask(&lock)).await;
    let client = b.connect().await;
    let backend = client.client().capabilities().backend;
    b.fixture.freeze().await;
    let request = b.ask(&lock);
    let errors = [
        client.enter(&request, b.soon()).await.map(|_| ()),
        client.inspect(&lock, b.soon()).await.map(|_| ()),
        a.claim.renew(b.soon()).await.map(|_| ()),
        a.claim.leave(false, b.soon()).await,
    ];
    for error in errors.map(|answer| answer.expect_err("frozen")) {
        assert!(error.kind == ErrorKind::Unavailable && error.is_transient(), "{error}");
        says_all(&b, &error, backend);
    }
}

async fn c15_pairs_of_kinds(b: Bench) {
    use Mode::{Exclusive as X, Shared as S};
    let modes = b.offered(&[X, S, slots(1), slots(2), slots(3)]);
    for (i, first) in modes.iter().copied().enumerate() {
        for (j, second) in modes.iter().copied().enumerate() {
            let lock = b.name(&format!("{i}{j}"));
            let _a = b.hold(b.ask_as(&lock, first)).await;
            let answer = b.try_enter(&b.ask_as(&lock, second)).await;
            let kind = answer.map_err(|e| e.kind).map(|_| ());
            let expected = if first.mixes_with(second) { Ok(()) } else { Err(ErrorKind::Mismatch) };
            assert_eq!(kind, expected, "{second} on a queue of {first}");
        }
    }
}

async fn c15_mismatch_names_the_holder_and_changes_nothing(b: Bench) {
    let lock = b.name("a");
    let holder = b.hold(b.ask_as(&lock, slots(3))).await;
    let backend = holder.client.client().capabilities().backend;
    for mode in b.offered(&[Mode::Exclusive, Mode::Shared, slots(5)]) {
        let error = b.try_enter(&b.ask_as(&lock, mode)).await.expect_err("kinds do not mix");
        assert!(error.kind == ErrorKind::Mismatch && !error.is_transient(), "{error}");
        says_all(&b, &error, backend);
        let Holder { user, host, .. } = &holder.request.holder;
        assert!(
            error.reason.to_string().contains(user) && error.reason.to_string().contains(host),
            "who: {}",
            error.reason
        );
    }
    assert_eq!(b.ids(&lock).await, (vec![holder.id()], vec![]));
    holder.still_holds().await;
}

async fn c15_mismatch_with_one_of_several_names_enters_none(b: Bench) {
    let (x, y) = (b.name("x"), b.name("y"));
    let _holder = b.hold(b.ask_as(&y, slots(2))).await;
    let error = b.try_enter(&b.ask_all(&[x.clone(), y.clone()])).await.expect_err("kinds do not mix");
    assert_eq!(error.kind, ErrorKind::Mismatch, "{error}");
    assert!(b.line(&x).await.is_empty());
    b.hold(b.ask(&x)).await;
}

async fn c15_kind_is_free_again_after_the_last(b: Bench) {
    let lock = b.name("a");
    for mode in b.offered(&[slots(2), Mode::Exclusive, slots(5), Mode::Shared]) {
        let member = b.hold(b.ask_as(&lock, mode)).await;
        member.leave().await;
    }
}
