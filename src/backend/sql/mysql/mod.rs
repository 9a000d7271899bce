//! MySQL from version 8.0, MariaDB from 10.5.

mod batch;
mod config;
mod dial;
mod examine;
mod fault;
mod language;
mod listener;
mod option_file;
mod session;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::dialect::{Dialect, Session};
use super::tables::Tables;
use crate::backend::Examination;
use crate::backend::cause::Manner;
use crate::backend::fault::FaultResult;
use crate::lock::{ClaimId, LockName};
pub use config::{MysqlConfig, MysqlPlace, MysqlTls};
use dial::Dialer;
use session::MysqlSession;

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

/// How a server tells that it is one: it speaks first, with a greeting of version 10 or an error.
const MANNER: Manner = Manner {
    service: "MySQL",
    encryption: "is this the right port?",
    hello: b"",
    is_own: |answer| matches!(answer, [_, _, _, 0, 10 | 0xff, ..]),
};

#[async_trait]
impl Dialect for Mysql {
    fn name(&self) -> &'static str {
        NAME
    }

    fn identity(&self) -> String {
        self.dialer.config().identity()
    }

    fn tables(&self) -> &Tables {
        self.dialer.tables()
    }

    fn servers(&self) -> usize {
        self.dialer.config().places.len()
    }

    fn address(&self, server: usize) -> Option<String> {
        match &self.dialer.config().places[server] {
            place @ MysqlPlace::Tcp { .. } => Some(place.to_string()),
            MysqlPlace::Socket(_) => None,
        }
    }

    fn manner(&self) -> &'static Manner {
        &MANNER
    }

    async fn dial(&self, server: usize) -> FaultResult<Arc<dyn Session>> {
        let connection = self.dialer.connect_to_writer(server).await?;
        Ok(Arc::new(MysqlSession::over(connection, &self.dialer, server)))
    }

    async fn examine(&self, session: &Arc<dyn Session>, round_trip: Duration) -> FaultResult<Examination> {
        examine::examine(self.dialer.config(), session, round_trip).await
    }

    fn schema(&self) -> Vec<String> {
        let mut statements = language::schema(self.tables());
        statements.extend(language::rights(self.dialer.config()));
        statements
    }

    fn create(&self) -> String {
        language::schema(self.tables()).concat()
    }

    fn text(&self, text: &str) -> String {
        language::text(text)
    }

    fn now(&self) -> &'static str {
        language::NOW
    }

    fn reads_are_durable(&self) -> bool {
        false
    }

    fn begin(&self, _durable: bool) -> &'static str {
        language::BEGIN
    }

    fn still_takes_writes(&self) -> &'static str {
        language::TAKES_WRITES
    }

    fn make(&self, lock: &str) -> String {
        language::make(self.tables(), lock)
    }

    fn bump(&self, lock: &str, succeeded: Option<&str>) -> String {
        language::bump(self.tables(), lock, succeeded)
    }

    /// MariaDB could tell in the same statement, MySQL cannot.
    fn or_renew(&self, locks: &str, claim: &str, columns: &str) -> String {
        format!(
            "ON DUPLICATE KEY UPDATE lease_until = VALUES(lease_until);\
             SELECT {columns} FROM {claims} WHERE claim = {claim} AND name IN ({locks});",
            claims = self.tables().claim
        )
    }

    fn concat(&self, parts: &[&str]) -> String {
        format!("CONCAT({})", parts.join(", "))
    }

    fn forget(&self, most: u32) -> String {
        language::forget(self.tables(), most)
    }

    fn remove_superseded(&self, condition: &str) -> String {
        language::remove_superseded(self.tables(), condition)
    }

    fn grant_first(&self, claim: &str, locks: &[String]) -> String {
        language::grant_first(self.tables(), claim, locks)
    }

    fn grant(&self, claim: &str, locks: &[String]) -> String {
        language::grant(self.tables(), claim, locks)
    }

    fn remove_if_alone(&self, claim: &str, locks: &[String]) -> String {
        language::remove_if_alone(self.tables(), claim, locks)
    }

    fn hand_over(&self, lock: &str, from: &str) -> String {
        language::hand_over(self.tables(), lock, from)
    }

    fn wake_next(&self, lock: &str, from: &str, slots: u32) -> String {
        language::wake_next(self.tables(), self.dialer.session_locks(), lock, from, slots)
    }

    fn wake(&self, condition: &str) -> String {
        language::wake(self.tables(), self.dialer.session_locks(), condition)
    }

    fn wake_watchers(&self, _lock: &str) -> String {
        String::new()
    }

    fn arrive(&self, claim: ClaimId) -> String {
        self.dialer.session_locks().arrive(claim)
    }

    fn depart(&self, claim: ClaimId) -> String {
        self.dialer.session_locks().depart(claim)
    }

    fn depart_if_alone(&self, claim: ClaimId) -> String {
        self.dialer.session_locks().depart_if_alone(claim)
    }

    fn listen(&self, claim: ClaimId) -> String {
        self.dialer.session_locks().arrive(claim)
    }

    fn watch(&self, _name: &LockName) -> String {
        String::new()
    }
}
