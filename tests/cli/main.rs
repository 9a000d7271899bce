//! The command line on a lock directory: options, failures, order and reports.

#![allow(clippy::print_stderr, reason = "a test that cannot run here says why")]

mod acquire;
mod breaking;
mod callers;
mod completing;
mod concurrency;
mod credentials;
mod deadlocks;
mod directory;
mod elections;
mod endpoints;
mod failures;
mod files;
#[path = "../services/forced.rs"]
mod forced;
mod look;
mod names;
mod nested;
mod options;
mod replace;
mod reports;
mod resolver;
mod set_uid;
mod shells;
mod sticky;
mod subshells;
mod surroundings;
mod undetachable;
mod usage;

#[path = "../support/mod.rs"]
mod support;

/// The locks of a test are in its own directory.
fn service(root: &std::path::Path) -> support::Service {
    support::Service::file(root)
}
