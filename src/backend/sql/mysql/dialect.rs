//! The dialect of MySQL and MariaDB.
//!
//! Everything is plain SQL of MySQL 8.0 and MariaDB 10.5, without routines or events, which need additional rights.

use std::sync::Arc;

use async_trait::async_trait;

use super::config::MysqlPlace;
use super::language::{TAKES_WRITES, text};
use super::session::MysqlSession;
use super::{Dialer, MANNER, NAME, examine};
use crate::backend::Risk;
use crate::backend::sql::dialect::{Dialect, NOTE, Session};
use crate::backend::sql::facts::Facts;
use crate::backend::sql::tables::Tables;
use crate::lock::ClaimId;
use crate::net::cause::Manner;
use crate::net::fault::FaultResult;
use crate::net::link::Stage;

/// Microseconds since 1970.
const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

#[async_trait]
impl Dialect for Arc<Dialer> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn identity(&self) -> String {
        self.config.identity()
    }

    fn tables(&self) -> &Tables {
        &self.config.tables
    }

    fn servers(&self) -> usize {
        self.config.places.len()
    }

    fn address(&self, server: usize) -> Option<String> {
        match &self.config.places[server] {
            place @ MysqlPlace::Tcp { .. } => Some(place.to_string()),
            MysqlPlace::Socket(_) => None,
        }
    }

    fn manner(&self) -> &'static Manner {
        &MANNER
    }

    async fn dial(&self, server: usize, stage: &Stage) -> FaultResult<Arc<dyn Session>> {
        let connection = self.connect_to_writer(server, stage).await?;
        Ok(Arc::new(MysqlSession::over(connection, self, self.peer(server))))
    }

    async fn examine(&self, session: &Arc<dyn Session>) -> FaultResult<(Facts, Vec<Risk>)> {
        examine::examine(&self.config, session).await
    }

    /// Texts are bytes, so that collations and character sets have no effect.
    fn schema(&self) -> Vec<String> {
        let Tables { lock, claim, .. } = self.tables();
        let (name, id) = ("varbinary(700) NOT NULL", "varbinary(40) NOT NULL");
        vec![
            format!(
                "CREATE TABLE IF NOT EXISTS {lock} (name {name} PRIMARY KEY, fence bigint NOT NULL, success bigint) \
                 ENGINE=InnoDB;"
            ),
            format!(
                "CREATE TABLE IF NOT EXISTS {claim} (name {name}, seq bigint NOT NULL, claim {id}, mode {id}, \
                 since bigint NOT NULL, lease_until bigint NOT NULL, about mediumblob NOT NULL, label mediumblob, \
                 held bigint, slot bigint, asked mediumblob, \
                 PRIMARY KEY (name, seq), UNIQUE KEY claim_name (claim, name)) ENGINE=InnoDB;"
            ),
        ]
    }

    fn rights(&self) -> String {
        let grant = |table| format!("-- GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO 'USER'@'%';");
        let Tables { lock, claim, .. } = self.tables();
        format!("-- Users of locks need:\n{}\n{}", grant(lock), grant(claim))
    }

    fn text(&self, value: &str) -> String {
        text(value)
    }

    /// `UTC_TIMESTAMP` is the time at which its statement begins. In a batch that is after the previous statement has
    /// got its row lock. Unlike `SYSDATE`, no server option redefines it.
    fn now(&self) -> &'static str {
        NOW
    }

    /// The durability of commits is the server's setting alone.
    fn begin(&self) -> &'static str {
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;START TRANSACTION;"
    }

    fn still_takes_writes(&self) -> &'static str {
        TAKES_WRITES
    }

    fn make(&self, lock: &str) -> String {
        let locks = &self.config.tables.lock;
        format!(
            "INSERT INTO {locks} (name, fence) VALUES ({lock}, 1) ON DUPLICATE KEY UPDATE fence = fence + 1;"
        )
    }

    fn or_renew(&self) -> &'static str {
        "ON DUPLICATE KEY UPDATE lease_until = VALUES(lease_until);"
    }

    /// In the order of their index, to avoid deadlocks.
    fn forget(&self, most: u32) -> String {
        let claims = &self.config.tables.claim;
        format!(
            "DELETE FROM {claims} WHERE name > '{NOTE}' AND name < CONCAT('{NOTE}', {NOW}) ORDER BY name LIMIT {most};"
        )
    }

    /// A free presence lock means that a connection has ended. It is acquired only once, since the server counts
    /// acquisitions.
    fn arrive(&self, claim: ClaimId) -> String {
        let presence = self.presence(claim);
        format!("DO IF(IS_USED_LOCK('{presence}') <=> CONNECTION_ID(), 1, GET_LOCK('{presence}', 0));")
    }

    fn depart(&self, claim: ClaimId) -> String {
        format!("DO RELEASE_LOCK('{}');", self.presence(claim))
    }
}
