//! A swarm of dlocks on one lock, some of which are killed or stopped at any moment.

#![allow(clippy::print_stderr, reason = "a seed that is not seen cannot be tried again")]

mod oracle;
mod swarm;

#[path = "../support/mod.rs"]
mod support;

/// Locks of a test are in its own folder.
fn service(root: &std::path::Path) -> support::Service {
    support::Service::file(root)
}
