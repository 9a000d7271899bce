//! PostgreSQL, from version 13.

mod config;
mod dial;
mod dialect;
mod examine;
mod fault;
mod password_file;
mod session;
mod tls;

pub(super) use config::{NAME, Postgres, SCHEMES};

/// The request for encryption. The server answers with one letter for yes or no, or with an error.
const ENCRYPT: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
