//! The interface between the code for all SQL databases and that for one kind.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use super::database::{Database, Server};
use crate::backend::facts::{Properties, Rule};
use crate::lock::{ClaimId, ErrorKind, LockName, Reason};
use crate::net::address::in_any_order;
use crate::net::cause::{self, Manner};
use crate::net::fault::{Fault, FaultResult, Retry};
use crate::net::link::Stage;

/// One row, as text; `None` for NULL.
pub(super) type Row = Vec<Option<String>>;

/// The results of the statements of one batch, in order; empty ones may be omitted.
pub(super) type Sets = Vec<Vec<Row>>;

/// The number of the session in the upper half of its counts of notifications.
static SESSIONS: AtomicU64 = AtomicU64::new(1);

/// Returns the first count of notifications of a new session. No two sessions have the same counts.
pub(super) fn first_count() -> u64 {
    SESSIONS.fetch_add(1, Ordering::Relaxed) << 32
}

/// An open connection.
#[async_trait]
pub(super) trait Session: fmt::Debug + Send + Sync {
    /// Executes the whole of `batch` in one exchange. After an error no transaction is left open. Dropping the future
    /// does not undo the batch; the session must then be given up.
    async fn run(&self, batch: &str) -> FaultResult<Sets>;

    /// Returns the server, without secrets.
    fn peer(&self) -> String;

    /// Returns whether the connection is open, as far as known.
    fn is_open(&self) -> bool;

    /// Completes when everything that was sent is answered, or the session has ended. Returns whether it can be used
    /// again.
    async fn settled(&self) -> bool;

    /// Ends a sleep of this session. Returns whether the session is then usable.
    async fn awake(&self) -> bool {
        true
    }

    /// Returns whether the server, once asked, reports everything that concerns the claims of this client.
    fn can_notify(&self) -> bool;

    /// Returns whether this client can sleep in [`Session::notified_after`] until the claim `ahead`, or another of the
    /// `crowd` ahead, is gone, for databases without other notifications. If neither is possible, claims poll every 500 ms.
    fn can_sleep(&self, _ahead: ClaimId, _crowd: u32) -> bool {
        false
    }

    /// Begins a sleep that is [possible](Session::can_sleep), unless one is in progress. Its end is a notification.
    fn fall_asleep(&self, _wait: &Wait) {}

    /// Returns the number of notifications from now on. It begins with that of [`first_count`], and the end of the
    /// session counts as one.
    fn news(&self) -> watch::Receiver<u64>;

    fn notified_count(&self) -> u64 {
        *self.news().borrow()
    }

    /// Completes when the number of notifications differs from `notified`. `wait` is the sleep until then, if there is
    /// one; it continues when this future is dropped. Cancel-safe.
    async fn notified_after(&self, notified: u64, wait: Option<&Wait>) {
        let mut news = self.news();
        if let (Some(wait), true) = (wait, *news.borrow() == notified) {
            self.fall_asleep(wait);
        }
        // The sender lives as long as the session.
        let _ = news.wait_for(|now| *now != notified).await;
    }
}

/// The sleep of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wait {
    /// The waiting claim.
    pub(super) own: ClaimId,
    /// The claim ahead. Its end, or its hold, may change the state of the waiting one.
    pub(super) ahead: ClaimId,
    /// The number of claims ahead.
    pub(super) crowd: u32,
    /// The longest duration.
    pub(super) length: Duration,
}

/// The known facts about a database.
#[derive(Default)]
pub(super) struct Facts {
    /// The prefix of the tables.
    pub(super) prefix: String,
    /// Properties that the server reports.
    pub(super) server: Properties,
    /// The oldest supported version, if this one is older.
    pub(super) too_old: Option<&'static str>,
    /// A server to which the password may be sent without encryption.
    pub(super) open_password: Option<String>,
    /// Whether one connection of the server executes all requests of a session.
    pub(super) is_direct: bool,
}

/// A product with its version, and the oldest supported version, if this one is older.
pub(super) type Product = (String, Option<&'static str>);

/// The properties that all databases of a kind share.
pub(super) struct Kind {
    /// The name, as given to `--backend`.
    pub(super) name: &'static str,
    /// How to recognise such a server.
    pub(super) manner: Manner,
    /// The expression for the present time: never that of the beginning of the transaction.
    pub(super) now: &'static str,
    /// The beginning of a READ COMMITTED transaction, the commit of which is answered when it is on disk.
    pub(super) begin: &'static str,
    /// A statement to run after a commit. It fails if the server may have stopped accepting writes before, so that its
    /// successor may lack the commit. Empty if the server itself refuses such commits.
    pub(super) still_takes_writes: &'static str,
    /// The end of a statement that inserts entries: an existing entry gets the new `lease_until` instead.
    pub(super) or_renew: &'static str,
    /// A query for a row of [`LEFT`] and the number of connections that the server has left, if they are few, else NULL.
    /// Empty for databases in which a waiter without a connection counts as gone.
    pub(super) few_left: &'static str,
    /// Queries for properties of the server.
    pub(super) question: &'static str,
    /// Returns the product of a server with these properties.
    pub(super) product: fn(&Properties) -> Option<Product>,
    /// The risks of this kind alone.
    pub(super) risks: &'static [Rule<Facts>],
}

/// A database: its language, and its connections.
///
/// Times are microseconds since 1970 by the database's clock, in columns of 64 bits; texts are ASCII. Statements end
/// with a semicolon.
#[async_trait]
pub(super) trait Dialect: fmt::Debug + Send + Sync {
    fn kind(&self) -> &'static Kind;

    fn database(&self) -> &Database;

    /// Returns the database as text without secrets, equal for equal databases.
    fn identity(&self) -> String {
        let Database { servers, name, .. } = self.database();
        let places = in_any_order(servers.iter().map(|server| &server.place));
        format!("{}://{places}/{name}", self.kind().name)
    }

    /// Returns another database of this kind.
    fn with(&self, database: Database) -> Arc<dyn Dialect>;

    /// Opens a session with the server, which must accept writes, in one attempt. `Fault::spent` means that another
    /// server may be tried.
    async fn dial(&self, server: &Server, stage: &Stage) -> FaultResult<Arc<dyn Session>>;

    /// Returns the statements that create missing tables.
    fn schema(&self) -> Vec<String>;

    /// Returns the batch that creates the tables on first use, safe against concurrent creation.
    fn create(&self) -> String {
        self.schema().concat()
    }

    /// Returns the statements that grant users of locks the rights they need if another user creates the tables.
    fn rights(&self) -> String;

    /// Returns `text`, which is ASCII, as a literal.
    fn text(&self, text: &str) -> String;

    /// Returns the statement that makes the commit of the transaction not wait for the disk if `condition` holds. Empty
    /// if the server alone decides that.
    fn lazily(&self, _condition: &str) -> String {
        String::new()
    }

    /// Returns the statement that creates the row of the lock or increments its counter, and so locks the row until the
    /// end of the transaction.
    fn make(&self, lock: &str) -> String;

    /// Returns the statement that removes `most` expired notes. It neither deadlocks with, nor fails because of,
    /// concurrent executions.
    fn forget(&self, most: u32) -> String;

    /// Returns the statement that wakes the client of the claim, which is a literal, and those that wait for it, if
    /// `condition` holds. A hint; empty, like the next ones, for databases without such notifications.
    fn wake(&self, _claim: &str, _condition: Option<&str>) -> String {
        String::new()
    }

    /// Returns the statements that wake the watchers of the queue. A hint.
    fn wake_watchers(&self, _lock: &str) -> String {
        String::new()
    }

    /// Returns the statements that mark the client of the claim as present. They run in a transaction before the claim
    /// becomes visible, and again with its renewals. Empty if none are needed.
    fn arrive(&self, _claim: ClaimId) -> String {
        String::new()
    }

    /// Returns the statements that end the presence, after the transaction is committed; with slots as soon as the
    /// claim holds.
    fn depart(&self, _claim: ClaimId) -> String {
        String::new()
    }

    /// Returns the transaction that requests notifications for these claims. Empty if that is impossible.
    fn listen(&self, _claims: &[&str]) -> String {
        String::new()
    }

    /// Returns the statements that request notifications of every change in the queue, and a row of "f" if there will be
    /// none. Empty if that is impossible. Observers without notifications poll every 500 ms.
    fn watch(&self, _name: &LockName) -> String {
        String::new()
    }
}

/// The first word of the row with the number of connections that the server has left.
pub(super) const LEFT: &str = "left";

/// The first character of the names of notes. Names of locks, which are percent-encoded in tables, sort before it.
pub(super) const NOTE: char = '~';

/// Returns JSON with ASCII characters only, so that the encoding of the database does not matter.
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

/// The transaction was undone, and may be retried at once.
pub(super) fn again(reason: impl Into<Reason>) -> Fault {
    Fault::unavailable(reason).helped_by(Retry::Again)
}

/// The tables are missing.
pub(super) fn no_tables(reason: impl Into<Reason>) -> Fault {
    Fault::new(ErrorKind::Denied, reason).helped_by(Retry::Making)
}

/// The tables differ from those that dlock creates.
pub(super) fn other_tables(said: &str) -> Fault {
    let what = format!("{said}; the tables are another program's, or another version's");
    Fault::new(ErrorKind::Corrupt, Reason::from(what).advising("use another --prefix"))
}

/// The user lacks the right to create or use the tables.
pub(super) fn no_right(said: &str) -> Fault {
    let remedy = "`dlock doctor --schema` prints the tables and the rights that are needed";
    Fault::new(ErrorKind::Denied, cause::no_right(said, remedy))
}

/// Returns a length in microseconds.
pub(super) fn micros(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_json_is_the_same_json() {
        let value = serde_json::json!({"a": "ü日😀\"\\'"});
        let text = ascii(&value.to_string());
        assert!(text.is_ascii());
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).expect("JSON"), value);
    }
}
