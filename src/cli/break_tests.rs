//! Breaking claims.

use super::*;
use crate::cli::args::Invocation;
use crate::cli::exit_code::Failure;
use crate::cli::parse;
use crate::cli::testing::{Page, Service, by};
use crate::lock::Mode;

/// Returns the arguments of `dlock break a --yes` with `more`.
fn args(more: &str) -> BreakArgs {
    let words = "break a --yes".split(' ').chain(more.split_whitespace());
    let Ok(Invocation::Break(args)) = parse::parse(words.map(Into::into).collect()) else { panic!("{more}") };
    args
}

/// Returns the output, or the exit status and the message of the failure.
async fn outcome(service: &Service, args: &BreakArgs) -> Result<String, (u8, String)> {
    let mut page = Page::default();
    let mut ask = |_: &str| panic!("nothing to ask");
    match act(&service.queues, args, &by(), &mut page, &mut ask).await {
        Ok(()) => Ok(page.text),
        Err(error) => {
            let failure = Failure::from(&error);
            Err((failure.code.number(), failure.to_string()))
        }
    }
}

async fn with_claims(count: usize, mode: Mode) -> Service {
    let mut service = Service::new();
    for _ in 0..count {
        service.enter(Verb::Run, mode).await;
    }
    service
}

#[tokio::test]
async fn all_go_waiters_first_and_force_warns() {
    let service = with_claims(2, Mode::Exclusive).await;
    let text = outcome(&service, &args("--all --force")).await.expect("done");
    assert_eq!(
        text,
        "removed waiter ci@host7 pid 2 (./x) from a\n\
         removed ci@host7 pid 1 (./x) from a; until its command has exited, two commands may overlap\n"
    );
    assert!(service.status().await.is_empty());
}

#[tokio::test]
async fn missing_and_ambiguous_claims_are_refused() {
    for (claims, more, refused) in [
        (1, "--claim ffffffff", (76, "a has no claim ffffffff")),
        (0, "--all", (76, "a is neither held nor waited for (fake)")),
        (2, "--claim 00000000", (64, "2 claims on a start with 00000000; write more digits")),
    ] {
        let service = with_claims(claims, Mode::Shared).await;
        assert_eq!(outcome(&service, &args(more)).await, Err((refused.0, refused.1.to_owned())));
        assert_eq!(service.status().await.holders.len(), claims);
    }
}

#[tokio::test]
async fn question_shows_and_counts_the_affected_claims() {
    let service = with_claims(4, Mode::Exclusive).await;
    let asking = BreakArgs { yes: false, ..args("--all") };
    let mut asked = String::new();
    let mut ask = |text: &str| {
        asked.push_str(text);
        Ok(false)
    };
    let mut page = Page::default();
    act(&service.queues, &asking, &by(), &mut page, &mut ask).await.expect("refused");
    assert_eq!(page.text, "nothing was changed\n");
    assert_eq!(service.status().await.waiters.len(), 3);
    assert!(
        asked.contains("CLAIM") && asked.ends_with("End these 4 claims on a and their commands? [y/N] "),
        "{asked}"
    );
}
