//! The typed and checked settings of each subcommand.

mod acquire;
mod connection;
mod elect;
mod run;

pub use acquire::AcquireSettings;
pub use connection::Connection;
pub(super) use connection::{connection, set_printer};
pub use run::RunSettings;

#[cfg(test)]
mod tests;
