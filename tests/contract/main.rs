//! The contract of `dlock::backend`: one suite for every backend.
//!
//! A trial is a fixture × a case: `memory::c07_renew_never_revives_expired`. If a fixture cannot run a case, the trial
//! is ignored, with the reason. `DLOCK_TEST_REQUIRE=file,...` makes a fixture that is not available a failure;
//! `DLOCK_TEST_SEED` repeats a run.
//!
//! `tests/every_message` loses, delays and keeps back messages.

mod bench;
mod cases;
mod cases_detached;
mod cases_enter;
mod cases_evict;
mod cases_exclusion;
mod cases_life;
mod cases_limits;
mod cases_order;
mod cases_token;
mod cases_view;
mod fixture;
mod fixtures;
mod memory;
mod meta;
mod run;
#[path = "../servers/mod.rs"]
mod servers;

/// Modules that other tests use as well.
#[path = "../support"]
mod support {
    pub(crate) mod bounds;
    pub(crate) mod chance;
    mod service;

    pub(crate) use service::Service;
}

use std::process::ExitCode;
use std::thread;
use std::time::SystemTime;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use cases::Case;
use fixtures::Subject;
use run::Outcome;
use support::bounds;

fn main() -> ExitCode {
    let seed = seed();
    let mut trials = meta::trials();
    for subject in Subject::all() {
        trials.extend(cases::all().into_iter().map(|case| trial(subject, case, seed)));
    }
    trials.extend(unknown_requirements());
    run::remember_panics();
    let mut arguments = Arguments::from_args();
    if !bounds::exact() {
        arguments.test_threads = Some(thread::available_parallelism().map_or(2, usize::from) * AT_ONCE);
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The number of trials at once for each processor. They sleep for nearly all of their time.
const AT_ONCE: usize = 8;

fn seed() -> u64 {
    let given = std::env::var("DLOCK_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    given.unwrap_or_else(|| since.as_secs() ^ u64::from(since.subsec_nanos()))
}

/// The names in `DLOCK_TEST_REQUIRE` that belong to other tests.
const FOREIGN: [&str; 6] = ["curator", "etcdctl", "kazoo", "pottery", "pymemcache", "redis-py"];

fn required() -> Vec<String> {
    let list = std::env::var("DLOCK_TEST_REQUIRE").unwrap_or_default();
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Returns a failing trial for each requirement that is no fixture's name.
fn unknown_requirements() -> Vec<Trial> {
    let known = |name: &str| Subject::named(name).is_some() || FOREIGN.contains(&name);
    let unknown = required().into_iter().filter(|name| !known(name));
    let fail = |name: String| {
        Trial::test(
            format!("{name}::is_required"),
            move || Err(format!("no fixture is called {name}").into()),
        )
    };
    unknown.map(fail).collect()
}

fn trial(subject: Subject, case: Case, seed: u64) -> Trial {
    Trial::ignorable_test(format!("{}::{}", subject.name(), case.name), move || {
        if let Some(reason) = subject.missing() {
            let needed = required().iter().any(|name| name == subject.name());
            return if needed { Err(Failed::from(reason)) } else { Ok(Completion::ignored_with(reason)) };
        }
        if let Some(reason) = run::obstacle(subject, &case) {
            return Ok(Completion::ignored_with(reason));
        }
        match run::run(subject, &case, None, seed) {
            Outcome::Passed => Ok(Completion::Completed),
            Outcome::Skipped(reason) => Ok(Completion::ignored_with(reason)),
            Outcome::Failed(why) => Err(Failed::from(why)),
        }
    })
}
