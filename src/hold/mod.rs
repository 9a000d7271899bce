//! Enter, wait, run, stop, leave.
//!
//! [`machine`] decides, as a table of phases and events without I/O. [`hold`] carries out its actions, with the backend
//! on one side and the processes on the other.

mod actions;
mod adopting;
mod context;
mod driver;
mod entry;
pub mod environment;
pub mod event;
mod following;
mod health;
mod heard;
pub mod job;
pub mod machine;
mod marks;
pub mod nested;
pub mod plan;
mod process;
mod renewal;
mod replacing;
pub mod verdict;
mod waits;

pub use driver::hold;
pub use job::{Adoption, HoldEnd, Job, Notice, Progress, Stage};
pub use plan::{Plan, Wait};
pub use verdict::{CutShort, Verdict};
