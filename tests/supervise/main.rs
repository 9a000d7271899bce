//! Real commands under the real dlock: status, transparency, signals, crashes, terminals, process 1.

#![allow(clippy::print_stderr, reason = "a test that cannot run here says why")]

mod crash;
mod daemons;
mod ending;
mod freeze;
mod hangup;
mod init;
mod jobs;
mod kernel;
mod leaving;
mod notify;
mod signals;
mod status;
mod terminal;
mod transparency;
mod unread;
mod waiting;

#[path = "../support/mod.rs"]
mod support;

/// The locks of a test are in its own directory.
fn service(root: &std::path::Path) -> support::Service {
    support::Service::file(root)
}
