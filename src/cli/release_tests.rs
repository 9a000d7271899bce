//! Releases, on queues that do not change.

use super::*;
use crate::cli::args::CommonArgs;
use crate::cli::exit_code::Failure;
use crate::cli::testing::{Queues, by, queue};

fn args(claim: &str, names: &[&str]) -> ClaimArgs {
    let name = names.iter().map(|name| name.parse().expect("valid")).collect();
    ClaimArgs { claim: claim.into(), name, common: CommonArgs::default() }
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

async fn refused(queues: &Queues, args: &ClaimArgs) -> ExitCode {
    let ended = give_back(queues, args, &by()).await;
    assert_eq!(queues.evicted(), [], "something was touched");
    let [one, other] =
        [ended, prolong(queues, args).await].map(|ended| Failure::from(&ended.expect_err("it is refused")));
    assert_eq!(one, other);
    one.code
}

#[tokio::test]
async fn claim_not_made_by_acquire_is_not_released() {
    let (lost, usage) = (ExitCode::Lost, ExitCode::Usage);
    let run = of("a", Verb::Run);
    assert_eq!(refused(&Queues::new(vec![run.clone()]), &args(&digits(&run), &["a"])).await, lost);
    let mut foreign = of("a", Verb::Acquire);
    foreign.holders[0].foreign = true;
    assert_eq!(refused(&Queues::new(vec![foreign.clone()]), &args(&digits(&foreign), &["a"])).await, lost);
    let acquired = of("a", Verb::Acquire);
    let queues = Queues::new(vec![acquired.clone()]);
    assert_eq!(refused(&queues, &args("0123456789abcdef", &["a"])).await, lost);
    // A claim on only one of the named locks, and a waiter's claim.
    assert_eq!(refused(&queues, &args(&digits(&acquired), &["a", "b"])).await, lost);
    let waiter = acquired.waiters[0].claim.expect("a claim").to_string();
    assert_eq!(refused(&queues, &args(&waiter, &["a"])).await, lost);
    let mut shared = queue("a", 2, 0);
    shared.holders.iter_mut().for_each(|entry| entry.verb = Verb::Acquire);
    assert_eq!(refused(&Queues::new(vec![shared]), &args("00000000", &["a"])).await, usage);
}

#[tokio::test]
async fn a_keeper_is_asked_and_waited_for() {
    let status = of("a", Verb::Acquire);
    let queues = Queues::new(vec![status.clone()]);
    let free = LockStatus { holders: vec![], ..status.clone() };
    queues.will_observe(vec![vec![Ok(status.clone()), Ok(status.clone()), Ok(free)]]);
    give_back(&queues, &args(&digits(&status)[..10], &["a"]), &by()).await.expect("released");
    assert_eq!(queues.evicted(), [(status.holders[0].claim.expect("a claim"), Evict::Ask)]);
}

#[tokio::test]
async fn detached_lease_is_removed() {
    let status = of("a", Verb::Detach);
    let queues = Queues::new(vec![status.clone()]);
    give_back(&queues, &args(&digits(&status), &["a"]), &by()).await.expect("released");
    assert_eq!(queues.evicted(), [(status.holders[0].claim.expect("a claim"), Evict::Force)]);
}

#[tokio::test]
async fn wait_for_a_remaining_claim_is_bounded() {
    let status = of("a", Verb::Acquire);
    let queues = Queues::new(vec![status.clone()]);
    queues.will_observe(vec![vec![Ok(status.clone())]]);
    let args = args(&digits(&status), &["a"]);
    let found = find(&queues, &args).await.expect("it holds");
    let error = await_end(&queues, &found, Duration::ZERO).await.expect_err("it is still there");
    let failure = Failure::from(&error);
    assert_eq!(failure.code, ExitCode::Unavailable);
    assert!(failure.to_string().contains("still holds a"), "{failure}");
}

#[tokio::test]
async fn unobserved_end_is_confirmed_by_a_look() {
    let status = of("a", Verb::Acquire);
    let found_in = Queues::new(vec![status.clone()]);
    let args = args(&digits(&status), &["a"]);
    let found = find(&found_in, &args).await.expect("it holds");
    let free = Queues::new(vec![]);
    free.will_observe(vec![vec![]]);
    await_end(&free, &found, Duration::ZERO).await.expect("it has left");
}
