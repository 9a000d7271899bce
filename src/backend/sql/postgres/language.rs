//! How one says it in PostgreSQL.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::backend::sql::dialect::{LEFT, NOTE, stored};
use crate::backend::sql::tables::Tables;
use crate::backend::success;
use crate::lock::{ClaimId, LockName};

/// Microseconds since 1970, now and not at the beginning of the transaction. With a factor of the same type a new process of
/// the server need not search for the operator.
pub(super) const NOW: &str = "(extract(epoch from clock_timestamp()) * 1000000::numeric)::bigint";

/// A literal that means the same whatever `standard_conforming_strings` says.
pub(super) fn text(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// A commit that must survive a crash waits for the disk, whatever the server's own setting says.
pub(super) fn begin(durable: bool) -> &'static str {
    if durable {
        "BEGIN ISOLATION LEVEL READ COMMITTED;SET LOCAL synchronous_commit = on;"
    } else {
        "BEGIN ISOLATION LEVEL READ COMMITTED;SET LOCAL synchronous_commit = off;"
    }
}

/// The row of the lock, which is made if it is missing.
pub(super) fn make(tables: &Tables, lock: &str) -> String {
    let locks = &tables.lock;
    format!(
        "INSERT INTO {locks} AS l (name, fence) VALUES ({lock}, 1) ON CONFLICT (name) DO UPDATE SET fence = l.fence + 1;"
    )
}

pub(super) fn bump(tables: &Tables, lock: &str, succeeded: Option<&str>) -> String {
    let (claims, locks, ahead) = (&tables.claim, &tables.lock, success::AHEAD.as_micros());
    // What is dated in the future tells nothing.
    let held = |claim: &str| {
        format!(
            ", success = GREATEST(CASE WHEN l.success <= {NOW} + {ahead} THEN l.success END, \
             (SELECT c.held FROM {claims} c WHERE c.name = {lock} AND c.claim = {claim}))"
        )
    };
    let success = succeeded.map(held).unwrap_or_default();
    format!("UPDATE {locks} AS l SET fence = l.fence + 1{success} WHERE l.name = {lock};")
}

/// Two statements that delete the same rows in different orders would wait for each other in a circle.
pub(super) fn forget(tables: &Tables, most: u32) -> String {
    let claims = &tables.claim;
    format!(
        "DELETE FROM {claims} WHERE name IN (SELECT g.name FROM {claims} g WHERE g.name > '{NOTE}' AND g.name < '{NOTE}' || {NOW} \
         LIMIT {most} FOR UPDATE SKIP LOCKED);"
    )
}

pub(super) fn remove_superseded(tables: &Tables, condition: &str) -> String {
    let claims = &tables.claim;
    format!(
        "DELETE FROM {claims} e USING {claims} c WHERE e.claim = c.claim AND e.claim <> '' AND e.fence IS NULL \
         AND e.newest = 1 AND {condition};"
    )
}

pub(super) fn grant_first(tables: &Tables, claim: &str, locks: &[String]) -> String {
    let claims = &tables.claim;
    // Those behind it may have looked before it, and have slots already.
    let mut sql = give(tables, claim, locks, &lowest_slot(claims));
    for lock in locks {
        let _ = write!(
            sql,
            " AND NOT EXISTS (SELECT 1 FROM {claims} p WHERE p.name = {lock} AND p.seq < \
             (SELECT m.seq FROM {claims} m WHERE m.name = {lock} AND m.claim = {claim}))"
        );
    }
    sql.push(';');
    sql
}

/// The lowest slot that nobody in the queue has.
fn lowest_slot(claims: &str) -> String {
    let free = |slot: &str| {
        format!("NOT EXISTS (SELECT 1 FROM {claims} v WHERE v.name = c.name AND v.slot = {slot})")
    };
    format!(
        "CASE WHEN c.kind = '' THEN NULL WHEN {first} THEN 1 ELSE \
         (SELECT min(u.slot) + 1 FROM {claims} u WHERE u.name = c.name AND {next}) END",
        first = free("1"),
        next = free("u.slot + 1"),
    )
}

pub(super) fn grant(tables: &Tables, claim: &str, locks: &[String]) -> String {
    format!("{};", give(tables, claim, locks, &lowest_slot(&tables.claim)))
}

fn give(tables: &Tables, claim: &str, names: &[String], slot: &str) -> String {
    let (claims, locks, all) = (&tables.claim, &tables.lock, names.join(", "));
    format!(
        "UPDATE {claims} c SET fence = l.fence, held = {NOW}, slot = {slot} FROM {locks} l \
         WHERE l.name = c.name AND c.claim = {claim} AND c.name IN ({all}) AND c.fence IS NULL"
    )
}

/// What the client of a claim listens to: this and the claim's id, which is no other claim's in any table. Short, since
/// an identifier has at most 63 bytes.
const CHANNEL: &str = "dlock_c_";

pub(super) fn remove_if_alone(tables: &Tables, claim: &str, locks: &[String]) -> String {
    let (claims, all) = (&tables.claim, locks.join(", "));
    format!(
        "DELETE FROM {claims} WHERE claim = {claim} AND name IN ({all}) AND NOT EXISTS (\
         SELECT 1 FROM {claims} o WHERE o.name IN ({all}) AND o.claim <> {claim}) RETURNING '{LEFT}';"
    )
}

/// Gives the first one its fence, in the commit that lets it hold, which then has to reach the disk before the message
/// goes out. Who has a slot to find, or stands in other queues too, is woken and fetches it. The message says nothing:
/// whoever may connect can send any, so that whoever gets one reads its row.
pub(super) fn hand_over(tables: &Tables, lock: &str) -> String {
    let (claims, locks) = (&tables.claim, &tables.lock);
    format!(
        "WITH given AS (UPDATE {claims} c SET fence = (SELECT l.fence FROM {locks} l WHERE l.name = {lock}), held = {NOW} \
         WHERE c.name = {lock} AND c.seq = (SELECT f.seq FROM {claims} f WHERE f.name = {lock} ORDER BY f.seq LIMIT 1) \
         AND c.fence IS NULL AND c.kind = '' AND c.lease_until > {NOW} \
         AND (SELECT count(*) FROM {claims} o WHERE o.claim = c.claim AND o.claim <> '') = 1 \
         RETURNING c.claim) \
         SELECT set_config('synchronous_commit', 'on', true), pg_notify('{CHANNEL}' || given.claim, '') FROM given;"
    )
}

/// Wakes the next one, and those behind it who can hold with it: all before the first that is not shared, or with slots
/// before the first for whom none is left.
pub(super) fn wake_next(tables: &Tables, lock: &str, slots: u32) -> String {
    let claims = &tables.claim;
    format!(
        "SELECT pg_notify('{CHANNEL}' || c.claim, '') FROM {claims} c \
         WHERE c.name = {lock} AND c.fence IS NULL AND c.seq <= GREATEST(\
         (SELECT f.seq FROM {claims} f WHERE f.name = {lock} ORDER BY f.seq LIMIT 1), COALESCE(\
         (SELECT x.seq - 1 FROM {claims} x WHERE x.name = {lock} AND x.mode <> 'shared' ORDER BY x.seq \
         OFFSET {slots} LIMIT 1), 9223372036854775807));{}",
        wake_watchers(tables, lock)
    )
}

pub(super) fn wake(tables: &Tables, condition: &str) -> String {
    let claims = &tables.claim;
    format!("SELECT pg_notify('{CHANNEL}' || c.claim, '') FROM {claims} c WHERE {condition};")
}

pub(super) fn listen(claim: ClaimId) -> String {
    format!("LISTEN \"{CHANNEL}{claim}\";")
}

/// The channel of those who watch a queue, and the advisory lock by which they are known to be there.
fn watchers(tables: &Tables, lock: &str) -> (String, i64) {
    let mut hash = Sha256::new();
    hash.update(tables.claim.as_bytes());
    hash.update([0]);
    hash.update(lock.as_bytes());
    let digest = hash.finalize();
    let mut key = [0; 8];
    key.copy_from_slice(&digest[..8]);
    let key = i64::from_be_bytes(key);
    (format!("dlock_w_{key:016x}"), key)
}

/// Messages make commits wait for one another, so there are none where nobody listens.
pub(super) fn wake_watchers(tables: &Tables, lock: &str) -> String {
    let (channel, key) = watchers(tables, lock);
    format!("SELECT pg_notify('{channel}', '') WHERE NOT pg_try_advisory_xact_lock({key});")
}

/// Whoever may connect may have that lock, and for ever. A step has it until its commit, so it is waited for, and not for long.
pub(super) fn watch(tables: &Tables, name: &LockName) -> String {
    let (channel, key) = watchers(tables, &text(&stored(name)));
    format!(
        "BEGIN;SET LOCAL lock_timeout = '100ms';LISTEN \"{channel}\";SELECT pg_advisory_lock_shared({key}) WHERE NOT EXISTS (\
         SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid());COMMIT;"
    )
}

/// Entries by their claim. A statement about one lock must never use this index, which it could only read as a whole: to the
/// planner that is as good as the primary key where it takes the table for empty, as it does when the table was empty
/// while it was last cleaned. It cannot use this one, since its condition does not follow from that of the statement.
const BY_CLAIM: &str = "(claim, name) WHERE claim <> ''";

/// The end of an INSERT of an entry: one that is there already gets its `lease_until` instead; returns `columns`.
pub(super) fn or_renew(columns: &str) -> String {
    format!("ON CONFLICT {BY_CLAIM} DO UPDATE SET lease_until = EXCLUDED.lease_until RETURNING {columns};")
}

pub(super) fn schema(tables: &Tables) -> Vec<String> {
    let Tables { lock, claim, by_claim, .. } = tables;
    let name = "text COLLATE \"C\" NOT NULL";
    vec![
        format!(
            "CREATE TABLE IF NOT EXISTS {lock} (name {name} PRIMARY KEY, fence bigint NOT NULL, success bigint) \
             WITH (fillfactor = 50);"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {claim} (name {name}, seq bigint NOT NULL, claim {name}, mode {name}, \
             kind {name}, since bigint NOT NULL, lease_until bigint NOT NULL, about text NOT NULL, label text, \
             newest integer NOT NULL, nested integer NOT NULL, fence bigint, held bigint, slot bigint, asked text, \
             PRIMARY KEY (name, seq)) WITH (fillfactor = 70);"
        ),
        format!("CREATE UNIQUE INDEX IF NOT EXISTS {by_claim} ON {claim} {BY_CLAIM};"),
        format!(
            "-- Who uses locks needs: GRANT SELECT, INSERT, UPDATE, DELETE ON {lock}, {claim} TO somebody;"
        ),
    ]
}

/// Makes the tables; who comes at the same time waits for the first of them, and is told that it is there.
pub(super) fn create(tables: &Tables) -> String {
    let statements = schema(tables);
    let made: String = statements.iter().filter(|sql| !sql.starts_with("--")).map(String::as_str).collect();
    format!("BEGIN;{made}COMMIT;")
}
