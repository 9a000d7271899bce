//! The seam between what is common to SQL databases and what one kind of them is like.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::facts::Facts;
use super::tables::Tables;
use crate::backend::{Risk, success};
use crate::lock::{ClaimId, Granted, LockName};
use crate::net::cause::Manner;
use crate::net::fault::FaultResult;
use crate::net::link::Stage;

/// One row, as text; `None` for NULL.
pub(super) type Row = Vec<Option<String>>;

/// What the statements of one batch gave, in order; those that gave no row may be left out.
pub(super) type Sets = Vec<Vec<Row>>;

/// An open connection.
#[async_trait]
pub(super) trait Session: fmt::Debug + Send + Sync {
    /// Has the whole of `batch` done in one exchange. After an error no transaction is left open. Dropping the
    /// future does not undo what was sent; the session must then be given up.
    async fn run(&self, batch: &str) -> FaultResult<Sets>;

    /// Where it leads, without secrets.
    fn peer(&self) -> &str;

    /// Whether the server still has the other end, as far as known.
    fn is_open(&self) -> bool;

    /// Completes when everything that was sent is answered, or the session has ended. Returns whether it can be used again.
    async fn settled(&self) -> bool;

    /// Ends a sleep of this session, and says whether the session can be used then.
    async fn awake(&self) -> bool {
        true
    }

    /// Whether the server tells of whatever concerns the claims of this client, as soon as it is asked to.
    fn can_notify(&self) -> bool;

    /// Whether this client can sleep in [`Session::notified_after`] until the claim `ahead` has gone; for databases that tell of
    /// nothing else. Where neither can be, one looks every 500 ms.
    fn can_sleep(&self, ahead: ClaimId) -> bool {
        let _ = ahead;
        false
    }

    /// How often the server has told of something.
    fn notified_count(&self) -> u64;

    /// What the row of the claim `own` was read to have been given, if that is all that was told since `notified`, and
    /// survives a crash of the server; for databases that read the row while they wake somebody.
    fn given(&self, own: ClaimId, notified: u64) -> Option<Granted> {
        let _ = (own, notified);
        None
    }

    /// Completes when the server has told more often than `notified`, or the session has ended. `wait` is what to sleep for where
    /// that [can be](Session::can_sleep); a sleep goes on when this is dropped. Cancel-safe.
    async fn notified_after(&self, notified: u64, wait: Option<&Wait>);
}

/// What a claim sleeps for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wait {
    /// The claim that waits.
    pub(super) own: ClaimId,
    /// The claim ahead whose end may let it hold, or whose hold may let it be the next.
    pub(super) ahead: ClaimId,
    /// How many are ahead of it.
    pub(super) crowd: u32,
    /// For how long at most.
    pub(super) length: Duration,
}

/// A kind of database: its language, and how one gets in.
///
/// Times are microseconds since 1970 by the database's clock, in columns of 64 bits; texts are ASCII. Statements end
/// with a semicolon.
#[async_trait]
pub(super) trait Dialect: fmt::Debug + Send + Sync {
    /// As `--backend` calls it.
    fn name(&self) -> &'static str;

    /// Which database, the same for all who mean it; without secrets.
    fn identity(&self) -> String;

    /// The tables.
    fn tables(&self) -> &Tables;

    /// How many servers there are to try.
    fn servers(&self) -> usize;

    /// `HOST:PORT` of the server of that number; `None` if it is reached by a socket of this host.
    fn address(&self, server: usize) -> Option<String>;

    /// How such a server tells that it is one.
    fn manner(&self) -> &'static Manner;

    /// Says in one value how many connections the server has left, if those are few, else NULL; empty where a waiter that has no
    /// connection would be taken for gone.
    fn few_left(&self) -> &'static str {
        ""
    }

    /// Opens a session with the server of that number, which must take writes; one attempt. `Fault::spent` says
    /// that another may be tried.
    async fn dial(&self, server: usize, stage: &Stage) -> FaultResult<Arc<dyn Session>>;

    /// A batch that says in one value why statements of dlock's sessions are held up, as a fragment of a sentence; nothing if none is.
    fn held_up(&self) -> String;

    /// What is known of the server that `session` leads to, and what is said of this kind of database alone.
    async fn examine(&self, session: &Arc<dyn Session>) -> FaultResult<(Facts, Vec<Risk>)>;

    /// The statements that make the tables where they are missing.
    fn schema(&self) -> Vec<String>;

    /// The batch that makes the tables on first use, safe against others who do the same.
    fn create(&self) -> String {
        self.schema().concat()
    }

    /// The rights that users of locks need where somebody else makes the tables, as statements to take over.
    fn rights(&self) -> String;

    /// `text`, which is ASCII, as a literal.
    fn text(&self, text: &str) -> String;

    /// The clock now, as an expression: never that of the beginning of the transaction.
    fn now(&self) -> &'static str;

    /// Whether what can be read is on disk. Then whoever is woken need only read its row; else it takes a step of its
    /// own, whose commit is waited for.
    fn reads_are_durable(&self) -> bool;

    /// Begins a transaction, READ COMMITTED, whose commit is on disk when it is answered if it is to be `durable`.
    fn begin(&self, durable: bool) -> &'static str;

    /// After a commit: fails if the server may have stopped taking writes before it, so that the one that takes over
    /// may lack it; empty if the server itself commits nothing then.
    fn still_takes_writes(&self) -> &'static str {
        ""
    }

    /// Makes or counts up the row of the lock, and so locks it until the end of the transaction.
    fn make(&self, lock: &str) -> String;

    /// Counts up the row of the lock, and so locks it until the end of the transaction; nothing if there is none. When the
    /// claim `succeeded` was given the lock, if it was, is the last success, unless a later one is.
    fn bump(&self, lock: &str, succeeded: Option<&str>) -> String {
        let (Tables { lock: locks, claim: claims, .. }, now) = (self.tables(), self.now());
        // What is dated in the future tells nothing.
        let held = |claim: &str| {
            format!(
                ", success = NULLIF(GREATEST(CASE WHEN success <= {now} + {ahead} THEN success ELSE 0 END, COALESCE(\
                 (SELECT c.held FROM {claims} c WHERE c.name = {lock} AND c.claim = {claim}), 0)), 0)",
                ahead = success::AHEAD.as_micros(),
            )
        };
        let success = succeeded.map(held).unwrap_or_default();
        format!("UPDATE {locks} SET fence = fence + 1{success} WHERE name = {lock};")
    }

    /// The end of a statement that inserts an entry, and what has to follow it: one that is there already gets its
    /// `lease_until` instead, and the `columns` of the claim's entries are told that there are then. `locks` are those
    /// of the statement, with commas between.
    fn or_renew(&self, locks: &str, claim: &str, columns: &str) -> String;

    /// `parts`, which are expressions, as one text.
    fn concat(&self, parts: &[&str]) -> String;

    /// Removes notes that have served their time, `most` of them. Whoever does the same at the same time is neither waited
    /// for in a circle nor undone.
    fn forget(&self, most: u32) -> String;

    /// Removes, from all queues, the claims that were given no fence and said that only the newest should stay, if they
    /// have an entry `c` for which `condition` holds.
    fn remove_superseded(&self, condition: &str) -> String;

    /// Gives the claim, which is known to hold in all queues, the fence of each of its locks, and a slot.
    fn grant(&self, claim: &str, locks: &[String]) -> String;

    /// Within the transaction in which the claim `from` leaves the queue of `lock`: gives the first one its fence, and
    /// wakes its client when that is on disk. Who has a slot to find, stands in other queues too, or has expired, is left out.
    fn hand_over(&self, lock: &str, from: ClaimId) -> String;

    /// After a claim has left the queue of `lock`, which is of `slots`, or zero: wakes those who may hold now and
    /// were told nothing, and who watches. A hint; empty, as those below, where nobody can be woken so.
    fn wake_next(&self, _lock: &str, _slots: u32) -> String {
        String::new()
    }

    /// Wakes the clients of the claims `c` for which `condition` holds. A hint.
    fn wake(&self, _condition: &str) -> String {
        String::new()
    }

    /// Wakes who watches the queue. A hint.
    fn wake_watchers(&self, _lock: &str) -> String {
        String::new()
    }

    /// Within a transaction, before the claim can be seen, and again with its renewals: that its client is there; empty if that needs
    /// no statement.
    fn arrive(&self, _claim: ClaimId) -> String {
        String::new()
    }

    /// The reverse, after the transaction is committed; with slots as soon as it holds.
    fn depart(&self, _claim: ClaimId) -> String {
        String::new()
    }

    /// Within a transaction: this session is to be told what concerns the claim.
    fn listen(&self, _claim: ClaimId) -> String {
        String::new()
    }

    /// The session is to be told of every change in the queue; empty, or undone for another's sake, if that cannot be,
    /// and then one looks every 500 ms.
    fn watch(&self, _name: &LockName) -> String {
        String::new()
    }
}

/// What the names of notes begin with. Those of locks, as [`stored`] makes them, come before it.
pub(super) const NOTE: char = '~';

/// A name as it is kept: ASCII, compared as bytes.
pub(super) fn stored(name: &LockName) -> String {
    name.percent_encoded()
}

/// What [`stored`] made.
pub(super) fn unstored(text: &str) -> Option<LockName> {
    LockName::from_percent_encoded(text)
}

/// JSON without a character beyond ASCII, so that no encoding of a database can matter.
pub(super) fn ascii(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                write!(out, "\\u{unit:04x}").expect("writing to a String cannot fail");
            }
        }
    }
    out
}

/// A length in microseconds.
pub(super) fn micros(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for name in ["deploy", ".a b%/ü", "日本", "'; DROP TABLE x --", "~"] {
            let name = LockName::new(name).expect("valid");
            assert!(stored(&name).is_ascii() && !stored(&name).contains('\'') && *stored(&name) < *"~");
            assert_eq!(unstored(&stored(&name)), Some(name));
        }
        assert_eq!(unstored("%4"), None);
    }

    #[test]
    fn ascii_json_is_the_same_json() {
        let value = serde_json::json!({"a": "ü日😀\"\\'"});
        let text = ascii(&value.to_string());
        assert!(text.is_ascii());
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).expect("JSON"), value);
    }
}
