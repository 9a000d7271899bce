//! The life of a claim: its session, which is resumed over one connection after another until it ends.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{SetOnce, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use zookeeper_client::{Client, Error as ZkError, StateWatcher};

use super::ensemble::{Ensemble, Session, connect, servers};
use super::fault::{OVER, is_lost};
use super::proofs::Proofs;
use super::queue::Note as Record;
use crate::lock::{LossReason, Moment, Request};
use crate::net::fault::FaultResult;
use crate::queue::store::{Answer, Note, Own};
use crate::sync::locked;

/// The pause before a request is repeated after its connection broke.
pub(super) const RETRY: Duration = Duration::from_millis(20);

/// The time limit for the first attempt to resume a session. A server that is just starting may accept a connection and
/// then ignore it. Such a connection is one of its few, and waiters must not take the others meanwhile.
const RESUMING: Duration = Duration::from_millis(100);

/// The number of renewals in one ttl.
pub(super) const RENEWALS: u32 = 4;

/// The requested session length to learn the tick.
const SHORTEST: Duration = Duration::from_secs(1);

/// The state of the session.
#[derive(Debug)]
enum Line {
    Up(Session),
    /// The connection broke, and is being replaced.
    Down,
    /// It was closed, and ends as soon as the server knows.
    Closed(Option<StateWatcher>),
}

/// The parts of a life that others wait for.
#[derive(Debug)]
struct State {
    line: Line,
    /// The notice to the claim.
    note: Option<Note>,
    /// The number of possible changes of the own nodes and of the session.
    changes: u64,
}

/// The session of one claim of this client.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) ensemble: Arc<Ensemble>,
    pub(super) request: Request,
    /// Its entries, once they exist.
    pub(super) own: SetOnce<Own>,
    state: watch::Sender<State>,
    /// The tasks that use the connection.
    tasks: Mutex<JoinSet<()>>,
    proofs: Mutex<Proofs>,
    pub(super) begun: Moment,
}

impl Life {
    /// Starts a session for a claim, resumes it over one connection after another, and ends it if it is not renewed,
    /// until it is closed.
    pub(super) async fn begin(
        ensemble: &Arc<Ensemble>,
        request: &Request,
        deadline: Moment,
    ) -> FaultResult<Arc<Self>> {
        let begun = ensemble.clock.now();
        let session = ensemble.session(request.ttl, deadline).await?;
        let life = Arc::new(Self::new(ensemble, request, session, begun));
        let lasting = Arc::clone(&life);
        tokio::spawn(async move {
            tokio::select! {
                () = lasting.keep_connected() => {}
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
            state: watch::Sender::new(State { line: Line::Up(session), note: None, changes: 0 }),
            tasks: Mutex::default(),
            proofs: Mutex::new(proofs),
            begun,
        }
    }

    pub(super) fn proofs(&self) -> MutexGuard<'_, Proofs> {
        locked(&self.proofs)
    }

    /// Returns the number of possible changes so far.
    pub(super) fn seen(&self) -> u64 {
        self.state.borrow().changes
    }

    /// Completes when there were more than `seen` possible changes.
    pub(super) async fn changed(&self, seen: u64) {
        // The sender lives as long as `self`.
        let _ = self.state.subscribe().wait_for(|state| state.changes > seen).await;
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        self.state.send_modify(|state| {
            change(state);
            state.changes += 1;
        });
    }

    /// Returns the notice to the claim.
    pub(super) fn note(&self) -> Option<Note> {
        self.state.borrow().note.clone()
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
        matches!(self.state.borrow().line, Line::Closed(_))
    }

    /// Returns the session, while it has a connection and was not closed.
    pub(super) fn up(&self) -> Option<Session> {
        if let Line::Up(session) = &self.state.borrow().line { Some(session.clone()) } else { None }
    }

    /// Waits until the session has a connection; `None` when it is closed.
    pub(super) async fn client(&self) -> Option<Client> {
        let mut state = self.state.subscribe();
        // The sender lives as long as `self`.
        let state = state.wait_for(|state| !matches!(state.line, Line::Down)).await.ok()?;
        if let Line::Up(session) = &state.line { Some(session.client.clone()) } else { None }
    }

    /// Makes a request, again after its connection broke; `None` when the session is closed.
    pub(super) async fn ask<T, F>(&self, request: impl Fn(Client) -> F) -> FaultResult<Option<T>>
    where
        F: Future<Output = FaultResult<T>>,
    {
        while let Some(client) = self.client().await {
            match request(client).await {
                Err(fault) if is_lost(&fault) => tokio::time::sleep(RETRY).await,
                done => return done.map(Some),
            }
        }
        Ok(None)
    }

    /// Ends all tasks of a broken connection, and the client library's. Returns the session if another connection is
    /// wanted.
    async fn go_down(&self) -> Option<Session> {
        // The library may have resumed the session already, and would close it with the last handle.
        let session = self.up()?;
        self.turn(Line::Down);
        let mut tasks = std::mem::take(&mut *locked(&self.tasks));
        tasks.shutdown().await;
        if self.is_closed() {
            return None;
        }
        session.service.end().await;
        Some(session)
    }

    /// Changes the state of the session, unless it was closed.
    fn turn(&self, line: Line) {
        self.change(|state| {
            if !matches!(state.line, Line::Closed(_)) {
                state.line = line;
            }
        });
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
        self.turn(Line::Closed(watcher));
        locked(&self.tasks).abort_all();
    }

    /// Closes the session and waits for its end.
    pub(super) async fn end(&self) {
        self.close();
        let mut watcher = match &self.state.borrow().line {
            Line::Closed(Some(watcher)) => watcher.clone(),
            _ => return,
        };
        while !watcher.state().is_terminated() {
            watcher.changed().await;
        }
    }

    /// Closes a session that was lost.
    fn lose(&self, reason: LossReason) {
        self.change(|state| state.note = Some(Note::Forgotten(reason)));
        self.close();
    }

    /// The library would resume by itself, but at the same pace for all claims. If a server has few connections, those
    /// of holders must come first.
    async fn keep_connected(self: &Arc<Self>) {
        while let Some(Session { client, .. }) = self.up() {
            let mut watcher = client.state_watcher();
            self.attend(client);
            if watcher.changed().await.is_terminated() {
                return self.lose(LossReason::SessionEnded);
            }
            let Some(former) = self.go_down().await else { return };
            let Some((session, asked)) = self.resume(&former).await else {
                return self.lose(LossReason::SessionEnded);
            };
            self.proofs().regrant(session.client.session_timeout(), asked);
            self.turn(Line::Up(session));
        }
    }

    /// Resumes the session, and returns when that was requested; `None` if the session is over.
    async fn resume(&self, former: &Session) -> Option<(Session, Moment)> {
        let (ensemble, mut patience) = (&self.ensemble, RESUMING);
        loop {
            let rank = *locked(&ensemble.rank);
            tokio::time::sleep(rank.delay()).await;
            let asked = ensemble.clock.now();
            match timeout(patience, connect(&ensemble.config, self.request.ttl, Some(former))).await {
                Ok(Ok(session)) => {
                    // The server must catch up with the one that accepted the entry.
                    if session.client.sync("/").await.is_ok() {
                        return Some((session, asked));
                    }
                    session.service.end().await;
                }
                Ok(Err(fault)) if fault.code == OVER => return None,
                // The refusal may be temporary.
                Ok(Err(_)) => {}
                Err(_) => patience *= 2,
            }
            tokio::time::sleep(rank.longest_pause()).await;
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
    fn attend(self: &Arc<Self>, client: Client) {
        let life = Arc::clone(self);
        self.spawn(async move {
            life.own.wait().await;
            let nodes = life.nodes();
            let watches = join_all(nodes.iter().map(|path| life.watch_own(&client, path)));
            tokio::join!(watches, life.follow_grant(&client), life.learn_tick(&client));
        });
    }

    /// Ends a claim that was not renewed for a ttl: the client's pings alone would keep it forever.
    async fn expire(&self) {
        loop {
            let (seen, when) = (self.seen(), self.proofs().ends());
            if self.ensemble.clock.now() >= when {
                return self.lose(LossReason::Expired);
            }
            // A new connection may have a shorter ttl.
            self.ensemble.clock.by(when, self.changed(seen)).await;
        }
    }

    /// Renews after the server granted a shorter ttl to the resumed session, which counts from then on. By the former
    /// ttl the keeper would renew too late.
    async fn follow_grant(&self, client: &Client) {
        while self.proofs().regranted {
            let begun = self.ensemble.clock.now();
            // The end of the ttl shows a lasting failure.
            let _ = self.renew(client, begun).await;
            let next = begun + self.proofs().ttl / RENEWALS;
            self.ensemble.clock.sleep_until(next).await;
        }
    }

    /// Learns the servers' tick, before the first renewal: they grant at least two ticks, unless configured otherwise.
    async fn learn_tick(&self, client: &Client) {
        while self.proofs().tick.is_none() {
            // Most claims have ended by then.
            let next = self.ensemble.clock.now() + self.proofs().ttl / (2 * RENEWALS);
            self.ensemble.clock.sleep_until(next).await;
            if matches!(servers(client).await, Ok(..=1)) {
                self.proofs().tick = Some(Duration::ZERO);
            } else if let Ok(shortest) = self.ensemble.session(SHORTEST, Moment::NEVER).await {
                self.proofs().tick = Some(shortest.client.session_timeout() / 2);
            }
        }
    }

    /// Watches for requests to leave and for the end of an own node.
    async fn watch_own(&self, client: &Client, path: &str) {
        loop {
            match client.get_and_watch_data(path).await {
                Ok((data, _, watcher)) => {
                    if let Some(by) = Record::parse(&data).and_then(|note| note.asked_by) {
                        self.change(|state| {
                            if !matches!(state.note, Some(Note::Forgotten(_))) {
                                state.note = Some(Note::Asked(by));
                            }
                        });
                    }
                    watcher.changed().await;
                }
                Err(ZkError::NoNode) => return self.change(|_| {}),
                // The next connection watches again.
                Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
#[path = "life_tests.rs"]
mod tests;
