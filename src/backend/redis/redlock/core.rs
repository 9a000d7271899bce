//! What the parts of one claim share.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::keys::{Keys, Place};
use super::nodes::{Answers, Node, Nodes, STRAGGLE, count};
use crate::backend::claim_state::Publisher;
use crate::backend::record::Record;
use crate::backend::redis::script::Call;
use crate::lock::{ClaimId, FencingToken, Mode, Moment, Request};
use crate::net::fault::FaultResult;

/// What the parts of one claim share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) nodes: Arc<Nodes>,
    pub(super) keys: Keys,
    pub(super) id: ClaimId,
    pub(super) mode: Mode,
    pub(super) ttl: Duration,
    pub(super) record: Record,
    pub(super) publisher: Publisher,
    hold: Mutex<Option<Hold>>,
}

/// What it holds.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) place: Place,
    /// What the key says.
    pub(super) value: String,
    pub(super) token: FencingToken,
    /// Which nodes do not have it.
    pub(super) lacking: Vec<bool>,
}

impl Core {
    pub(super) fn of(nodes: &Arc<Nodes>, keys: Keys, request: &Request) -> Self {
        let ttl = request.ttl.min(nodes.max_ttl);
        let clock = nodes.clock;
        Self {
            nodes: Arc::clone(nodes),
            id: request.id,
            mode: request.mode,
            ttl,
            record: Record::of(request, ttl),
            publisher: Publisher::new(clock, clock.now()),
            hold: Mutex::default(),
            keys,
        }
    }

    /// The claim's record, and something that no other attempt has: what one removes is never another's.
    pub(super) fn next_value(&self) -> String {
        let record = self.record.to_text();
        let attempt = self.nodes.attempts.fetch_add(1, Ordering::Relaxed);
        format!("{},\"attempt\":{attempt}}}", record.strip_suffix('}').unwrap_or(&record))
    }

    pub(super) fn held(&self) -> MutexGuard<'_, Option<Hold>> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn hold(&self, hold: Hold) {
        *self.held() = Some(hold);
    }

    /// What the nodes answer to the extension of a hold, each whether it has it and whether its word counts; and whether a majority did
    /// extend it.
    pub(super) async fn extended(
        &self,
        step: Call,
        deadline: Moment,
    ) -> (Answers<(bool, bool)>, FaultResult<()>) {
        let (clock, max_ttl, majority) = (self.nodes.clock, self.nodes.max_ttl, self.nodes.majority());
        let ask = |_, node: Arc<Node>| {
            let step = step.clone();
            async move {
                let answer = node.ask(false, max_ttl, deadline, || vec![step.clone()]).await?;
                let counts = answer.server.votes_from <= clock.now();
                Ok((count(&answer.replies, 0)? == 1, counts))
            }
        };
        let done = |found: &Answers<(bool, bool)>| {
            found.iter().flatten().flatten().filter(|(done, counts)| *done && *counts).count()
        };
        let found = self.nodes.each(STRAGGLE, deadline, ask, |found| done(found) >= majority).await;
        let done = done(&found);
        let enough = if done >= majority { Ok(()) } else { Err(self.nodes.too_few(done, &found)) };
        (found, enough)
    }
}
