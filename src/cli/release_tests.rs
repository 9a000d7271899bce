//! Releases of claims that cannot be released, or that stay.

use super::*;
use crate::cli::args::CommonArgs;
use crate::cli::exit_code::Failure;
use crate::cli::testing::{Service, by, soon};
use crate::lock::Mode;

fn args(claim: &str, names: &[&str]) -> ClaimArgs {
    let name = names.iter().map(|name| name.parse().expect("valid")).collect();
    ClaimArgs { claim: claim.into(), name, common: CommonArgs::default() }
}

#[tokio::test]
async fn unheld_or_ambiguous_claim_is_not_released() {
    for (mode, claim, names, code) in [
        (Mode::Exclusive, "00000000000000000000000000000001", &["a", "b"] as &[&str], ExitCode::Lost),
        (Mode::Exclusive, "00000000000000000000000000000002", &["a"], ExitCode::Lost),
        (Mode::Shared, "00000000", &["a"], ExitCode::Usage),
    ] {
        let mut service = Service::new();
        for _ in 0..2 {
            service.enter(Verb::Acquire, mode).await;
        }
        let args = args(claim, names);
        let ended = [give_back(&service.queues, &args, &by()).await, renew(&service.queues, &args).await];
        for ended in ended {
            assert_eq!(Failure::from(&ended.expect_err("it is refused")).code, code, "{claim} {names:?}");
        }
        let status = service.status().await;
        assert_eq!(status.holders.len() + status.waiters.len(), 2, "something was touched");
    }
}

#[tokio::test]
async fn wait_for_a_remaining_claim_is_bounded_and_ends_with_a_look() {
    let mut service = Service::new();
    let id = service.enter(Verb::Acquire, Mode::Exclusive).await;
    let args = args(&id.to_string(), &["a"]);
    let found = find(&service.queues, &args).await.expect("it holds");
    let error = await_end(&service.queues, &found, Duration::ZERO).await.expect_err("it is still there");
    let failure = Failure::from(&error);
    assert_eq!(failure.code, ExitCode::Unavailable);
    assert!(failure.to_string().contains("still holds a"), "{failure}");
    assert!(service.queues.evict(found.name, id, Evict::Force, &by(), soon()).await.expect("evicted"));
    await_end(&service.queues, &found, Duration::ZERO).await.expect("it has left");
}
