//! The dialect of PostgreSQL.

use std::sync::Arc;

use async_trait::async_trait;
use sha2::{Digest as _, Sha256};

use super::{ENCRYPT, NAME, Postgres, examine};
use crate::backend::sql::database::{Database, Server};
use crate::backend::sql::dialect::{Dialect, Kind, NOTE, Session};
use crate::backend::sql::tables::Tables;
use crate::lock::LockName;
use crate::net::cause::Manner;
use crate::net::fault::FaultResult;
use crate::net::link::Stage;

static KIND: Kind = Kind {
    name: NAME,
    manner: Manner {
        service: "PostgreSQL",
        encryption: "is this the right port?",
        hello: &ENCRYPT,
        is_own: |answer| matches!(answer, [b'S' | b'N'] | [b'E', 0, ..]),
    },
    // Microseconds since 1970, at present and not at the beginning of the transaction. With a factor of the same type a
    // new server process does not need to search for the operator.
    now: "(extract(epoch from clock_timestamp()) * 1000000::numeric)::bigint",
    // Regardless of the server's setting.
    begin: "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE;SET LOCAL synchronous_commit = on;",
    still_takes_writes: "",
    or_renew: "ON CONFLICT (claim, name) WHERE claim <> '' DO UPDATE SET lease_until = EXCLUDED.lease_until;",
    // Not all users may see whether a process serves a client, but all may see whether it is in a database.
    few_left: "SELECT 'left', CASE WHEN n.spare < n.most / 4 THEN GREATEST(n.spare, 0) END FROM (SELECT s.most, s.most - s.reserved - \
     (SELECT count(*) FROM pg_stat_activity WHERE datid IS NOT NULL) AS spare FROM (SELECT current_setting('max_connections')::int AS most, \
     current_setting('superuser_reserved_connections')::int + COALESCE(current_setting('reserved_connections', true)::int, 0) AS reserved) s) n;",
    question: examine::QUESTION,
    product: examine::product,
    risks: examine::RISKS,
};

/// The prefix of the channel of a claim: for its client, and for those of claims that wait for it. The claim's id follows, which is unique across tables. Short, since
/// an identifier has at most 63 bytes.
const CHANNEL: &str = "dlock_c_";

/// The index of entries by their claim. A statement about one lock must never use it, because it could only scan it as
/// a whole. The planner considers that as good as the primary key if it takes the table for empty, which it does if the
/// table was empty at the last vacuum. It cannot use this index, since the index condition does not follow from that of
/// the statement.
const BY_CLAIM: &str = "(claim, name) WHERE claim <> ''";

/// Returns a literal that does not depend on `standard_conforming_strings`.
fn text(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// Returns the channel of a queue's watchers, and the advisory lock that shows their presence.
fn watchers(tables: &Tables, lock: &str) -> (String, i64) {
    let digest = Sha256::digest([tables.claim.as_bytes(), &[0], lock.as_bytes()].concat());
    let key = digest[..8].iter().fold(0_i64, |key, byte| key << 8 | i64::from(*byte));
    (format!("dlock_w_{key:016x}"), key)
}

#[async_trait]
impl Dialect for Postgres {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn database(&self) -> &Database {
        &self.database
    }

    fn with(&self, database: Database) -> Arc<dyn Dialect> {
        Arc::new(Self { database, options: self.options.clone() })
    }

    async fn dial(&self, server: &Server, stage: &Stage) -> FaultResult<Arc<dyn Session>> {
        Ok(Arc::new(self.connect(server, stage).await?))
    }

    fn schema(&self) -> Vec<String> {
        let Tables { lock, claim, by_claim, .. } = &self.database.tables;
        let name = "text COLLATE \"C\" NOT NULL";
        vec![
            format!(
                "CREATE TABLE IF NOT EXISTS {lock} (name {name} PRIMARY KEY, fence bigint NOT NULL, success bigint) \
                 USING heap WITH (fillfactor = 50);"
            ),
            format!(
                "CREATE TABLE IF NOT EXISTS {claim} (name {name}, seq bigint NOT NULL, claim {name}, mode {name}, \
                 since bigint NOT NULL, lease_until bigint NOT NULL, about text NOT NULL, label text, held bigint, \
                 slot bigint, asked text, \
                 PRIMARY KEY (name, seq)) USING heap WITH (fillfactor = 70);"
            ),
            format!("CREATE UNIQUE INDEX IF NOT EXISTS {by_claim} ON {claim} {BY_CLAIM};"),
        ]
    }

    /// Concurrent creators wait for the first of them, and find the tables.
    fn create(&self) -> String {
        format!("BEGIN READ WRITE;{}COMMIT;", self.schema().concat())
    }

    fn rights(&self) -> String {
        let Tables { lock, claim, .. } = &self.database.tables;
        format!("-- Users of locks need: GRANT SELECT, INSERT, UPDATE, DELETE ON {lock}, {claim} TO USER;")
    }

    fn text(&self, value: &str) -> String {
        text(value)
    }

    fn lazily(&self, condition: &str) -> String {
        format!("SELECT set_config('synchronous_commit', 'off', true) WHERE {condition};")
    }

    fn make(&self, lock: &str) -> String {
        let locks = &self.database.tables.lock;
        format!(
            "INSERT INTO {locks} AS l (name, fence) VALUES ({lock}, 1) ON CONFLICT (name) DO UPDATE SET fence = l.fence + 1;"
        )
    }

    /// Two statements that delete the same rows in different orders would deadlock.
    fn forget(&self, most: u32) -> String {
        let claims = &self.database.tables.claim;
        format!(
            "DELETE FROM {claims} WHERE name IN (SELECT g.name FROM {claims} g WHERE g.name > '{NOTE}' AND g.name < '{NOTE}' || {now} \
             LIMIT {most} FOR UPDATE SKIP LOCKED);",
            now = KIND.now
        )
    }

    /// The message is empty: any user that may connect can send any message, so its receiver reads its row.
    fn wake(&self, claim: &str, condition: Option<&str>) -> String {
        let condition = condition.map(|condition| format!(" WHERE {condition}")).unwrap_or_default();
        format!("SELECT pg_notify('{CHANNEL}' || {claim}, ''){condition};")
    }

    /// Messages make commits wait for one another, so they are sent only if there are watchers.
    fn wake_watchers(&self, lock: &str) -> String {
        let (channel, key) = watchers(&self.database.tables, lock);
        format!("SELECT pg_notify('{channel}', '') WHERE NOT pg_try_advisory_xact_lock({key});")
    }

    fn listen(&self, claims: &[&str]) -> String {
        let each = claims.iter().map(|claim| format!("LISTEN \"{CHANNEL}{claim}\";"));
        format!("BEGIN;{}COMMIT;", each.collect::<String>())
    }

    /// Any user that may connect may hold that lock, even forever, so this does not wait for it. A step holds it until
    /// its commit, and the observer asks again after that.
    fn watch(&self, name: &LockName) -> String {
        let (channel, key) = watchers(&self.database.tables, &text(&name.percent_encoded()));
        format!("BEGIN;LISTEN \"{channel}\";SELECT pg_try_advisory_lock_shared({key});COMMIT;")
    }
}
