//! PostgreSQL, from version 13.

mod config;
mod dial;
mod dialect;
mod examine;
mod fault;
mod session;
mod settings;
mod tls;

use crate::net::cause::Manner;
pub(super) use config::PgConfig;

/// The backend's name.
pub(super) const NAME: &str = "postgres";

/// How to recognise a server: it answers a request for TLS with one letter for yes or no, or with an error.
const MANNER: Manner = Manner {
    service: "PostgreSQL",
    encryption: "is this the right port?",
    hello: &[0, 0, 0, 8, 4, 210, 22, 47],
    is_own: |answer| matches!(answer, [b'S' | b'N'] | [b'E', 0, ..]),
};
