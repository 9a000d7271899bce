//! The common parts of the system tests: an environment per test, processes, terminals and bounded waits.

#![allow(dead_code, unused_imports, reason = "each test binary uses its own part of this")]

pub(crate) mod bounds;
pub(crate) mod chance;
pub(crate) mod choice;
pub(crate) mod gate;
pub(crate) mod places;
pub(crate) mod process;
pub(crate) mod program;
pub(crate) mod quiet;
pub(crate) mod renewals;
pub(crate) mod running;
pub(crate) mod scene;
pub(crate) mod scripts;
pub(crate) mod service;
pub(crate) mod terminal;
pub(crate) mod test_env;
pub(crate) mod unread;
pub(crate) mod wait;
pub(crate) mod way;
pub(crate) mod witness;

pub(crate) use bounds::within;
pub(crate) use running::{Finished, Running};
pub(crate) use service::Service;
pub(crate) use test_env::TestEnv;
pub(crate) use wait::until;
