//! The life of a claim: its session, which is resumed over one connection after another until it ends.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{SetOnce, watch};
use tokio::task::JoinSet;
use zookeeper_client::{Client, Error as ZkError, StateWatcher};

use super::dial::{Dialer, Session, silence};
use super::ensemble::Ensemble;
use super::fault::{LOST, OVER};
use super::note::Note as Record;
use super::proofs::Proofs;
use crate::lock::{Holder, LossReason, Moment, Request};
use crate::net::fault::FaultResult;
use crate::net::link::Link;
use crate::queue::store::{Answer, Note, Own, Queue, Seen};
use crate::sync::locked;

/// The pause before a request is repeated after its connection broke.
pub(super) const RETRY: Duration = Duration::from_millis(20);

/// The number of attempts in one ttl to resume a session that a server refuses.
const ATTEMPTS: u32 = 30;

/// The number of renewals in one ttl.
pub(super) const RENEWALS: u32 = 4;

/// How long to wait for the end of a closed session. A service that was silent before may still be so. Entries left
/// behind are then found and removed.
const LEAVING: Duration = Duration::from_secs(1);

/// The state of the session.
#[derive(Debug)]
enum Line {
    Up(Session),
    /// The connection broke, and is being replaced.
    Down,
    /// It was closed, and ends as soon as the server knows.
    Closed(Option<StateWatcher>),
}

/// The queues of a claim, and its records.
#[derive(Clone, Default, Debug)]
pub(super) struct Shown {
    pub(super) queues: Vec<Queue>,
    pub(super) seen: Seen,
    /// With slots: the path, the content and the version of each own record.
    pub(super) records: Vec<(String, Record, i32)>,
}

/// The session of one claim of this client.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) ensemble: Arc<Ensemble>,
    pub(super) request: Request,
    /// Its entries, once they exist.
    pub(super) own: SetOnce<Own>,
    line: watch::Sender<Line>,
    /// The tasks that use the connection.
    tasks: Mutex<JoinSet<()>>,
    proofs: Mutex<Proofs>,
    /// The number of possible changes of the own nodes and of the session.
    news: watch::Sender<u64>,
    asked: Mutex<Option<Holder>>,
    lost: OnceLock<LossReason>,
    shown: Mutex<Shown>,
    pub(super) begun: Moment,
}

impl Life {
    /// Starts a session for a claim, resumes it over one connection after another, and ends it if it is not renewed,
    /// until it is closed.
    pub(super) async fn begin(ensemble: &Arc<Ensemble>, request: &Request) -> FaultResult<Arc<Self>> {
        let begun = ensemble.clock.now();
        let link = ensemble.link(request.ttl);
        let session = ensemble.session(&link).await?;
        let life = Arc::new(Self::new(ensemble, request, session, begun));
        let lasting = Arc::clone(&life);
        tokio::spawn(async move {
            tokio::select! {
                () = lasting.keep_connected(&link) => {}
                () = lasting.expire() => {}
            }
        });
        Ok(life)
    }

    fn new(ensemble: &Arc<Ensemble>, request: &Request, session: Session, begun: Moment) -> Self {
        let proofs = Proofs::new(begun, session.client.session_timeout());
        Self {
            ensemble: Arc::clone(ensemble),
            request: request.clone(),
            own: SetOnce::new(),
            line: watch::Sender::new(Line::Up(session)),
            tasks: Mutex::default(),
            proofs: Mutex::new(proofs),
            news: watch::Sender::new(0),
            asked: Mutex::default(),
            lost: OnceLock::new(),
            shown: Mutex::default(),
            begun,
        }
    }

    pub(super) fn proofs(&self) -> MutexGuard<'_, Proofs> {
        locked(&self.proofs)
    }

    /// Returns what the queues showed when they were read last.
    pub(super) fn shown(&self) -> MutexGuard<'_, Shown> {
        locked(&self.shown)
    }

    /// Returns the number of possible changes so far.
    pub(super) fn seen(&self) -> u64 {
        *self.news.borrow()
    }

    /// Completes when there were more than `seen` possible changes.
    pub(super) async fn changed(&self, seen: u64) {
        // The sender lives as long as `self`.
        let _ = self.news.subscribe().wait_for(|count| *count > seen).await;
    }

    fn tell(&self) {
        self.news.send_modify(|count| *count += 1);
    }

    /// Returns the notice to the claim.
    pub(super) fn note(&self) -> Option<Note> {
        let asked = || locked(&self.asked).clone().map(Note::Asked);
        self.lost.get().cloned().map(Note::Forgotten).or_else(asked)
    }

    /// Returns an answer that shows no queues.
    pub(super) fn bare_answer(&self, sent: Moment) -> Answer {
        Answer { queues: Vec::new(), note: self.note(), sent, seen: self.seen() }
    }

    /// Returns how many milliseconds it waited, if it has held for `held`.
    pub(super) fn waited_ms(&self, held: Duration) -> Option<u64> {
        let waited = self.ensemble.clock.now().since(self.begun).saturating_sub(held);
        u64::try_from(waited.as_millis()).ok()
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(&*self.line.borrow(), Line::Closed(_))
    }

    /// Returns the session, while it has a connection and was not closed.
    pub(super) fn up(&self) -> Option<Session> {
        if let Line::Up(session) = &*self.line.borrow() { Some(session.clone()) } else { None }
    }

    /// Waits until the session has a connection; `None` when it is closed.
    pub(super) async fn client(&self) -> Option<Client> {
        let mut line = self.line.subscribe();
        // The sender lives as long as `self`.
        let line = line.wait_for(|line| !matches!(line, Line::Down)).await.ok()?;
        if let Line::Up(session) = &*line { Some(session.client.clone()) } else { None }
    }

    /// Makes a request, again after its connection broke; `None` when the session is closed.
    pub(super) async fn ask<T, F>(&self, request: impl Fn(Client) -> F) -> FaultResult<Option<T>>
    where
        F: Future<Output = FaultResult<T>>,
    {
        while let Some(client) = self.client().await {
            match request(client).await {
                Err(fault) if matches!(fault.code, LOST | OVER) => tokio::time::sleep(RETRY).await,
                done => return done.map(Some),
            }
        }
        Ok(None)
    }

    /// Ends all tasks of a broken connection, and the client library's. Returns whether another connection is wanted.
    async fn go_down(&self) -> bool {
        // The library may have resumed the session already, and would close it with the last handle.
        let Some(session) = self.up() else { return false };
        if !self.change(Line::Down) {
            return false;
        }
        let mut tasks = std::mem::take(&mut *locked(&self.tasks));
        tasks.shutdown().await;
        session.service.end().await;
        true
    }

    fn change(&self, new: Line) -> bool {
        let changed = self.line.send_if_modified(|line| {
            let is_open = !matches!(line, Line::Closed(_));
            if is_open {
                *line = new;
            }
            is_open
        });
        self.tell();
        changed
    }

    /// Runs `work` until it completes, the connection breaks or the session is closed.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = locked(&self.tasks);
        while tasks.try_join_next().is_some() {}
        if self.up().is_some() {
            tasks.spawn(work);
        }
    }

    /// Closes the session, which removes all nodes of the claim. It ends once all handles are dropped.
    pub(super) fn close(&self) {
        let watcher = self.up().map(|session| session.client.state_watcher());
        self.change(Line::Closed(watcher));
        locked(&self.tasks).abort_all();
    }

    /// Completes when the closed session has ended.
    pub(super) async fn ended(&self) {
        let mut watcher = match &*self.line.borrow() {
            Line::Closed(Some(watcher)) => watcher.clone(),
            _ => return,
        };
        while !watcher.state().is_terminated() {
            watcher.changed().await;
        }
    }

    /// Closes the session of an attempt that failed.
    pub(super) async fn give_up(&self) {
        self.close();
        let _ = tokio::time::timeout(LEAVING, self.ended()).await;
    }

    /// Closes a session that was lost.
    pub(super) fn lose(&self, reason: LossReason) {
        // The first reason counts.
        let _ = self.lost.set(reason);
        self.close();
    }

    /// The library would resume by itself, but at the same pace for all claims. If a server has few connections, those
    /// of holders must come first.
    async fn keep_connected(self: &Arc<Self>, link: &Link<Dialer>) {
        let ttl = self.request.ttl;
        while let Some(session) = self.up() {
            let mut watcher = session.client.state_watcher();
            link.dial.go_on(session.client.session());
            self.attend(&session.client);
            drop(session);
            if watcher.changed().await.is_terminated() {
                return self.lose(LossReason::SessionEnded);
            }
            if !self.go_down().await {
                return;
            }
            let (session, asked) = loop {
                link.connects_as(*locked(&self.ensemble.rank));
                match self.ensemble.session(link).await {
                    Ok(session) => {
                        // The request was sent at most this long ago, because a silent server is not tolerated longer.
                        let asked = self.ensemble.clock.now() - silence(ttl, 1);
                        // The server must catch up with the one that accepted the entry.
                        if session.client.sync("/").await.is_ok() {
                            break (session, asked);
                        }
                        session.service.end().await;
                    }
                    Err(fault) if fault.code == OVER => return self.lose(LossReason::SessionEnded),
                    // The refusal may be temporary.
                    Err(_) => tokio::time::sleep(ttl / ATTEMPTS).await,
                }
            };
            self.proofs().regrant(session.client.session_timeout(), asked);
            self.change(Line::Up(session));
        }
    }

    /// Returns the paths of the queues.
    pub(super) fn queues(&self) -> Vec<String> {
        self.request.names.iter().filter_map(|name| self.ensemble.config.queue(name).ok()).collect()
    }

    /// Returns the paths of the own nodes.
    pub(super) fn nodes(&self) -> Vec<String> {
        let entries = self.own.get().into_iter().flat_map(Own::entries);
        entries.filter_map(|(name, key)| self.ensemble.config.nodes(&name, &key).ok()).flatten().collect()
    }

    /// Follows the claim over one connection.
    fn attend(self: &Arc<Self>, client: &Client) {
        let (life, watching) = (Arc::clone(self), client.clone());
        self.spawn(async move {
            life.own.wait().await;
            join_all(life.nodes().iter().map(|path| life.watch_own(&watching, path))).await;
        });
        let (life, client) = (Arc::clone(self), client.clone());
        self.spawn(async move { life.follow_grant(&client).await });
    }

    /// Ends a claim that was not renewed for a ttl: the client's pings alone would keep it forever.
    async fn expire(&self) {
        loop {
            let (seen, when) = (self.seen(), self.proofs().ends());
            if self.ensemble.clock.now() >= when {
                return self.lose(LossReason::Expired);
            }
            tokio::select! {
                () = self.ensemble.clock.sleep_until(when) => {}
                // A new connection may have a shorter ttl.
                () = self.changed(seen) => {}
            }
        }
    }

    /// Renews after the server granted a shorter ttl to the resumed session, which counts from then on. It continues
    /// until the keeper renews, which is still due by the former ttl.
    async fn follow_grant(&self, client: &Client) {
        while self.proofs().regranted {
            let begun = self.ensemble.clock.now();
            // The end of the ttl shows a lasting failure.
            let _ = self.renew(client, begun).await;
            let next = begun + self.proofs().ttl / RENEWALS;
            self.ensemble.clock.sleep_until(next.max(begun + RETRY)).await;
        }
    }

    /// Watches for requests to leave and for the end of an own node.
    async fn watch_own(&self, client: &Client, path: &str) {
        loop {
            match client.get_and_watch_data(path).await {
                Ok((data, _, watcher)) => {
                    if let Some(by) = Record::parse(&data).and_then(|note| note.asked_by) {
                        *locked(&self.asked) = Some(by);
                        self.tell();
                    }
                    watcher.changed().await;
                }
                Err(ZkError::NoNode) => return self.tell(),
                // The next connection watches again.
                Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
#[path = "life_tests.rs"]
mod tests;
