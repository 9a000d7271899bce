//! A swarm of dlocks on one lock. An enemy kills and stops some of them at any moment.

#![allow(clippy::print_stderr, reason = "a seed that is not seen cannot be tried again")]

mod oracle;
mod swarm;

#[path = "../support/mod.rs"]
mod support;

/// The locks of a test are in its own directory.
fn service(root: &std::path::Path) -> support::Service {
    support::Service::file(root)
}
