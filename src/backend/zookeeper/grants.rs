//! For how long servers grant sessions, also when one comes back to a server.
//!
//! A server may grant less than the one before, or than it did before it was set up anew, and counts by that from then
//! on. The client library follows with its signs of life and tells nobody. But it traces what it asks for and what it is
//! granted, without passwords, and that is read here; a test restarts a server to see that it still is.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::{LazyLock, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tracing_core::dispatcher::{self, Dispatch};
use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::{Interest, Subscriber};
use tracing_core::{Event, Level, LevelFilter, Metadata};

use crate::clock;
use crate::lock::Moment;

/// Where the library traces from, and how the two traces begin.
const TARGET: &str = "zookeeper_client::session";
const ASKED: &str = "sending connect request: ";
const GRANTED: &str = "received connect response: ";

/// What a server granted to a session that came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Granted {
    pub(super) ttl: Duration,
    /// When it was asked for, on the clock that counts through suspend.
    pub(super) asked: Moment,
}

struct Session {
    asked: Moment,
    granted: watch::Sender<Option<Granted>>,
}

static SESSIONS: LazyLock<Mutex<HashMap<i64, Session>>> = LazyLock::new(Mutex::default);

fn sessions() -> MutexGuard<'static, HashMap<i64, Session>> {
    SESSIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is granted to one session from now on.
#[derive(Debug)]
pub(super) struct Grants {
    session: i64,
    granted: watch::Receiver<Option<Granted>>,
}

impl Grants {
    /// Those of the session of this number.
    pub(super) fn of(session: i64) -> Self {
        let (sender, granted) = watch::channel(None);
        sessions().insert(session, Session { asked: clock::now(), granted: sender });
        Self { session, granted }
    }

    /// The next one. Cancel-safe; of several that came meanwhile it is the last.
    pub(super) async fn next(&mut self) -> Granted {
        loop {
            // The sender stays until this is dropped.
            if self.granted.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            if let Some(granted) = *self.granted.borrow_and_update() {
                return granted;
            }
        }
    }
}

impl Drop for Grants {
    fn drop(&mut self) {
        sessions().remove(&self.session);
    }
}

/// Begins to read what the library traces; once for the whole process.
pub(super) fn listen() {
    static ONCE: Once = Once::new();
    // Somebody else's subscriber would have come first; dlock has none.
    ONCE.call_once(|| drop(dispatcher::set_global_default(Dispatch::new(Listener))));
}

/// Takes note of a trace.
fn note(line: &str) {
    let Some(session) = number(line, "session_id: ") else { return };
    if line.starts_with(ASKED) {
        if let Some(session) = sessions().get_mut(&session) {
            session.asked = clock::now();
        }
    } else if let Some(millis) = number(line, "session_timeout: ").and_then(|n| u64::try_from(n).ok())
        && let Some(session) = sessions().get(&session)
    {
        let granted = Granted { ttl: Duration::from_millis(millis), asked: session.asked };
        session.granted.send_replace(Some(granted));
    }
}

/// The number that follows `key`.
fn number(line: &str, key: &str) -> Option<i64> {
    let rest = line.split_once(key)?.1;
    let end = rest.find(|c: char| c != '-' && !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

struct Listener;

fn is_wanted(metadata: &Metadata<'_>) -> bool {
    metadata.is_event() && *metadata.level() == Level::DEBUG && metadata.target() == TARGET
}

impl Subscriber for Listener {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if is_wanted(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_wanted(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::DEBUG)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        // Nobody asks for spans.
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Reader);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Reader;

impl Visit for Reader {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut line = Line(String::new());
        if field.name() == "message" && write!(line, "{value:?}").is_ok() {
            note(&line.0);
        }
    }
}

/// The text of a trace, which is given up as soon as it is seen to be another one.
struct Line(String);

impl fmt::Write for Line {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        self.0.push_str(part);
        let may_be = |start: &str| self.0.starts_with(start) || start.starts_with(&self.0);
        if may_be(ASKED) || may_be(GRANTED) { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_library_traces_is_read() {
        let mut grants = Grants::of(-72);
        note("sending connect request: ConnectRequest { timeout: 9, session_id: -72, readonly: false, .. }");
        let asked = sessions().get(&-72).expect("followed").asked;
        for other in
            ["received connect response: ConnectResponse { session_timeout: 1, session_id: 7 }", "x", ""]
        {
            note(other);
            assert_eq!(*grants.granted.borrow_and_update(), None, "{other}");
        }
        note(
            "received connect response: ConnectResponse { session_timeout: 4000, session_id: -72, readonly: false }",
        );
        let granted = Granted { ttl: Duration::from_secs(4), asked };
        assert_eq!(*grants.granted.borrow_and_update(), Some(granted));
        drop(grants);
        assert!(!sessions().contains_key(&-72));
    }

    #[test]
    fn other_traces_are_not_written_out() {
        let mut line = Line(String::new());
        assert!(line.write_str("received con").is_ok() && line.write_str("nection").is_err());
        assert!(Line(String::new()).write_str("got ping response").is_err());
    }
}
