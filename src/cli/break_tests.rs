//! Breaking claims, against the reference backend.

use super::*;
use crate::cli::args::Invocation;
use crate::cli::exit_code::Failure;
use crate::cli::parse;
use crate::cli::testing::{Page, Queues, by, queue};

/// Returns the arguments of `dlock break a --yes` with `more`.
fn args(more: &str) -> BreakArgs {
    let words = "break a --yes".split(' ').chain(more.split_whitespace());
    let Ok(Invocation::Break(args)) = parse::parse(words.map(Into::into).collect()) else { panic!("{more}") };
    args
}

/// Returns the output, or the exit status and the message of the failure.
async fn outcome(backend: &Queues, args: &BreakArgs) -> Result<String, (u8, String)> {
    let mut page = Page::default();
    let mut ask = |_: &str| panic!("nothing to ask");
    match act(backend, args, &by(), &mut page, &mut ask).await {
        Ok(()) => Ok(page.text),
        Err(error) => {
            let failure = Failure::from(&error);
            Err((failure.code.number(), failure.to_string()))
        }
    }
}

#[tokio::test]
async fn all_go_waiters_first_and_force_warns() {
    let backend = Queues::new(vec![queue("a", 1, 1)]);
    let all = args("--all --force");
    let text = outcome(&backend, &all).await.expect("done");
    assert_eq!(
        text,
        "removed waiter ci@host7 pid 2 (./x) from a\n\
         removed ci@host7 pid 1 (./x) from a; until its command has exited, two commands may overlap\n"
    );
    assert!(backend.evicted().iter().all(|(_, how)| *how == Evict::Force));
}

#[tokio::test]
async fn missing_claim_exits_76() {
    let backend = Queues::new(vec![queue("a", 1, 0)]);
    let missing = outcome(&backend, &args("--claim ffffffff")).await;
    assert_eq!(missing, Err((76, "a has no claim ffffffff".into())));
    backend.all_left();
    let left = outcome(&backend, &args("--claim 0000000001")).await;
    assert_eq!(left, Err((76, "ci@host7 pid 1 (./x) is gone from a".into())));
    let empty = outcome(&Queues::new(vec![]), &args("--all")).await;
    assert_eq!(empty, Err((76, "a is neither held nor waited for (fake)".into())));
}

#[tokio::test]
async fn ambiguous_digits_are_refused_with_their_count() {
    let backend = Queues::new(vec![queue("a", 2, 0)]);
    let zeros = args("--claim 00000000");
    assert_eq!(
        outcome(&backend, &zeros).await,
        Err((64, "2 claims on a start with 00000000; write more digits".into()))
    );
}

#[tokio::test]
async fn without_a_choice_the_only_claim_is_meant() {
    for (holders, waiters) in [(1, 0), (0, 1)] {
        let backend = Queues::new(vec![queue("a", holders, waiters)]);
        let text = outcome(&backend, &args("")).await;
        assert_eq!(text, Ok("asked ci@host7 pid 1 (./x) to leave a\n".into()));
    }
    let backend = Queues::new(vec![queue("a", 1, 1)]);
    let several = outcome(&backend, &args("")).await;
    assert_eq!(
        several,
        Err((64, "2 claims hold or wait for a; choose one with --claim ID, or --all".into()))
    );
    assert!(backend.evicted().is_empty());
    let empty = outcome(&Queues::new(vec![]), &args("")).await;
    assert_eq!(empty, Err((76, "a is neither held nor waited for (fake)".into())));
}

#[tokio::test]
async fn question_shows_and_counts_the_affected_claims() {
    let backend = Queues::new(vec![queue("a", 1, 3)]);
    let asking = BreakArgs { yes: false, ..args("--all") };
    let mut asked = String::new();
    let mut ask = |text: &str| {
        asked.push_str(text);
        Ok(false)
    };
    let mut page = Page::default();
    act(&backend, &asking, &by(), &mut page, &mut ask).await.expect("refused");
    assert_eq!(page.text, "nothing was changed\n");
    assert!(backend.evicted().is_empty());
    assert!(
        asked.contains("CLAIM") && asked.ends_with("End these 4 claims on a and their commands? [y/N] "),
        "{asked}"
    );
}

#[tokio::test]
async fn entries_of_other_programs_need_force_or_nothing_is_changed() {
    let mut mixed = queue("a", 1, 1);
    (mixed.holders[0].foreign, mixed.holders[0].user) = (true, None);
    let claim = format!("--claim {}", mixed.holders[0].claim.expect("known"));
    for target in ["--all", claim.as_str()] {
        let backend = Queues::new(vec![mixed.clone()]);
        let asked = outcome(&backend, &args(target)).await;
        let sentence = "another client on host7 pid 1 (./x) uses a, and cannot be asked to end its command";
        assert_eq!(asked, Err((64, sentence.into())));
        assert!(backend.evicted().is_empty());
        let text = outcome(&backend, &BreakArgs { force: true, ..args(target) }).await;
        let text = text.expect("removed");
        let said = "removed another client on host7 pid 1 (./x) from a; its command keeps running, so two commands may overlap\n";
        assert!(text.ends_with(said), "{text}");
    }
}
