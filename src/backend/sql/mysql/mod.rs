//! MySQL from version 8.0, MariaDB from 10.5.

mod batch;
mod config;
mod dial;
mod dialect;
mod examine;
mod fault;
mod language;
mod option_file;
mod session;
mod sleep;

use std::sync::Arc;

use crate::net::cause::Manner;
pub use config::{MysqlConfig, MysqlPlace, MysqlTls};
use dial::Dialer;

/// The backend's name.
pub(super) const NAME: &str = "mysql";

/// A MySQL or MariaDB.
#[derive(Debug)]
pub(super) struct Mysql {
    dialer: Arc<Dialer>,
}

impl Mysql {
    pub(super) fn new(config: MysqlConfig) -> Self {
        Self { dialer: Arc::new(Dialer::new(config)) }
    }
}

/// How to recognise a server: it speaks first, with a greeting of version 10 or an error.
const MANNER: Manner = Manner {
    service: "MySQL",
    encryption: "is this the right port?",
    hello: b"",
    is_own: |answer| matches!(answer, [_, _, _, 0, 10 | 0xff, ..]),
};
