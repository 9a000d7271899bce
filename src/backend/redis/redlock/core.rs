//! The state that the tasks of one claim share.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::keys::{Attempt, Hold};
use super::nodes::{Answers, Nodes, Question, answered};
use crate::backend::claim_state::Publisher;
use crate::backend::record::Record;
use crate::backend::redis::keys::LockKeys;
use crate::lock::{ClaimId, Mode, Moment, Request};
use crate::net::fault::FaultResult;

/// The state that the tasks of one claim share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) nodes: Arc<Nodes>,
    pub(super) keys: LockKeys,
    pub(super) id: ClaimId,
    pub(super) mode: Mode,
    pub(super) ttl: Duration,
    record: Record,
    pub(super) publisher: Publisher,
    pub(super) hold: OnceLock<Hold>,
}

impl Core {
    pub(super) fn of(nodes: &Arc<Nodes>, keys: LockKeys, request: &Request) -> Self {
        let ttl = request.ttl.min(nodes.max_ttl);
        Self {
            nodes: Arc::clone(nodes),
            keys,
            id: request.id,
            mode: request.mode,
            ttl,
            record: Record::of(request, ttl),
            publisher: Publisher::new(nodes.clock, nodes.clock.now()),
            hold: OnceLock::new(),
        }
    }

    /// Returns how long one node may take: far less than the ttl.
    pub(super) fn patience(&self) -> Duration {
        (self.ttl / 10).min(Duration::from_secs(2))
    }

    /// Returns the value of `attempt`: the claim's record, and the number of the attempt, which makes it unique.
    pub(super) fn value_of(&self, attempt: Attempt) -> String {
        let record = self.record.to_text();
        format!("{},\"attempt\":{}}}", record.strip_suffix('}').unwrap_or(&record), attempt.number)
    }

    /// Ends the claim if `lacking`, the number of nodes without the hold, is so large that a majority has lost it.
    pub(super) fn learn(&self, lacking: usize) {
        if self.nodes.all.len() - lacking < self.nodes.majority() {
            self.publisher.publish(self.publisher.ended(self.ttl));
        }
    }

    /// Renews `hold` at a majority by another ttl; then creates it again at nodes that have lost it. Returns how many
    /// have lost it, and whether a majority has renewed it.
    pub(super) async fn extend(&self, hold: &Hold, deadline: Moment) -> (usize, FaultResult<()>) {
        let question = Question::by(deadline);
        let step = |again| vec![self.keys.extend(hold, self.ttl, self.mode, again)];
        let (strict, again) = (step(false), step(true));
        let extended =
            |found: &Answers| self.nodes.votes(found).filter(|answer| answer.number(0) == Some(1)).count();
        let enough = |found: &Answers| extended(found) >= self.nodes.majority();
        let found = self.nodes.ask(question, move || strict.clone(), enough).await;
        let lacking = answered(&found).filter(|answer| answer.number(0) == Some(0)).count();
        let done = self.nodes.refuse_too_few(extended(&found), &found);
        if done.is_ok() && lacking > 0 {
            let nodes = Arc::clone(&self.nodes);
            tokio::spawn(async move { nodes.ask(question, move || again.clone(), |_| false).await });
        }
        (lacking, done)
    }
}
