//! The recipes of dlock-recipes(7): each is taken from the page, and run as the one whose recipe it is would run and stop it.

#![allow(clippy::print_stderr, reason = "a test that cannot run here says why")]

mod asked;
mod hosts;
mod kit;
mod page;
mod pictures;
mod readme;
mod runners;
mod scripts;
mod ssh;

#[path = "../servers/mod.rs"]
mod servers;
#[path = "../support/mod.rs"]
mod support;

/// Locks of a test are in its own folder.
fn service(root: &std::path::Path) -> support::Service {
    support::Service::file(root)
}
