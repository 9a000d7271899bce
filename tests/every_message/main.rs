//! Every lost, late or missing message, as `every_fault` does it with system calls.
//!
//! For each service and each shape of a life (by `run` for each kind of lock, `acquire`, `elect`) the messages of one
//! claim are counted: it connects, waits behind a holder, holds, renews, and leaves. Then that life is lived again with
//! one thing wrong at the N-th message, for every N: a request or an answer is lost and the connection cut, a request is
//! executed when its sender has left the connection, an answer is late, or nothing passes any more. The holder before, the
//! waiter behind and the newcomer afterwards reach the service directly. An oracle that does not trust dlock judges
//! each life.
//!
//! `tests/run every_message` tries a sample; `DLOCK_TEST_FAULTS_SEED` chooses another.
//! `DLOCK_TEST_EVERY_MESSAGE=all tests/run every_message` tries all of them. With a point such as
//! `redis/slots/request/7/lost` instead of `all` it tries that one and prints what it saw;
//! `DLOCK_TEST_EVERY_MESSAGE=20` tries that many of each service and shape; `DLOCK_TEST_EVERY_MESSAGE=~/lost` tries those
//! whose names contain that.

#![allow(clippy::print_stderr, reason = "a point that is not seen cannot be tried again")]

mod crowd;
#[path = "../enumeration/mod.rs"]
mod enumeration;
mod life;
mod oracle;
mod point;
mod proofs;
mod scene;
mod script;
#[path = "../servers/mod.rs"]
mod servers;
mod service;
mod shape;
mod status;
#[path = "../support/mod.rs"]
mod support;
mod trials;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((first, rest)) if first == "command" => enumeration::command::be(rest),
        Some((first, rest)) if first == "script" => script::be(rest),
        _ => trials::run(),
    }
}

/// These tests ask for no environment without a service of its own.
fn service(root: &std::path::Path) -> support::Service {
    support::Service::file(root)
}
