//! The recipes of dlock-recipes(7). Each test takes a recipe from the page, and starts and stops it as its own program
//! (cron, a runner …) would.

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

/// The locks of a test are in its own directory.
fn service(root: &std::path::Path) -> support::Service {
    support::Service::file(root)
}
