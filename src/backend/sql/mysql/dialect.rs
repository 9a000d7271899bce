//! The dialect of MySQL and MariaDB.
//!
//! Everything is plain SQL of MySQL 8.0 and MariaDB 10.5, without routines or events, which need additional rights.

use std::sync::Arc;

use async_trait::async_trait;
use sha2::{Digest as _, Sha256};

use super::config::{MysqlConfig, MysqlPlace};
use super::session::MysqlSession;
use super::{MANNER, NAME, TAKES_WRITES, digits, examine, text};
use crate::backend::Risk;
use crate::backend::sql::dialect::{Dialect, NOTE, Session};
use crate::backend::sql::examine::Facts;
use crate::backend::sql::tables::Tables;
use crate::lock::ClaimId;
use crate::net::cause::Manner;
use crate::net::fault::FaultResult;
use crate::net::link::Stage;

/// Microseconds since 1970.
const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

impl MysqlConfig {
    /// Returns the beginning of the names of its user-level locks. They are global to the server, so a part identifies
    /// these tables.
    pub(super) fn locks(&self) -> String {
        let prefix = &self.tables.prefix;
        let database = self.database.as_deref().unwrap_or_default();
        let (database, prefix) = prefix.split_once('.').unwrap_or((database, prefix));
        let digest = Sha256::digest([database.as_bytes(), &[0], prefix.as_bytes()].concat());
        format!("dlock.{}.l.", digits(&digest[..6]))
    }

    /// Returns the name of the user-level lock that a claim's session holds while the claim is in the queue; with
    /// slots, while it waits. The end of this lock wakes claims that wait for this claim, even if the process dies.
    pub(super) fn presence(&self, claim: ClaimId) -> String {
        format!("{}{claim}", self.locks())
    }
}

#[async_trait]
impl Dialect for MysqlConfig {
    fn name(&self) -> &'static str {
        NAME
    }

    fn identity(&self) -> String {
        self.identity()
    }

    fn alone(&self) -> Vec<Arc<dyn Dialect>> {
        let alone = |place: &MysqlPlace| Self { places: vec![place.clone()], ..self.clone() };
        self.places.iter().map(|place| Arc::new(alone(place)) as Arc<dyn Dialect>).collect()
    }

    fn tables(&self) -> &Tables {
        &self.tables
    }

    fn servers(&self) -> usize {
        self.places.len()
    }

    fn address(&self, server: usize) -> Option<String> {
        match &self.places[server] {
            MysqlPlace::Tcp(place) => Some(place.to_string()),
            MysqlPlace::Socket(_) => None,
        }
    }

    fn manner(&self) -> &'static Manner {
        &MANNER
    }

    async fn dial(&self, server: usize, stage: &Stage) -> FaultResult<Arc<dyn Session>> {
        let connection = self.connect_to_writer(server, stage).await?;
        Ok(Arc::new(MysqlSession::over(connection, self, self.places[server].to_string())))
    }

    async fn examine(&self, session: &Arc<dyn Session>) -> FaultResult<(Facts, Vec<Risk>)> {
        examine::examine(self, session).await
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
        let locks = &self.tables.lock;
        format!(
            "INSERT INTO {locks} (name, fence) VALUES ({lock}, 1) ON DUPLICATE KEY UPDATE fence = fence + 1;"
        )
    }

    fn or_renew(&self) -> &'static str {
        "ON DUPLICATE KEY UPDATE lease_until = VALUES(lease_until);"
    }

    /// In the order of their index, to avoid deadlocks.
    fn forget(&self, most: u32) -> String {
        let claims = &self.tables.claim;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Options;

    #[test]
    fn literals_say_nothing_but_their_bytes() {
        assert_eq!(text("a'\\"), "x'61275c'");
        assert_eq!(text(""), "x''");
    }

    #[test]
    fn names_of_locks_are_short_enough_and_these_tables_own() {
        let id = ClaimId::from_bytes([0xab; 16]);
        let presence = |database: &str, prefix: &str| {
            let at = format!("mysql://u@127.0.0.1:1/{database}");
            let options = Options { prefix: Some(prefix.to_owned()), ..Options::at(&[&at]) };
            MysqlConfig::parse(&options).expect("valid").presence(id)
        };
        let here = presence("ops", "dlock_");
        assert!(here.len() <= 64, "{here}");
        assert_eq!(here, presence("other", "ops.dlock_"));
        assert_ne!(here, presence("other", "dlock_"));
        assert_ne!(here, presence("ops", "x_"));
    }
}
