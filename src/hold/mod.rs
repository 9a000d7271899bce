//! Enter, wait, run, stop, leave.
//!
//! [`machine`] decides, as a table of phases and events that knows no I/O; [`hold`] carries out what it
//! decides, with the backend on one side and the processes on the other.

use std::io;

use crate::lock::ClaimId;
use crate::supervise::sys;

mod actions;
mod adopting;
mod aftermath;
mod context;
mod driver;
mod entry;
pub mod environment;
pub mod event;
mod following;
mod health;
pub mod job;
mod launch;
pub mod machine;
mod marks;
pub mod nested;
pub mod plan;
mod process;
mod renewal;
mod replace;
pub mod verdict;
mod waits;

pub use driver::hold;
pub use job::{Adoption, Audience, Ended, Job, Notice};
pub use plan::{Plan, Wait};
pub use verdict::Verdict;

/// A claim id that nobody else has.
fn new_id() -> io::Result<ClaimId> {
    Ok(ClaimId::from_bytes(sys::random()?))
}
