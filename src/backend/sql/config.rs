//! Which database.

use std::sync::Arc;

use super::dialect::Dialect;
use super::mysql::{Mysql, MysqlConfig};
use super::postgres::{PgConfig, Postgres};
use crate::backend::Options;

/// Where a database is, and how to get in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SqlConfig {
    /// A MySQL or MariaDB.
    Mysql(MysqlConfig),
    /// A PostgreSQL.
    Postgres(PgConfig),
}

impl SqlConfig {
    /// Reads the connection options for MySQL or MariaDB. An error is one line without secrets.
    pub fn mysql(options: &Options) -> Result<Self, String> {
        MysqlConfig::parse(options).map(Self::Mysql)
    }

    /// Reads the connection options for PostgreSQL. An error is one line without secrets.
    pub fn postgres(options: &Options) -> Result<Self, String> {
        PgConfig::parse(options).map(Self::Postgres)
    }

    /// Which database, the same for all who mean it; without secrets.
    pub fn identity(&self) -> String {
        self.dialect().identity()
    }

    /// The statements that make the tables, and the rights that users of locks need, for whoever may not make tables.
    pub fn schema(&self) -> String {
        let dialect = self.dialect();
        format!("{}\n{}\n", dialect.schema().join("\n"), dialect.rights())
    }

    pub(super) fn dialect(&self) -> Arc<dyn Dialect> {
        match self {
            Self::Mysql(config) => Arc::new(Mysql::new(config.clone())),
            Self::Postgres(config) => Arc::new(Postgres::new(config.clone())),
        }
    }
}
