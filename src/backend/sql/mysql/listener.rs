//! The connection over which a claim is told of changes.
//!
//! MySQL has no messages between clients. What it has is a user-level lock, which ends with its session, and which
//! one can wait for. A claim's own session has one as long as the claim is in the queue: its *presence lock*. Who waits for a
//! claim waits, on a connection of its own, for that claim's presence lock. Where anybody's end may matter, or none in
//! particular, the connection waits for another lock of its own session, which is not given back, until somebody ends
//! the statement with `KILL QUERY`, which needs no right among connections of one user. Such a connection says by
//! another user-level lock which claim it listens for.
//!
//! A wake-up that comes before the wait begins would be lost. So the connection first says that it listens, then
//! compares what the claim has seen with what is so now, and waits only if that is the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::mysql::MySqlConnection;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::batch::{HABITS, ask, say_goodbye};
use super::dial::Dialer;
use super::language;
use crate::backend::claim_state::POLL;
use crate::backend::record::granted;
use crate::backend::sql::dialect::{NOTE, Notified, Row, Wait};
use crate::lock::{ClaimId, Granted};

/// How long one wait is. Nothing depends on it but how often a claim looks that nobody tells anything.
const LONGEST: Duration = Duration::from_secs(300);
/// How long a connection may take to open, and an answer longer than the wait.
const PATIENCE: Duration = Duration::from_secs(5);
/// Within this time the server notices that the connection which listened before is gone.
const GONE: Duration = Duration::from_secs(3);
/// A connection that nobody listens on is closed after this time.
const IDLE: Duration = Duration::from_secs(2);

/// What the connections that listen say.
#[derive(Debug)]
pub(super) struct ListenerState {
    /// How often the server has told of something.
    pub(super) notified: watch::Sender<Notified>,
    /// Whether somebody stands between who gives each statement to another connection.
    pub(super) pooled: AtomicBool,
}

impl ListenerState {
    pub(super) fn tell(&self, given: Option<(ClaimId, Granted)>) {
        self.notified.send_modify(|notified| notified.add(given));
    }
}

/// Listens for one claim. Its connection closes when it is dropped.
#[derive(Debug)]
pub(super) struct Listener {
    wish: watch::Sender<Option<Wait>>,
    needs_relisten: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Listener {
    pub(super) fn new(dialer: &Arc<Dialer>, server: usize, news: &Arc<ListenerState>) -> Self {
        let (wish, needs_relisten) = (watch::Sender::new(None), Arc::new(AtomicBool::new(false)));
        let listener = ListenerTask {
            dialer: Arc::clone(dialer),
            server,
            news: Arc::clone(news),
            wish: wish.clone(),
            needs_relisten: Arc::clone(&needs_relisten),
            connection: None,
            elsewhere: false,
            free: None,
            notified: None,
        };
        Self { wish, needs_relisten, task: tokio::spawn(listener.serve()) }
    }

    /// Whether the news will be told.
    pub(super) fn is_waiting(&self) -> bool {
        self.wish.borrow().is_some()
    }

    /// Whether the claim's own session was found without its locks, since the server still had one before it.
    pub(super) fn needs_relisten(&self) -> bool {
        self.needs_relisten.load(Ordering::Relaxed)
    }

    /// Has the news told once when `wait` may be over.
    pub(super) fn wait_for(&self, wait: &Wait) {
        self.wish.send_if_modified(|wish| {
            let other = wish.as_ref() != Some(wait);
            if other {
                *wish = Some(wait.clone());
            }
            other
        });
    }
}

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The presence lock that was waited for is free, and its owner has handed over.
    Given(Granted),
    /// The presence lock that was waited for is free.
    Free,
    /// Somebody has ended it, or it took too long.
    Woken,
    /// It did not begin, since something has changed already.
    Changed,
    /// The second statement went to another connection than the first.
    Pooled,
}

struct ListenerTask {
    dialer: Arc<Dialer>,
    server: usize,
    news: Arc<ListenerState>,
    wish: watch::Sender<Option<Wait>>,
    /// See [`Listener::needs_relisten`].
    needs_relisten: Arc<AtomicBool>,
    connection: Option<MySqlConnection>,
    /// Whether it waits for something that does not end with the own session.
    elsewhere: bool,
    /// Whose presence lock was found free. If that claim is still ahead, its client has lost its connection.
    free: Option<ClaimId>,
    /// Which wait did not begin, or ended for want of an own session, and when. If it is wished for again at once, that
    /// is so still.
    notified: Option<(Wait, Instant)>,
}

/// The next wait that is wished for.
async fn next(wishes: &mut watch::Receiver<Option<Wait>>) -> Option<Wait> {
    wishes.wait_for(Option::is_some).await.ok()?.clone()
}

/// Completes when another wait is wished for than `wait`.
async fn other(wishes: &mut watch::Receiver<Option<Wait>>, wait: &Wait) {
    if wishes.wait_for(|wish| wish.as_ref() != Some(wait)).await.is_err() {
        std::future::pending::<()>().await;
    }
}

impl Drop for ListenerTask {
    fn drop(&mut self) {
        // A farewell that is not read keeps the server from noticing that nobody is there.
        if let Some(connection) = self.connection.take().filter(|_| !self.elsewhere) {
            say_goodbye(connection);
        }
    }
}

impl ListenerTask {
    async fn serve(mut self) {
        let mut wishes = self.wish.subscribe();
        loop {
            let wait = tokio::time::timeout(IDLE, next(&mut wishes)).await;
            let wait = if let Ok(wait) = wait {
                wait
            } else {
                if let Some(connection) = self.connection.take() {
                    say_goodbye(connection);
                }
                next(&mut wishes).await
            };
            let Some(wait) = wait else { return };
            let heard = tokio::select! {
                heard = self.listen(&wait) => heard,
                // What is waited for now is something else; the statement cannot be called back.
                () = other(&mut wishes, &wait) => None,
            };
            if heard.is_none() {
                self.connection = None;
            }
            let given = match heard {
                Some(End::Given(granted)) => Some((wait.own, granted)),
                _ => None,
            };
            let done = self.wish.send_if_modified(|wish| {
                let same = wish.as_ref() == Some(&wait);
                if same {
                    *wish = None;
                }
                same
            });
            if done {
                self.news.tell(given);
            }
        }
    }

    /// Waits; `None` if the connection broke or is in the midst of something.
    async fn listen(&mut self, wait: &Wait) -> Option<End> {
        let end = self.hear(wait).await;
        let ahead = wait.ahead.filter(|ahead| self.free != Some(*ahead));
        self.needs_relisten.store(end == Some(End::Free) && ahead.is_none(), Ordering::Relaxed);
        match end {
            Some(End::Woken | End::Given(_)) => {}
            Some(End::Free) if ahead.is_some() => self.free = ahead,
            Some(End::Pooled) => self.news.pooled.store(true, Ordering::Relaxed),
            // The own session has lost its connection, or something has changed. Once that is news.
            Some(End::Free | End::Changed) if !self.is_told(wait) => {
                self.notified = Some((wait.clone(), Instant::now()));
            }
            Some(End::Free | End::Changed) | None => tokio::time::sleep(POLL).await,
        }
        end
    }

    fn is_told(&self, wait: &Wait) -> bool {
        self.notified.as_ref().is_some_and(|(notified, at)| notified == wait && at.elapsed() < 2 * POLL)
    }

    async fn hear(&mut self, wait: &Wait) -> Option<End> {
        if self.connection.is_none() {
            let open = async {
                let mut connection = self.dialer.connect(self.server).await.ok()?;
                ask(&mut connection, &format!("{HABITS}SET @dlock_session = CONNECTION_ID();")).await.ok()?;
                Some(connection)
            };
            self.connection = Some(tokio::time::timeout(PATIENCE, open).await.ok()??);
        }
        let batch = self.batch(wait);
        self.elsewhere = wait.ahead.is_some();
        let answer = ask(self.connection.as_mut()?, &batch);
        // A connection that was forgotten on the way says nothing at all.
        let answer = tokio::time::timeout(LONGEST + GONE + PATIENCE, answer).await;
        self.elsewhere = false;
        let (sets, _) = match answer {
            Ok(Ok(answer)) => answer,
            Err(_) => {
                self.connection = None;
                return None;
            }
            Ok(Err(error)) => {
                self.connection = None;
                // Where the end of a statement is an error.
                return super::fault::number(&error).map(|_| End::Woken);
            }
        };
        let first = |set: &Vec<Row>| set.first()?.first()?.clone();
        match sets.first().and_then(first)?.as_str() {
            "1" => Some(granted(sets.get(1).and_then(first).as_deref(), None).map_or(End::Free, End::Given)),
            "2" => Some(End::Changed),
            "3" => Some(End::Pooled),
            _ => Some(End::Woken),
        }
    }

    fn batch(&self, wait: &Wait) -> String {
        let own = language::text(&wait.own.to_string());
        let claims = &self.dialer.tables().claim;
        let ahead = wait.ahead.filter(|ahead| self.free != Some(*ahead));
        let session_locks = self.dialer.session_locks();
        let (says, target) = match ahead {
            Some(ahead) => (session_locks.listening(wait.own), session_locks.presence(ahead)),
            None => (session_locks.sleeping(wait.own), session_locks.own(wait.own)),
        };
        let from =
            |ahead: ClaimId| language::given(self.dialer.tables(), &own, &language::text(&ahead.to_string()));
        let given = ahead.map_or_else(|| "NULL".to_owned(), from);
        let asked = if wait.asked { "1" } else { "COUNT(c.asked) = 0" };
        let (entries, crowd, longest, gone) = (wait.entries, wait.crowd, LONGEST.as_secs(), GONE.as_secs());
        format!(
            "SET @dlock_says = GET_LOCK('{says}', {gone});\
             SET @dlock_same = @dlock_says = 1 AND (SELECT COUNT(*) = {entries} AND {asked} FROM {claims} c WHERE c.claim = {own} AND c.name < '{NOTE}') \
             AND (SELECT COUNT(*) = {crowd} FROM {claims} m JOIN {claims} p ON p.name = m.name AND p.seq < m.seq \
             WHERE m.claim = {own});\
             SELECT IF(@dlock_session <=> CONNECTION_ID(), IF(@dlock_same, \
             IF(GET_LOCK('{target}', {longest}), RELEASE_LOCK('{target}'), 0), 2), 3);{takes_writes}\
             SELECT {given}, RELEASE_LOCK('{says}');",
            // What was given on a server that has been replaced is found out from the new one.
            takes_writes = language::TAKES_WRITES,
        )
    }
}
