//! Waiting for a new attempt.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::Value;

use super::answers::{Said, said};
use super::core::Core;
use super::nodes::{Answer, Answers};
use crate::backend::claim_state::POLL;
use crate::backend::record::Record;
use crate::backend::redis::connection::Connection;
use crate::backend::redis::row::foreign_entry;
use crate::lock::{ClaimState, Entry, Moment};

/// The longest delay before a new attempt when nobody has a majority.
const LONGEST_DELAY: Duration = Duration::from_millis(500);

/// A number that nobody else is likely to draw.
pub(super) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// How long to wait before a new attempt after so many in a row in which nobody got a majority, the last of which took so long: at
/// random, so that one of the contenders is alone, and longer each time, should they be many.
pub(super) fn delay(attempts: u32, took: Duration) -> Duration {
    let longest =
        (took * 4).max(Duration::from_millis(4)).saturating_mul(1 << attempts.min(8)).min(LONGEST_DELAY);
    longest.mul_f64(f64::from(u32::try_from(random() >> 32).unwrap_or(0)) / f64::from(u32::MAX))
}

/// What is known of those who hold.
pub(super) struct Taken {
    /// One of them.
    holder: Entry,
    /// When so many of them will have expired that a majority is free.
    expires: Moment,
    /// What tells of the next change at each node that is taken.
    listening: Vec<(Arc<Connection>, u64)>,
    /// How many of these have to change before a majority may be free.
    needed: usize,
}

impl Taken {
    /// Completes when a majority of the nodes may be free.
    pub(super) async fn is_over(&self, core: &Core) {
        let told = async {
            let mut changes: FuturesUnordered<_> = self
                .listening
                .iter()
                .map(|(connection, notified)| connection.notified_after(*notified))
                .collect();
            for _ in 0..self.needed {
                if changes.next().await.is_none() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            () = told => {}
            () = core.nodes.clock.sleep_until(self.expires) => {}
        }
    }

    /// How the claim stands then.
    pub(super) fn state(&self) -> ClaimState {
        ClaimState::Waiting { ahead: None, holder: Some(Box::new(self.holder.clone())) }
    }
}

impl Core {
    /// Who holds, `record` or another program's client, and when that may be over, by what the nodes said at `begin`, and when
    /// they were asked which of the `all` keys in the way are there. `None` if a majority may be free already.
    pub(super) fn taken(
        &self,
        record: Option<&Record>,
        found: &Answers<(Said, Answer)>,
        listening: &Answers<Answer>,
        all: i64,
        begin: Moment,
    ) -> Option<Taken> {
        let majority = self.nodes.majority();
        let listening: Vec<&Answer> = listening.iter().flatten().flatten().collect();
        let is_taken =
            |answer: &&Answer| matches!(answer.replies.last(), Some(Value::Int(count)) if *count == all);
        let taken: Vec<&Answer> = listening.iter().copied().filter(is_taken).collect();
        let needed = majority.saturating_sub(listening.len() - taken.len());
        if needed == 0 {
            return None;
        }
        let mut lives: Vec<Moment> = said(found).map(|said| said.life(begin)).collect();
        lives.sort_unstable();
        let poll = begin + POLL;
        let jitter = delay(0, POLL / 8);
        let expires = lives.get(majority - 1).map_or(poll, |expires| *expires + jitter);
        let deaf = taken.iter().any(|answer| answer.connection.can_notify.get() != Some(&true));
        Some(Taken {
            holder: record.map_or_else(|| foreign_entry(&self.keys.lock, None, None), Record::entry),
            expires: if deaf || taken.len() < needed { expires.min(poll) } else { expires },
            listening: taken.iter().map(|answer| (Arc::clone(&answer.connection), answer.notified)).collect(),
            needed,
        })
    }
}
