//! The dialect of MySQL and MariaDB.
//!
//! Everything is plain SQL of MySQL 8.0 and MariaDB 10.5, without routines or events, which need additional rights.

use std::sync::Arc;

use async_trait::async_trait;
use sha2::{Digest as _, Sha256};

use super::config::Mysql;
use super::session::MysqlSession;
use super::{NAME, TAKES_WRITES, digits, examine, text};
use crate::backend::sql::database::{Database, Server};
use crate::backend::sql::dialect::{Dialect, Kind, NOTE, Session};
use crate::backend::sql::tables::Tables;
use crate::lock::ClaimId;
use crate::net::cause::Manner;
use crate::net::fault::FaultResult;
use crate::net::link::Stage;

static KIND: Kind = Kind {
    name: NAME,
    // It speaks first, with a greeting of version 10 or an error.
    manner: Manner {
        service: "MySQL",
        encryption: "is this the right port?",
        hello: b"",
        is_own: |answer| matches!(answer, [_, _, _, 0, 10 | 0xff, ..]),
    },
    // Microseconds since 1970. `UTC_TIMESTAMP` is the time at which its statement begins. In a batch that is after the
    // previous statement has got its row lock. Unlike `SYSDATE`, no server option redefines it.
    now: "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
    // The durability of commits is the server's setting alone.
    begin: "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;START TRANSACTION;",
    still_takes_writes: TAKES_WRITES,
    or_renew: "ON DUPLICATE KEY UPDATE lease_until = VALUES(lease_until);",
    few_left: "",
    question: examine::QUESTION,
    product: examine::product,
    risks: examine::RISKS,
};

impl Mysql {
    /// Returns the beginning of the names of its user-level locks. They are global to the server, so a part identifies
    /// these tables.
    pub(super) fn locks(&self) -> String {
        let Database { name, tables, .. } = &self.0;
        let (database, prefix) = tables.prefix.split_once('.').unwrap_or((name, &tables.prefix));
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
impl Dialect for Mysql {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn database(&self) -> &Database {
        &self.0
    }

    fn with(&self, database: Database) -> Arc<dyn Dialect> {
        Arc::new(Self(database))
    }

    async fn dial(&self, server: &Server, stage: &Stage) -> FaultResult<Arc<dyn Session>> {
        let connection = self.connect(server, stage).await?;
        Ok(Arc::new(MysqlSession::over(connection, self, server.place.to_string())))
    }

    /// Texts are bytes, so that collations and character sets have no effect.
    fn schema(&self) -> Vec<String> {
        let Tables { lock, claim, .. } = &self.0.tables;
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
        let Tables { lock, claim, .. } = &self.0.tables;
        format!("-- Users of locks need:\n{}\n{}", grant(lock), grant(claim))
    }

    fn text(&self, value: &str) -> String {
        text(value)
    }

    fn make(&self, lock: &str) -> String {
        let locks = &self.0.tables.lock;
        format!(
            "INSERT INTO {locks} (name, fence) VALUES ({lock}, 1) ON DUPLICATE KEY UPDATE fence = fence + 1;"
        )
    }

    /// In the order of their index, to avoid deadlocks.
    fn forget(&self, most: u32) -> String {
        let claims = &self.0.tables.claim;
        format!(
            "DELETE FROM {claims} WHERE name > '{NOTE}' AND name < CONCAT('{NOTE}', {now}) ORDER BY name LIMIT {most};",
            now = KIND.now
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
            Mysql::parse(&options).expect("valid").presence(id)
        };
        let here = presence("ops", "dlock_");
        assert!(here.len() <= 64, "{here}");
        assert_eq!(here, presence("other", "ops.dlock_"));
        assert_ne!(here, presence("other", "dlock_"));
        assert_ne!(here, presence("ops", "x_"));
    }
}
