//! Locks in SQL databases: rows in dlock's own tables, changed under row locks and by the database's clock.
//!
//! A lock is a row with a counter; a claim is one row for each of its locks. Every step is one batch of statements in
//! one exchange and one transaction, so no transaction ever waits for a client. An arrival increments the counters of
//! its locks, which give the place in the queue and the fencing token. Waiters are woken by the database's own means,
//! which are hints only: the state is always read.
//!
//! Code for all databases is here; code for one kind is behind the trait `Dialect`.

mod config;
mod dialect;
mod examine;
mod facts;
mod fault;
mod local;
mod login;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod rows;
mod sessions;
mod statements;
mod store;
mod tables;
mod watch;

use std::sync::Arc;

use crate::backend::Backend;
use crate::backend::service::{self as descriptor, Address};
use crate::clock::Clock;
use crate::queue::Queues;
pub use config::SqlConfig;
#[cfg(feature = "mysql")]
pub use mysql::{MysqlConfig, MysqlPlace, MysqlTls};
#[cfg(feature = "postgres")]
pub use postgres::{PgConfig, PgMode, PgPlace};
use store::SqlStore;

/// A MySQL or MariaDB.
#[cfg(feature = "mysql")]
pub static MYSQL: descriptor::Service = descriptor::Service {
    name: mysql::NAME,
    schemes: &["mysql://", "mariadb://"],
    has_login: true,
    options: &[],
    parse: |options| Ok(Box::new(SqlConfig::mysql(options)?)),
    manual: include_str!("../../../man/dlock-mysql.7"),
};

/// A PostgreSQL.
#[cfg(feature = "postgres")]
pub static POSTGRES: descriptor::Service = descriptor::Service {
    name: postgres::NAME,
    schemes: &["postgres://", "postgresql://"],
    has_login: true,
    options: &[],
    parse: |options| Ok(Box::new(SqlConfig::postgres(options)?)),
    manual: include_str!("../../../man/dlock-postgres.7"),
};

impl Address for SqlConfig {
    fn service(&self) -> &'static descriptor::Service {
        match self {
            #[cfg(feature = "mysql")]
            Self::Mysql(_) => &MYSQL,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => &POSTGRES,
        }
    }

    fn open(&self) -> Arc<dyn Backend> {
        Arc::new(self.queues(Clock::Boot))
    }

    fn place(&self) -> String {
        self.identity()
    }

    /// Not [`Address::each`]: a server that takes no writes is passed over.
    fn alternatives(&self) -> Vec<Box<dyn Address>> {
        self.alone().into_iter().map(|alone| Box::new(alone) as Box<_>).collect()
    }

    /// Also the rights that users of locks need, for users that may not create tables.
    fn schema(&self) -> Option<String> {
        let dialect = self.dialect();
        Some(format!("{}\n{}\n", dialect.schema().join("\n"), dialect.rights()))
    }
}

impl SqlConfig {
    /// Creates a client with a clock that may differ from the server's; it connects with the first call.
    pub fn queues(&self, clock: Clock) -> Queues {
        Queues::new(Arc::new(SqlStore::new(self.dialect(), clock)), clock)
    }
}
