//! MySQL from version 8.0, MariaDB from 10.5.

mod config;
mod dial;
mod dialect;
mod examine;
mod fault;
mod language;
mod option_file;
mod session;

use crate::net::cause::Manner;
pub use config::{MysqlConfig, MysqlPlace, MysqlTls};
pub(super) use dial::Dialer;

/// The backend's name.
pub(super) const NAME: &str = "mysql";

/// How to recognise a server: it speaks first, with a greeting of version 10 or an error.
const MANNER: Manner = Manner {
    service: "MySQL",
    encryption: "is this the right port?",
    hello: b"",
    is_own: |answer| matches!(answer, [_, _, _, 0, 10 | 0xff, ..]),
};
