//! Locks in SQL databases: rows in dlock's own tables, changed under row locks and by the database's clock.
//!
//! A lock is a row with a counter; a claim is one row for each of its locks. Every step is one batch of statements in
//! one exchange and one transaction, so no transaction ever waits for a client. The step increments the counters of its
//! locks, which locks those rows, deletes expired claims, and does its work. The counter gives the place in the queue
//! and the fencing token. Waiters are woken by the database's own means, which are hints only: the state is always
//! read.
//!
//! Code for all databases is here; code for one kind is behind the trait `Dialect`.

mod claim;
mod config;
mod dialect;
mod enter;
mod evict;
mod examine;
mod facts;
mod fault;
mod inspect;
mod login;
#[cfg(feature = "mysql")]
mod mysql;
mod observe;
mod position;
#[cfg(feature = "postgres")]
mod postgres;
mod renew;
mod sessions;
mod steps;
mod tables;
mod view;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::backend::observe::QueueObserver;
use crate::backend::service::{self as descriptor, Address};
use crate::backend::{Backend, Capabilities, Evict, Examination, Observer, TokenStrength, success};
use crate::clock::Clock;
use crate::lock::{ClaimId, Holder, LockName, LockStatus, Moment, Request, Result};
use crate::net::rank::Rank;
use crate::net::request::Patience;
pub use config::SqlConfig;
use dialect::Dialect;
#[cfg(feature = "mysql")]
pub use mysql::{MysqlConfig, MysqlPlace, MysqlTls};
#[cfg(feature = "postgres")]
pub use postgres::{PgConfig, PgMode, PgPlace};
use sessions::Sessions;

/// A MySQL or MariaDB.
#[cfg(feature = "mysql")]
pub static MYSQL: descriptor::Service = descriptor::Service {
    name: mysql::NAME,
    schemes: &["mysql://", "mariadb://"],
    has_login: true,
    options: &[],
    parse: |options| Ok(Box::new(SqlConfig::mysql(options)?)),
    manual: include_str!("mysql/manual.md"),
};

/// A PostgreSQL.
#[cfg(feature = "postgres")]
pub static POSTGRES: descriptor::Service = descriptor::Service {
    name: postgres::NAME,
    schemes: &["postgres://", "postgresql://"],
    has_login: true,
    options: &[],
    parse: |options| Ok(Box::new(SqlConfig::postgres(options)?)),
    manual: include_str!("postgres/manual.md"),
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
        Arc::new(SqlBackend::open(self))
    }

    fn place(&self) -> String {
        self.identity()
    }

    /// Not [`Address::each`]: a server that takes no writes is passed over.
    fn alternatives(&self) -> Vec<Box<dyn Address>> {
        self.alone().into_iter().map(|alone| Box::new(alone) as Box<_>).collect()
    }

    fn schema(&self) -> Option<String> {
        Some(SqlConfig::schema(self))
    }
}

/// One database.
#[derive(Debug)]
pub struct SqlBackend {
    service: Arc<Sessions>,
}

impl SqlBackend {
    /// Creates a client with `config`, which connects with the first call.
    pub fn open(config: &SqlConfig) -> Self {
        Self::with_clock(config, Clock::Boot)
    }

    /// Creates a client with a clock that may differ from the server's; otherwise works like [`SqlBackend::open`].
    pub fn with_clock(config: &SqlConfig, clock: Clock) -> Self {
        Self { service: Arc::new(Sessions::new(config.dialect(), clock)) }
    }

    fn dialect(&self) -> &dyn Dialect {
        &*self.service.dialect
    }
}

#[async_trait]
impl Backend for SqlBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: self.dialect().name(),
            queue: true,
            shared: true,
            token: TokenStrength::Durable,
            leased: true,
            renewals_per_ttl: claim::RENEWALS_PER_TTL,
            look_while_running: true,
            abandoned_bound: Duration::from_secs(1),
        }
    }

    fn identity(&self) -> String {
        self.dialect().identity()
    }

    fn connects_as(&self, rank: Rank) {
        self.service.connects_as(rank);
    }

    fn has_connected(&self) -> bool {
        self.service.has_connected()
    }

    async fn enter(&self, request: &Request, deadline: Moment) -> Result<Arc<dyn crate::backend::Claim>> {
        Ok(Arc::new(enter::enter(&self.service, request, deadline).await?))
    }

    async fn inspect(&self, name: &LockName, deadline: Moment) -> Result<LockStatus> {
        inspect::one(&self.service, name, deadline).await
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> Result<Vec<LockStatus>> {
        inspect::starting_with(&self.service, prefix, deadline).await
    }

    async fn observe(&self, name: &LockName) -> Result<Box<dyn Observer>> {
        let queue = observe::WatchedQueue::new(&self.service);
        Ok(Box::new(QueueObserver::new(self.service.clock, name.clone(), queue)))
    }

    async fn evict(
        &self,
        name: &LockName,
        id: ClaimId,
        how: Evict,
        by: &Holder,
        deadline: Moment,
    ) -> Result<bool> {
        evict::evict(&self.service, name, id, how, by, deadline).await
    }

    async fn withdraw(&self, request: &Request, deadline: Moment) -> Result<()> {
        evict::withdraw(&self.service, request, deadline).await
    }

    async fn publish(&self, name: &LockName, id: ClaimId, value: &str, deadline: Moment) -> Result<bool> {
        evict::publish(&self.service, name, id, value, deadline).await
    }

    async fn evict_foreign(&self, _: &LockName, _: ClaimId, _: Moment) -> Result<bool> {
        // Only dlock creates rows in its tables.
        Ok(false)
    }

    fn is_detachable(&self) -> bool {
        true
    }

    async fn renew(&self, name: &LockName, id: ClaimId, deadline: Moment) -> Result<bool> {
        renew::renew(&self.service, name, id, deadline).await
    }

    async fn examine(&self, deadline: Moment) -> Result<Examination> {
        // Over a separate session, because the trials would disturb listeners.
        let own = Sessions::new(Arc::clone(&self.service.dialect), self.service.clock);
        examine::examine(&own, deadline).await
    }

    async fn forget(&self, name: &LockName, deadline: Moment) -> Result<()> {
        let step = steps::forget(self.dialect(), name);
        self.service.call(deadline, Patience::Once, |_| step.clone()).await.map(drop)
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> Result<Option<Duration>> {
        let question = steps::last_success(self.dialect(), name);
        let Some(answer) = self.service.read(deadline, &question).await? else { return Ok(None) };
        let row = answer.sets.first().and_then(|set| set.first()).map(Vec::as_slice);
        let Some([Some(now), Some(acquired)]) = row else { return Ok(None) };
        Ok(position::length(now).zip(position::length(acquired)).and_then(|(now, at)| success::age(now, at)))
    }
}
