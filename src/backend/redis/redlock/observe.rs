//! Observing one queue: the nodes tell of changed keys, the queue itself says what changed.

use std::sync::Arc;
use std::time::Duration;

use super::inspect;
use super::nodes::Nodes;
use crate::backend::claim_state::POLL;
use crate::backend::observe::{LOOK, Watched, first_expiry};
use crate::backend::redis::connection::{Connection, any_notified};
use crate::backend::redis::keys::Naming;
use crate::backend::redis::observe::tracking;
use crate::lock::{LockName, LockStatus, Moment};
use crate::net::fault::FaultResult;

/// How long a look waits for nodes to say that they will tell of changes.
const LISTEN: Duration = Duration::from_millis(250);

/// One queue, on connections of its own.
#[derive(Debug)]
pub(super) struct WatchedQueue {
    nodes: Arc<Nodes>,
    naming: Naming,
    /// What each node that tells of changes had told before the last look.
    notified: Vec<(Arc<Connection>, u64)>,
}

impl WatchedQueue {
    pub(super) fn new(nodes: Arc<Nodes>, naming: Naming) -> Self {
        Self { nodes, naming, notified: Vec::new() }
    }

    /// Has each node tell of what is read from then on.
    async fn listen(&mut self, deadline: Moment) {
        let listening = self.nodes.all.iter().map(|node| {
            let node = Arc::clone(node);
            tokio::spawn(async move { tracking(&node.service, None, deadline).await })
        });
        self.notified.clear();
        for one in listening.collect::<Vec<_>>() {
            let asked = tokio::select! {
                asked = one => asked.ok().and_then(FaultResult::ok),
                () = self.nodes.clock.sleep_until(deadline) => None,
            };
            self.notified.extend(asked.filter(|(connection, _)| connection.can_notify.get() == Some(&true)));
        }
    }
}

impl Watched for WatchedQueue {
    async fn look(&mut self, name: &LockName) -> FaultResult<LockStatus> {
        let begin = self.nodes.clock.now();
        self.listen(begin + LISTEN).await;
        inspect::status(&self.nodes, &self.naming, name, begin + LOOK).await
    }

    async fn notified(&mut self) -> FaultResult<()> {
        any_notified(&self.notified).await;
        Ok(())
    }

    fn next_look(&mut self, status: &LockStatus, _: bool, now: Moment) -> Moment {
        let all_notify = self.notified.len() == self.nodes.all.len();
        first_expiry(status, now).min(if all_notify { Moment::NEVER } else { now + POLL })
    }
}
