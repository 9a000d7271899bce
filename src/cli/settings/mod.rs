//! The typed and checked settings of each subcommand.

mod acquire;
mod connection;
mod elect;
mod looks;
mod run;

pub use acquire::{AcquireSettings, Beneficiary, ClaimSettings, early_format};
pub use connection::Connection;
pub(super) use connection::{connection, messages};
pub use elect::{LeaderSettings, ProclaimSettings};
pub use looks::{BreakSettings, ListSettings, StatusSettings, Target, Viewing, WatchSettings};
pub use run::{CommandLine, RunSettings};

#[cfg(test)]
mod tests;
