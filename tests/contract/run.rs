//! Runs one case against one fixture.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::bench::{Bench, Skip};
use crate::cases::Case;
use crate::fixture::{Need, Opening};
use crate::fixtures::Subject;
use crate::memory::Mutation;

pub(crate) enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

thread_local! {
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Stores panics instead of printing them: a case that fails under a mutation is a success.
pub(crate) fn remember_panics() {
    std::panic::set_hook(Box::new(|info| {
        LAST_PANIC.with_borrow_mut(|last| *last = Some(info.to_string()));
    }));
}

/// Returns the reason if this trial cannot run at all.
pub(crate) fn obstacle(subject: Subject, case: &Case) -> Option<String> {
    let lacking = case.needs.iter().find_map(|need| subject.lacks(*need));
    lacking.map(str::to_owned)
}

/// Runs `case` on a fresh service and a runtime of its own.
pub(crate) fn run(subject: Subject, case: &Case, mutation: Option<Mutation>, seed: u64) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(subject.is_paused())
        .build()
        .expect("a runtime");
    let most = Duration::from_secs(if subject.is_paused() { 86_400 } else { 120 });
    let needs = |needs: &[Need]| case.needs.iter().any(|need| needs.contains(need));
    let (alone, abandons) = (needs(&[Need::Freeze, Need::Restart]), needs(&[Need::Abandon]));
    let work = AssertUnwindSafe(|| {
        runtime.block_on(async {
            let fixture = subject.open(Opening { mutation, alone, abandons }).await;
            let bench = Bench::new(subject, fixture, case.name, seed);
            tokio::time::timeout(most, (case.run)(bench)).await
        })
    });
    match catch_unwind(work) {
        Ok(Ok(())) => Outcome::Passed,
        Ok(Err(_)) => Outcome::Failed(format!("not done after {most:?}; seed {seed}")),
        Err(payload) => judge(payload.as_ref(), seed),
    }
}

fn judge(payload: &(dyn Any + Send), seed: u64) -> Outcome {
    if let Some(Skip(reason)) = payload.downcast_ref() {
        return Outcome::Skipped(reason.clone());
    }
    let said = LAST_PANIC.take().unwrap_or_else(|| "a panic".to_owned());
    Outcome::Failed(format!("{said}\nseed: DLOCK_TEST_SEED={seed}"))
}
