//! What the parts of a claim share.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use zookeeper_client::Client;

use super::dial::Session;
use super::ensemble::Ensemble;
use super::fault::LOST;
use super::proofs::Proofs;
use crate::backend::claim_state::Publisher;
use crate::lock::{ClaimState, FencingToken, Grant, Granted, LockName, LossReason, Request};
use crate::net::fault::Fault;

/// Between a request that a connection lost and its repetition.
pub(super) const RETRY: Duration = Duration::from_millis(20);

/// What a claim has in the queue of one of its names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Own {
    pub(super) name: LockName,
    /// The path of the queue.
    pub(super) queue: String,
    /// The paths of its nodes, the one with the record first.
    pub(super) nodes: Vec<String>,
    pub(super) token: FencingToken,
    pub(super) slot: Option<u32>,
}

impl Own {
    /// The name of the node with the record.
    pub(super) fn record(&self) -> &str {
        self.nodes[0].rsplit('/').next().unwrap_or_default()
    }
}

/// What a claim has of its session.
enum Line {
    Up(Session),
    /// The connection broke, and another one is on its way.
    Down,
    Closed,
}

pub(super) struct Shared {
    pub(super) ensemble: Arc<Ensemble>,
    pub(super) request: Request,
    pub(super) session: i64,
    own: Mutex<Vec<Own>>,
    pub(super) proofs: Mutex<Proofs>,
    /// When the session ends has changed.
    pub(super) regranted: Notify,
    pub(super) publisher: Publisher,
    pub(super) recorded: AtomicBool,
    line: watch::Sender<Line>,
    /// Everything under way over the connection.
    tasks: Mutex<JoinSet<()>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Claim({} in session {:#x})", self.request.id, self.session)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(
        ensemble: Arc<Ensemble>,
        request: Request,
        session: Session,
        own: Vec<Own>,
        proofs: Proofs,
    ) -> Arc<Self> {
        Arc::new(Self {
            publisher: Publisher::new(ensemble.clock, proofs.counts_from()),
            ensemble,
            request,
            session: session.client.session_id().0,
            own: Mutex::new(own),
            proofs: Mutex::new(proofs),
            regranted: Notify::new(),
            recorded: AtomicBool::new(false),
            line: watch::Sender::new(Line::Up(session)),
            tasks: Mutex::new(JoinSet::new()),
        })
    }

    pub(super) fn own(&self) -> Vec<Own> {
        locked(&self.own).clone()
    }

    /// Takes note of the slot that it has in the queue at `queue`.
    pub(super) fn set_slot(&self, queue: &str, number: u32) {
        for own in locked(&self.own).iter_mut().filter(|own| own.queue == queue) {
            own.slot = Some(number);
        }
    }

    pub(super) fn proofs(&self) -> MutexGuard<'_, Proofs> {
        locked(&self.proofs)
    }

    /// The session, while it has a connection and was not closed.
    pub(super) fn up(&self) -> Option<Session> {
        if let Line::Up(session) = &*self.line.borrow() { Some(session.clone()) } else { None }
    }

    /// The session when it has a connection; `None` when it is closed.
    pub(super) async fn client(&self) -> Option<Client> {
        let mut line = self.line.subscribe();
        // The sender is part of `self`.
        let line = line.wait_for(|line| !matches!(line, Line::Down)).await.ok()?;
        if let Line::Up(session) = &*line { Some(session.client.clone()) } else { None }
    }

    /// Has everything let go of a connection that broke. Whether another one is wanted.
    pub(super) async fn go_down(&self) -> bool {
        if !self.change(Line::Down) {
            return false;
        }
        let mut tasks = std::mem::take(&mut *locked(&self.tasks));
        tasks.shutdown().await;
        true
    }

    /// Goes on over another connection, if that is still wanted.
    pub(super) fn go_up(&self, session: Session) {
        self.change(Line::Up(session));
    }

    fn change(&self, new: Line) -> bool {
        self.line.send_if_modified(|line| {
            let is_open = !matches!(line, Line::Closed);
            if is_open {
                *line = new;
            }
            is_open
        })
    }

    /// Runs `work` until it is done, the connection breaks or the session is closed.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = locked(&self.tasks);
        while tasks.try_join_next().is_some() {}
        if self.up().is_some() {
            tasks.spawn(work);
        }
    }

    /// Closes the session, which removes all nodes of the claim. It ends once everything that uses it has let
    /// go; the watchers of its state tell when.
    pub(super) fn close(&self) {
        self.change(Line::Closed);
        locked(&self.tasks).abort_all();
    }

    pub(super) fn set_waiting(&self, ahead: u32, holder: Option<crate::lock::Entry>) {
        self.publisher.publish(ClaimState::Waiting { ahead: Some(ahead), holder: holder.map(Box::new) });
    }

    pub(super) fn set_held(&self) {
        let names =
            locked(&self.own).iter().map(|own| Granted { token: own.token, slot: own.slot }).collect();
        let counts_from = self.proofs().counts_from();
        self.publisher.publish(ClaimState::Held(Grant { names, counts_from }));
    }

    /// It cannot be followed at the moment, which is worth telling unless it was only a connection that broke.
    pub(super) fn cannot_follow(&self, why: Fault) {
        if why.code != LOST {
            self.publisher.cannot_follow(self.ensemble.explain(why));
        }
    }

    /// The claim is over, and not by its own doing. What is left of it goes too.
    pub(super) fn end(&self, state: ClaimState) {
        self.publisher.publish(state);
        self.close();
    }

    pub(super) fn lose(&self, reason: LossReason) {
        self.end(ClaimState::Lost(reason));
    }
}
