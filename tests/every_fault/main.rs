//! Every single fault at the system-call boundary, as `SQLite` tests I/O errors and memory.
//!
//! For each shape of a run (uncontended, behind a holder, ended by SIGTERM, by `--max-run`, by a lost lock, ...) the
//! system calls of front and keeper are counted; then the run is repeated with one fault at the N-th call, for every
//! N: SIGKILL, SIGSTOP, or the call failing, once or from then on. An oracle that does not trust dlock judges each.
//!
//! `tests/run every_fault` tries a sample; `DLOCK_TEST_FAULTS_SEED` chooses another.
//! `DLOCK_TEST_EVERY_FAULT=all tests/run every_fault`
//! tries all of them; with a point such as `run/keeper/57:pwrite64/EIO` in the place of `all` it tries that one, and
//! tells what it saw; `DLOCK_TEST_EVERY_FAULT=200` tries so many of each shape.

#![allow(clippy::print_stderr, reason = "a seed that is not seen cannot be tried again")]

mod call;
#[allow(dead_code, reason = "a part of it is for the swarm")]
#[path = "../faults/chance.rs"]
mod chance;
mod command;
mod names;
mod oracle;
#[path = "../support/places.rs"]
mod places;
mod point;
mod pool;
mod process;
#[path = "../support/program.rs"]
mod program;
mod scene;
#[path = "../servers/mod.rs"]
mod servers;
mod shape;
mod site;
mod sys;
mod tracer;
mod trials;
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
