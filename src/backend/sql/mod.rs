//! Locks in SQL databases: rows in dlock's own tables, changed under row locks and by the database's clock.
//!
//! A lock is a row with a counter; a claim is one row for each of its locks. Every step is one batch of statements in
//! one exchange and one transaction, so no transaction ever waits for a client. An arrival increments the counters of
//! its locks, which give the place in the queue and the fencing token. Waiters are woken by the database's own means,
//! which are hints only: the state is always read.
//!
//! Code for all databases is here; code for one kind is behind the trait `Dialect`.

mod database;
mod dialect;
mod examine;
mod local;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod rows;
mod sessions;
mod settings;
mod statements;
mod store;
mod tables;

use std::sync::Arc;

use crate::backend::service::{self as descriptor, Address};
use crate::backend::{Backend, Options};
use crate::clock::Clock;
use crate::queue::Queues;
use dialect::Dialect;
use store::SqlStore;

/// A MySQL or MariaDB.
#[cfg(feature = "mysql")]
pub static MYSQL: descriptor::Service = descriptor::Service {
    name: mysql::NAME,
    schemes: mysql::SCHEMES,
    has_login: true,
    options: &[],
    parse: |options| Ok(Box::new(SqlConfig::mysql(options)?)),
    manual: include_str!("../../../man/dlock-mysql.7"),
};

/// A PostgreSQL.
#[cfg(feature = "postgres")]
pub static POSTGRES: descriptor::Service = descriptor::Service {
    name: postgres::NAME,
    schemes: postgres::SCHEMES,
    has_login: true,
    options: &[],
    parse: |options| Ok(Box::new(SqlConfig::postgres(options)?)),
    manual: include_str!("../../../man/dlock-postgres.7"),
};

/// The address of a database, and the login.
#[derive(Clone, Debug)]
pub struct SqlConfig {
    service: &'static descriptor::Service,
    dialect: Arc<dyn Dialect>,
}

impl Address for SqlConfig {
    fn service(&self) -> &'static descriptor::Service {
        self.service
    }

    fn open(&self) -> Arc<dyn Backend> {
        Arc::new(self.queues(Clock::Boot))
    }

    fn place(&self) -> String {
        self.dialect.identity()
    }

    /// Not [`Address::each`]: a server that takes no writes is passed over.
    fn alternatives(&self) -> Vec<Box<dyn Address>> {
        let each = self.dialect.database().each().into_iter().map(|database| self.dialect.with(database));
        each.map(|dialect| Box::new(Self { service: self.service, dialect }) as Box<_>).collect()
    }

    /// Also the rights that users of locks need, for users that may not create tables.
    fn schema(&self) -> Option<String> {
        Some(format!("{}\n{}\n", self.dialect.schema().join("\n"), self.dialect.rights()))
    }
}

impl SqlConfig {
    /// Parses the connection options for MySQL or MariaDB. An error is one line without secrets.
    #[cfg(feature = "mysql")]
    pub fn mysql(options: &Options) -> Result<Self, String> {
        Ok(Self { service: &MYSQL, dialect: Arc::new(mysql::Mysql::parse(options)?) })
    }

    /// Parses the connection options for PostgreSQL. An error is one line without secrets.
    #[cfg(feature = "postgres")]
    pub fn postgres(options: &Options) -> Result<Self, String> {
        Ok(Self { service: &POSTGRES, dialect: Arc::new(postgres::Postgres::parse(options)?) })
    }

    /// Creates a client with a clock that may differ from the server's; it connects with the first call.
    pub fn queues(&self, clock: Clock) -> Queues {
        Queues::new(Arc::new(SqlStore::new(Arc::clone(&self.dialect), clock)), clock)
    }
}
