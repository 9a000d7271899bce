//! Every single fault at the system-call boundary, as `SQLite` tests I/O errors and memory.
//!
//! For each shape of a run (uncontended, behind a holder, stopped and continued at a terminal, ended by SIGTERM, by a
//! lost lock, ...) the system calls of front and keeper are counted; then the run is repeated with one fault at the
//! N-th call, for every N: SIGKILL, SIGSTOP, a call that takes as long as a lease, or a call that fails, once or from
//! then on. An oracle that does not trust dlock judges each.
//!
//! `tests/run every_fault` tries a sample; `DLOCK_TEST_FAULTS_SEED` chooses another.
//! `DLOCK_TEST_EVERY_FAULT=all tests/run every_fault` tries all of them. With a point such as
//! `run/keeper/57:pwrite64/EIO` instead of `all` it tries that one and prints what it saw;
//! `DLOCK_TEST_EVERY_FAULT=200` tries that many of each shape; `DLOCK_TEST_EVERY_FAULT=~newer=` tries those whose names
//! contain that.

#![allow(clippy::print_stderr, reason = "a seed that is not seen cannot be tried again")]

mod call;
mod command;
#[path = "../enumeration/mod.rs"]
mod enumeration;
mod oracle;
mod point;
mod pool;
mod scene;
#[path = "../servers/mod.rs"]
mod servers;
mod shape;
mod site;
#[path = "../support/mod.rs"]
mod support;
mod sys;
mod tracer;
mod trials;
mod user;
mod worker;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((first, rest)) if first == "command" => command::be(rest),
        Some((first, rest)) if first == "count" => worker::count(rest),
        Some((first, rest)) if first == "play" => worker::play(rest),
        _ => libtest_mimic::run(&libtest_mimic::Arguments::from_args(), trials::all()).exit_code(),
    }
}

/// These tests ask for no environment without a service of its own.
fn service(root: &std::path::Path) -> support::Service {
    support::Service::file(root)
}
