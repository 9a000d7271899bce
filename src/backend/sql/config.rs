//! The configuration of a database of any kind.

use std::sync::Arc;

use super::dialect::Dialect;
#[cfg(feature = "mysql")]
use super::mysql::{Dialer, MysqlConfig};
#[cfg(feature = "postgres")]
use super::postgres::PgConfig;
use crate::backend::Options;

/// The address of a database, and the login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SqlConfig {
    /// A MySQL or MariaDB.
    #[cfg(feature = "mysql")]
    Mysql(MysqlConfig),
    /// A PostgreSQL.
    #[cfg(feature = "postgres")]
    Postgres(PgConfig),
}

impl SqlConfig {
    /// Parses the connection options for MySQL or MariaDB. An error is one line without secrets.
    #[cfg(feature = "mysql")]
    pub fn mysql(options: &Options) -> Result<Self, String> {
        MysqlConfig::parse(options).map(Self::Mysql)
    }

    /// Parses the connection options for PostgreSQL. An error is one line without secrets.
    #[cfg(feature = "postgres")]
    pub fn postgres(options: &Options) -> Result<Self, String> {
        PgConfig::parse(options).map(Self::Postgres)
    }

    /// Returns the database as text without secrets, equal for equal databases.
    pub fn identity(&self) -> String {
        self.dialect().identity()
    }

    /// Each of its servers alone.
    pub(super) fn alone(&self) -> Vec<Self> {
        match self {
            #[cfg(feature = "mysql")]
            Self::Mysql(config) => {
                let alone = |place| Self::Mysql(MysqlConfig { places: vec![place], ..config.clone() });
                config.places.iter().cloned().map(alone).collect()
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(config) => {
                let alone = |place| Self::Postgres(PgConfig { places: vec![place], ..config.clone() });
                config.places.iter().cloned().map(alone).collect()
            }
        }
    }

    pub(super) fn dialect(&self) -> Arc<dyn Dialect> {
        match self {
            #[cfg(feature = "mysql")]
            Self::Mysql(config) => Arc::new(Arc::new(Dialer::new(config.clone()))),
            #[cfg(feature = "postgres")]
            Self::Postgres(config) => Arc::new(config.clone()),
        }
    }
}
