//! PostgreSQL, from version 13.

mod config;
mod dial;
mod environment;
mod examine;
mod fault;
mod language;
mod session;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::dialect::{Dialect, Session};
use super::tables::Tables;
use crate::backend::Examination;
use crate::backend::cause::Manner;
use crate::backend::fault::FaultResult;
use crate::lock::{ClaimId, LockName};
pub use config::{PgConfig, PgMode, PgPlace};

/// The backend's name.
pub(super) const NAME: &str = "postgres";

/// A PostgreSQL.
#[derive(Debug)]
pub(super) struct Postgres {
    config: PgConfig,
    tables: Tables,
}

impl Postgres {
    pub(super) fn new(config: PgConfig) -> Self {
        let tables = config.tables.clone();
        Self { config, tables }
    }
}

/// How a server tells that it is one: asked for TLS, it says yes or no with one letter, or why not.
const MANNER: Manner = Manner {
    service: "PostgreSQL",
    encryption: "is this the right port?",
    hello: &[0, 0, 0, 8, 4, 210, 22, 47],
    is_own: |answer| matches!(answer, [b'S' | b'N'] | [b'E', 0, ..]),
};

#[async_trait]
impl Dialect for Postgres {
    fn name(&self) -> &'static str {
        NAME
    }

    fn identity(&self) -> String {
        self.config.identity()
    }

    fn tables(&self) -> &Tables {
        &self.tables
    }

    fn servers(&self) -> usize {
        self.config.places.len()
    }

    fn address(&self, server: usize) -> Option<String> {
        let place = &self.config.places[server];
        let is_remote = place.socket().is_none();
        is_remote.then(|| {
            place.address.map_or_else(|| place.to_string(), |ip| SocketAddr::new(ip, place.port).to_string())
        })
    }

    fn manner(&self) -> &'static Manner {
        &MANNER
    }

    async fn dial(&self, server: usize) -> FaultResult<Arc<dyn Session>> {
        Ok(Arc::new(dial::dial(&self.config, &self.config.places[server]).await?))
    }

    async fn examine(&self, session: &Arc<dyn Session>, round_trip: Duration) -> FaultResult<Examination> {
        examine::examine(&self.config, session, round_trip).await
    }

    fn schema(&self) -> Vec<String> {
        language::schema(&self.tables)
    }

    fn create(&self) -> String {
        language::create(&self.tables)
    }

    fn text(&self, text: &str) -> String {
        language::text(text)
    }

    fn now(&self) -> &'static str {
        language::NOW
    }

    /// A commit shows its rows when it has reached the disk, unless it does not wait for that; and nothing that a step
    /// is told depends on a release, which does not wait.
    fn reads_are_durable(&self) -> bool {
        true
    }

    fn begin(&self, durable: bool) -> &'static str {
        language::begin(durable)
    }

    fn make(&self, lock: &str) -> String {
        language::make(&self.tables, lock)
    }

    fn bump(&self, lock: &str, succeeded: Option<&str>) -> String {
        language::bump(&self.tables, lock, succeeded)
    }

    fn or_renew(&self, _locks: &str, _claim: &str, columns: &str) -> String {
        language::or_renew(columns)
    }

    fn concat(&self, parts: &[&str]) -> String {
        parts.join(" || ")
    }

    fn forget(&self, most: u32) -> String {
        language::forget(&self.tables, most)
    }

    fn remove_superseded(&self, condition: &str) -> String {
        language::remove_superseded(&self.tables, condition)
    }

    fn grant_first(&self, claim: &str, locks: &[String]) -> String {
        language::grant_first(&self.tables, claim, locks)
    }

    fn grant(&self, claim: &str, locks: &[String]) -> String {
        language::grant(&self.tables, claim, locks)
    }

    fn remove_if_alone(&self, claim: &str, locks: &[String]) -> String {
        language::remove_if_alone(&self.tables, claim, locks)
    }

    fn hand_over(&self, lock: &str, _from: &str) -> String {
        language::hand_over(&self.tables, lock)
    }

    fn wake_next(&self, lock: &str, _from: &str, slots: u32) -> String {
        language::wake_next(&self.tables, lock, slots)
    }

    fn wake(&self, condition: &str) -> String {
        language::wake(&self.tables, condition)
    }

    fn wake_watchers(&self, lock: &str) -> String {
        language::wake_watchers(&self.tables, lock)
    }

    fn listen(&self, claim: ClaimId) -> String {
        language::listen(claim)
    }

    fn watch(&self, name: &LockName) -> String {
        language::watch(&self.tables, name)
    }
}
