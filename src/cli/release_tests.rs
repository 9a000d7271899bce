//! Releases, on queues that do not change.

use super::*;
use crate::cli::exit_code::Failure;
use crate::cli::testing::{Queues, by, queue, viewing};

fn settings(claim: &str, names: &[&str]) -> ClaimSettings {
    ClaimSettings {
        claim: claim.into(),
        names: names.iter().map(|name| name.parse().expect("valid")).collect(),
        viewing: viewing(false),
    }
}

fn of(name: &str, verb: Verb) -> LockStatus {
    let mut status = queue(name, 1, 1);
    status.holders[0].verb = verb;
    status.waiters[0].verb = verb;
    status
}

fn digits(status: &LockStatus) -> String {
    status.holders[0].claim.expect("a claim").to_string()
}

async fn refused(queues: &Queues, settings: &ClaimSettings) -> ExitCode {
    let ended = give_back(queues, settings, &by()).await;
    assert_eq!(queues.evicted(), [], "something was touched");
    let [one, other] = [ended, prolong(queues, settings).await]
        .map(|ended| Failure::from(&ended.expect_err("it is refused")));
    assert_eq!(one, other);
    one.code
}

#[tokio::test]
async fn claim_not_made_by_acquire_is_not_released() {
    let (lost, usage) = (ExitCode::Lost, ExitCode::Usage);
    let run = of("a", Verb::Run);
    assert_eq!(refused(&Queues::new(vec![run.clone()]), &settings(&digits(&run), &["a"])).await, lost);
    let mut foreign = of("a", Verb::Acquire);
    foreign.holders[0].foreign = true;
    assert_eq!(
        refused(&Queues::new(vec![foreign.clone()]), &settings(&digits(&foreign), &["a"])).await,
        lost
    );
    let acquired = of("a", Verb::Acquire);
    let queues = Queues::new(vec![acquired.clone()]);
    assert_eq!(refused(&queues, &settings("0123456789abcdef", &["a"])).await, lost);
    // A claim on only one of the named locks, and a waiter's claim.
    assert_eq!(refused(&queues, &settings(&digits(&acquired), &["a", "b"])).await, lost);
    let waiter = acquired.waiters[0].claim.expect("a claim").to_string();
    assert_eq!(refused(&queues, &settings(&waiter, &["a"])).await, lost);
    let mut shared = queue("a", 2, 0);
    shared.holders.iter_mut().for_each(|entry| entry.verb = Verb::Acquire);
    assert_eq!(refused(&Queues::new(vec![shared]), &settings("00000000", &["a"])).await, usage);
}

#[tokio::test]
async fn a_keeper_is_asked_and_waited_for() {
    let status = of("a", Verb::Acquire);
    let queues = Queues::new(vec![status.clone()]);
    let free = LockStatus { holders: vec![], ..status.clone() };
    queues.will_observe(vec![vec![Ok(status.clone()), Ok(status.clone()), Ok(free)]]);
    give_back(&queues, &settings(&digits(&status)[..10], &["a"]), &by()).await.expect("released");
    assert_eq!(queues.evicted(), [(status.holders[0].claim.expect("a claim"), Evict::Ask)]);
}

#[tokio::test]
async fn detached_lease_is_removed() {
    let status = of("a", Verb::Detach);
    let queues = Queues::new(vec![status.clone()]);
    give_back(&queues, &settings(&digits(&status), &["a"]), &by()).await.expect("released");
    assert_eq!(queues.evicted(), [(status.holders[0].claim.expect("a claim"), Evict::Force)]);
}

#[tokio::test]
async fn wait_for_a_remaining_claim_is_bounded() {
    let status = of("a", Verb::Acquire);
    let queues = Queues::new(vec![status.clone()]);
    queues.will_observe(vec![vec![Ok(status.clone())]]);
    let settings = settings(&digits(&status), &["a"]);
    let found = find(&queues, &settings).await.expect("it holds");
    let error = await_end(&queues, &found, Duration::ZERO).await.expect_err("it is still there");
    let failure = Failure::from(&error);
    assert_eq!(failure.code, ExitCode::Unavailable);
    assert!(failure.to_string().contains("still holds a"), "{failure}");
}

#[tokio::test]
async fn unobserved_end_is_confirmed_by_a_look() {
    let status = of("a", Verb::Acquire);
    let found_in = Queues::new(vec![status.clone()]);
    let settings = settings(&digits(&status), &["a"]);
    let found = find(&found_in, &settings).await.expect("it holds");
    let free = Queues::new(vec![]);
    free.will_observe(vec![vec![]]);
    await_end(&free, &found, Duration::ZERO).await.expect("it has left");
}
