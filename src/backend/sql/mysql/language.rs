//! How one says it in MySQL and MariaDB.
//!
//! Everything is plain SQL of MySQL 8.0 and MariaDB 10.5, without routines or events, which take rights of their own.
//! An UPDATE may not read the table that it changes, so what it depends on is first put into a variable.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::config::MysqlConfig;
use crate::backend::sql::dialect::{LEFT, NOTE};
use crate::backend::sql::tables::Tables;
use crate::backend::success;
use crate::lock::ClaimId;

/// Microseconds since 1970. `UTC_TIMESTAMP` is taken when its statement begins, which in a batch is after the
/// statement before it has got its row lock; unlike `SYSDATE` no option of the server redefines it.
pub(super) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// How the column is called that holds the name of a user-level lock whose connection is to be woken.
pub(super) const WAKE: &str = "dlock_wake";

/// A literal that means the same whatever `sql_mode` and the character sets say.
pub(super) fn text(text: &str) -> String {
    let mut literal = String::with_capacity(2 * text.len() + 3);
    literal.push_str("x'");
    literal.extend(digits(text.as_bytes()));
    literal.push('\'');
    literal
}

/// The hexadecimal digits of `bytes`.
fn digits(bytes: &[u8]) -> impl Iterator<Item = char> {
    let halves = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    halves.map(|half| char::from(b"0123456789abcdef"[usize::from(half)]))
}

/// Fails where no writes are taken, also for a user whom `read_only` does not bind.
pub(super) const TAKES_WRITES: &str =
    "SET @dlock_writes = (SELECT 1 UNION ALL SELECT 2 FROM DUAL WHERE @@global.read_only);";

/// How durable a commit is, is the server's setting alone.
pub(super) const BEGIN: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;START TRANSACTION;";

/// The row of the lock, which is made if it is missing.
pub(super) fn make(tables: &Tables, lock: &str) -> String {
    let locks = &tables.lock;
    format!("INSERT INTO {locks} (name, fence) VALUES ({lock}, 1) ON DUPLICATE KEY UPDATE fence = fence + 1;")
}

pub(super) fn bump(tables: &Tables, lock: &str, succeeded: Option<&str>) -> String {
    let (claims, locks, ahead) = (&tables.claim, &tables.lock, success::AHEAD.as_micros());
    // What is dated in the future tells nothing. GREATEST is NULL where one of its arguments is.
    let held = |claim: &str| {
        format!(
            ", success = NULLIF(GREATEST(IF(success <= {NOW} + {ahead}, success, 0), COALESCE(\
             (SELECT c.held FROM {claims} c WHERE c.name = {lock} AND c.claim = {claim}), 0)), 0)"
        )
    };
    let success = succeeded.map(held).unwrap_or_default();
    format!("UPDATE {locks} SET fence = fence + 1{success} WHERE name = {lock};")
}

/// In the order of their index, so that nobody waits in a circle.
pub(super) fn forget(tables: &Tables, most: u32) -> String {
    let claims = &tables.claim;
    format!(
        "DELETE FROM {claims} WHERE name > '{NOTE}' AND name < CONCAT('{NOTE}', {NOW}) ORDER BY name LIMIT {most};"
    )
}

pub(super) fn remove_superseded(tables: &Tables, condition: &str) -> String {
    let claims = &tables.claim;
    format!(
        "DELETE e FROM {claims} c JOIN {claims} e ON e.claim = c.claim \
         WHERE e.fence IS NULL AND e.newest = 1 AND {condition};"
    )
}

pub(super) fn grant_first(tables: &Tables, claim: &str, locks: &[String]) -> String {
    let (claims, fences, all) = (&tables.claim, &tables.lock, locks.join(", "));
    // Those behind it may have looked before it, and have slots already: then the lowest free one is looked for.
    format!(
        "SET @dlock_first = NOT EXISTS (SELECT 1 FROM {claims} m JOIN {claims} p ON p.name = m.name AND p.seq < m.seq \
         WHERE m.claim = {claim} AND m.name IN ({all})) \
         AND NOT EXISTS (SELECT 1 FROM {claims} v WHERE v.name IN ({all}) AND v.slot IS NOT NULL AND v.claim <> {claim});\
         UPDATE {claims} c SET c.held = {NOW}, c.slot = IF(c.kind <> '', 1, NULL), \
         c.fence = (SELECT l.fence FROM {fences} l WHERE l.name = c.name) \
         WHERE @dlock_first AND c.claim = {claim} AND c.name IN ({all}) AND c.fence IS NULL;"
    )
}

pub(super) fn grant(tables: &Tables, claim: &str, locks: &[String]) -> String {
    let (claims, fences) = (&tables.claim, &tables.lock);
    let mut sql = String::new();
    for lock in locks {
        let taken = format!("FROM {claims} u WHERE u.name = {lock} AND u.slot IS NOT NULL");
        let _ = write!(
            sql,
            "SET @dlock_slot = (SELECT MIN(free.slot) FROM (SELECT 1 AS slot UNION SELECT u.slot + 1 {taken}) free \
             WHERE free.slot NOT IN (SELECT u.slot {taken}));\
             UPDATE {claims} c SET c.held = {NOW}, c.slot = IF(c.kind <> '', @dlock_slot, NULL), \
             c.fence = (SELECT l.fence FROM {fences} l WHERE l.name = {lock}) \
             WHERE c.claim = {claim} AND c.name = {lock} AND c.fence IS NULL;"
        );
    }
    sql
}

/// The variable is what [`SessionLocks::depart_if_alone`] goes by.
pub(super) fn remove_if_alone(tables: &Tables, claim: &str, locks: &[String]) -> String {
    let (claims, all) = (&tables.claim, locks.join(", "));
    format!(
        "SET @dlock_alone = NOT EXISTS (SELECT 1 FROM {claims} o WHERE o.name IN ({all}) AND o.claim <> {claim});\
         DELETE FROM {claims} WHERE claim = {claim} AND name IN ({all}) AND @dlock_alone;\
         SELECT IF(ROW_COUNT() > 0, '{LEFT}', NULL);"
    )
}

/// Gives the first one its fence, and notes from whom: the presence lock of that claim is free when this is on disk, whereas a
/// row that can be read need not be. Who has a slot to find, or stands in other queues too, is woken and fetches it.
pub(super) fn hand_over(tables: &Tables, lock: &str, from: &str) -> String {
    let (claims, fences) = (&tables.claim, &tables.lock);
    format!(
        "SET @dlock_next = (SELECT IF(f.fence IS NULL AND f.kind = '' AND f.lease_until > {NOW} \
         AND NOT EXISTS (SELECT 1 FROM {claims} o WHERE o.claim = f.claim AND o.name <> f.name), f.claim, NULL) \
         FROM {claims} f WHERE f.name = {lock} ORDER BY f.seq LIMIT 1);\
         UPDATE {claims} c SET c.held = {NOW}, c.given_by = {from}, \
         c.fence = (SELECT l.fence FROM {fences} l WHERE l.name = {lock}) \
         WHERE c.claim = @dlock_next AND c.name = {lock};"
    )
}

/// The fence that the claim was given by `from`, if it was; an expression.
pub(super) fn given(tables: &Tables, claim: &str, from: &str) -> String {
    let claims = &tables.claim;
    format!("(SELECT c.fence FROM {claims} c WHERE c.claim = {claim} AND c.given_by = {from})")
}

/// The user-level locks of claims. They are the whole server's, so their names have a part that is these tables'.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SessionLocks {
    start: String,
}

impl SessionLocks {
    /// Those for the tables that `prefix` begins in `database`.
    pub(super) fn of(database: &str, prefix: &str) -> Self {
        let (database, prefix) = prefix.split_once('.').unwrap_or((database, prefix));
        let mut hash = Sha256::new();
        hash.update(database.as_bytes());
        hash.update([0]);
        hash.update(prefix.as_bytes());
        let digest = hash.finalize();
        let mut start = "dlock.".to_owned();
        start.extend(digits(&digest[..6]));
        Self { start }
    }

    /// That which a claim's own session has as long as the claim is in the queue. Its end wakes who waits for that claim,
    /// also if it is the end of a process.
    pub(super) fn presence(&self, claim: ClaimId) -> String {
        format!("{}.l.{claim}", self.start)
    }

    /// One that the session has beside it and nobody else asks for.
    pub(super) fn own(&self, claim: ClaimId) -> String {
        format!("{}.h.{claim}", self.start)
    }

    /// That of a connection which waits for the presence lock of another claim, and which is woken otherwise only if something
    /// is told to this claim itself.
    pub(super) fn listening(&self, claim: ClaimId) -> String {
        format!("{}.e.{claim}", self.start)
    }

    /// That of a connection which waits until it is woken.
    pub(super) fn sleeping(&self, claim: ClaimId) -> String {
        format!("{}.s.{claim}", self.start)
    }

    /// The name of the lock of that kind of the claim in `column`, if a connection has it.
    fn used(&self, kind: char, column: &str) -> String {
        let name = format!("CONCAT('{}.{kind}.', {column})", self.start);
        format!("IF(IS_USED_LOCK({name}) IS NULL, NULL, {name})")
    }

    /// Taken before the claim can be seen: a presence lock that is free means that a connection has ended. Each once, since the
    /// server counts, and the second only with the first: a connection that has ended gives them back one by one.
    pub(super) fn arrive(&self, claim: ClaimId) -> String {
        let take =
            |name: &str| format!("IF(IS_USED_LOCK('{name}') <=> CONNECTION_ID(), 1, GET_LOCK('{name}', 0))");
        format!("DO IF({}, {}, 0);", take(&self.presence(claim)), take(&self.own(claim)))
    }

    /// Given back after the commit, so that whoever waited for it finds on disk what it was given.
    pub(super) fn depart(&self, claim: ClaimId) -> String {
        let (presence, own) = (self.presence(claim), self.own(claim));
        format!("SET @dlock_presence = RELEASE_LOCK('{presence}'), @dlock_own = RELEASE_LOCK('{own}');")
    }

    /// The same if [`remove_if_alone`] has found nobody else.
    pub(super) fn depart_if_alone(&self, claim: ClaimId) -> String {
        let (presence, own) = (self.presence(claim), self.own(claim));
        format!(
            "SET @dlock_presence = IF(@dlock_alone, RELEASE_LOCK('{presence}'), NULL), \
             @dlock_own = IF(@dlock_alone, RELEASE_LOCK('{own}'), NULL);"
        )
    }
}

/// Of how many statements [`end_query`] is.
pub(super) const END_QUERY_STATEMENTS: usize = 3;

/// Ends the statement of the connection that has the user-level lock `lock`, if one has. The server itself puts in the
/// number that the connection has there: a proxy may number connections otherwise, and take a `KILL` that it reads for
/// one of its own.
pub(super) fn end_query(lock: &str) -> String {
    format!(
        "SET @dlock_end = COALESCE(CONCAT('KILL QUERY ', IS_USED_LOCK({lock})), 'DO 0');\
         PREPARE dlock_end FROM @dlock_end;EXECUTE dlock_end;",
        lock = text(lock)
    )
}

/// Wakes those who may hold now and wait to be woken, also whom [`hand_over`] gave something; who waits for a presence lock only
/// if it was not given back just now. Those are the first, and all before the first that is not shared, or with slots
/// before the first for whom none is left.
pub(super) fn wake_next(
    tables: &Tables,
    session_locks: &SessionLocks,
    lock: &str,
    from: &str,
    slots: u32,
) -> String {
    let claims = &tables.claim;
    let (sleeping, listening) = (session_locks.used('s', "w.claim"), session_locks.used('e', "w.claim"));
    let living = |c: &str| format!("FROM {claims} {c} WHERE {c}.name = {lock} AND {c}.lease_until > {NOW}");
    format!(
        "SET @dlock_last = GREATEST((SELECT f.seq {first} ORDER BY f.seq LIMIT 1), COALESCE(\
         (SELECT x.seq - 1 {beyond} AND x.mode <> 'shared' ORDER BY x.seq LIMIT 1 OFFSET {slots}), \
         9223372036854775807));\
         SELECT COALESCE({sleeping}, IF(@dlock_presence = 1, NULL, {listening})) AS {WAKE} FROM {claims} w \
         WHERE w.name = {lock} AND w.seq <= @dlock_last AND (w.fence IS NULL OR w.given_by = {from});",
        first = living("f"),
        beyond = living("x"),
    )
}

pub(super) fn wake(tables: &Tables, session_locks: &SessionLocks, condition: &str) -> String {
    let claims = &tables.claim;
    let (sleeping, listening) = (session_locks.used('s', "c.claim"), session_locks.used('e', "c.claim"));
    // What a departure has left there must not matter.
    format!(
        "SET @dlock_presence = NULL;SELECT COALESCE({listening}, {sleeping}) AS {WAKE} FROM {claims} c WHERE {condition};"
    )
}

/// Texts are bytes: no collation makes two names equal, and no character set is in the way.
pub(super) fn schema(tables: &Tables) -> Vec<String> {
    let Tables { lock, claim, .. } = tables;
    let (name, id) = ("varbinary(700) NOT NULL", "varbinary(40) NOT NULL");
    vec![
        format!(
            "CREATE TABLE IF NOT EXISTS {lock} (name {name} PRIMARY KEY, fence bigint NOT NULL, success bigint) \
             ENGINE=InnoDB;"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {claim} (name {name}, seq bigint NOT NULL, claim {id}, mode {id}, kind {id}, \
             since bigint NOT NULL, lease_until bigint NOT NULL, about mediumblob NOT NULL, label mediumblob, \
             newest int NOT NULL, nested int NOT NULL, fence bigint, held bigint, slot bigint, asked mediumblob, \
             given_by varbinary(40), \
             PRIMARY KEY (name, seq), UNIQUE KEY claim_name (claim, name)) ENGINE=InnoDB;"
        ),
    ]
}

/// The rights that users of locks need where somebody else makes the tables, as statements to take over.
pub(super) fn rights(config: &MysqlConfig) -> Vec<String> {
    let Tables { lock, claim, .. } = &config.tables;
    let grant =
        |table: &String| format!("-- GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO 'SOMEBODY'@'%';");
    let mut queues = vec!["-- Who uses locks needs:".to_owned()];
    queues.extend([lock, claim].map(grant));
    queues
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_locks_are_short_enough_and_these_tables_own() {
        let id = ClaimId::from_bytes([0xab; 16]);
        let here = SessionLocks::of("ops", "dlock_");
        assert!(here.presence(id).len() <= 64, "{}", here.presence(id));
        assert_eq!(here, SessionLocks::of("", "ops.dlock_"));
        assert_ne!(here.presence(id), SessionLocks::of("other", "dlock_").presence(id));
        assert_ne!(here.presence(id), SessionLocks::of("ops", "x_").presence(id));
    }

    #[test]
    fn literals_say_nothing_but_their_bytes() {
        assert_eq!(text("a'\\"), "x'61275c'");
        assert_eq!(text(""), "x''");
    }
}
