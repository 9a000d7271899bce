//! The state that the tasks of a claim share.

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

/// The pause before a request is repeated after its connection broke.
pub(super) const RETRY: Duration = Duration::from_millis(20);

/// The nodes and the grant of a claim in the queue of one of its names.
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
    /// Returns the name of the node with the record.
    pub(super) fn record(&self) -> &str {
        self.nodes[0].rsplit('/').next().unwrap_or_default()
    }
}

/// The state of the claim's session.
enum Line {
    Up(Session),
    /// The connection broke, and is being replaced.
    Down,
    Closed,
}

pub(super) struct Shared {
    pub(super) ensemble: Arc<Ensemble>,
    pub(super) request: Request,
    pub(super) session: i64,
    own: Mutex<Vec<Own>>,
    pub(super) proofs: Mutex<Proofs>,
    /// Notified when the end of the session has changed.
    pub(super) regranted: Notify,
    pub(super) publisher: Publisher,
    pub(super) recorded: AtomicBool,
    line: watch::Sender<Line>,
    /// The tasks that use the connection.
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

    /// Records the claim's slot in the queue at `queue`.
    pub(super) fn set_slot(&self, queue: &str, number: u32) {
        for own in locked(&self.own).iter_mut().filter(|own| own.queue == queue) {
            own.slot = Some(number);
        }
    }

    pub(super) fn proofs(&self) -> MutexGuard<'_, Proofs> {
        locked(&self.proofs)
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

    /// Ends all tasks of a broken connection. Returns whether another connection is wanted.
    pub(super) async fn go_down(&self) -> bool {
        if !self.change(Line::Down) {
            return false;
        }
        let mut tasks = std::mem::take(&mut *locked(&self.tasks));
        tasks.shutdown().await;
        true
    }

    /// Continues over another connection, if that is still wanted.
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

    /// Runs `work` until it completes, the connection breaks or the session is closed.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = locked(&self.tasks);
        while tasks.try_join_next().is_some() {}
        if self.up().is_some() {
            tasks.spawn(work);
        }
    }

    /// Closes the session, which removes all nodes of the claim. The session ends once all handles are dropped; the
    /// watchers of its state report it.
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

    /// Reports that the claim cannot be followed at the moment, unless only a connection broke.
    pub(super) fn cannot_follow(&self, why: Fault) {
        if why.code != LOST {
            self.publisher.cannot_follow(self.ensemble.explain(why));
        }
    }

    /// Ends the claim without leaving, and closes its session.
    pub(super) fn end(&self, state: ClaimState) {
        self.publisher.publish(state);
        self.close();
    }

    pub(super) fn lose(&self, reason: LossReason) {
        self.end(ClaimState::Lost(reason));
    }
}
