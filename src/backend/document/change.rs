//! Changing a queue: read, change, and replace if unchanged. It starts again if the queue has changed meanwhile.

use std::time::{Duration, SystemTime};

use super::client::Queues;
use super::queue::{Content, Document};
use super::{Item, Replaced, Version};
use crate::lock::{LockName, Moment};
use crate::net::fault::{Fault, FaultResult};
use crate::net::request::Patience;

/// The pause between two attempts to reach a store that is down.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// The result of a step.
pub(super) enum Edit<T> {
    /// The document is to be written.
    Write(T),
    /// The document stays unchanged.
    Keep(T),
}

/// A queue as it was read, and its version.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) document: Document,
    pub(super) version: Version,
}

/// The lock's item, parsed.
#[derive(Clone, Debug)]
pub(super) enum LockItem {
    Queue(Known),
    Foreign(Item),
    Nothing,
}

/// The result of a change, and the item after it.
pub(super) struct Changed<T> {
    /// The result of the step; `None` if there is no queue.
    pub(super) said: Option<T>,
    pub(super) after: LockItem,
}

/// Parses an item.
pub(super) fn understand(item: Option<Item>) -> LockItem {
    let Some(item) = item else { return LockItem::Nothing };
    match Content::parse(&item.bytes) {
        Content::Queue(document) => LockItem::Queue(Known { document, version: item.version }),
        Content::Foreign => LockItem::Foreign(item),
    }
}

/// Returns milliseconds since 1970 by the clock of this host, for display only.
pub(super) fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Queues {
    /// Reads the queue of `name`.
    pub(super) async fn look(&self, name: &LockName, deadline: Moment) -> FaultResult<LockItem> {
        Ok(understand(self.store.read(name, deadline).await?))
    }

    /// Replaces the queue with `document`. An empty document is removed, so that other programs' clients can use the
    /// key.
    pub(super) async fn put(
        &self,
        name: &LockName,
        version: &Version,
        document: &Document,
        deadline: Moment,
    ) -> FaultResult<Replaced> {
        if document.claims.is_empty() {
            return self.store.remove(name, version, deadline).await;
        }
        self.store.replace(name, version, &document.to_bytes(), document.life(), deadline).await
    }

    /// Changes the queue of `name` with `step`, which may be called several times, each time with the document read
    /// last. The first call uses the queue in `known`, if given.
    pub(super) async fn change<T>(
        &self,
        name: &LockName,
        known: Option<Known>,
        patience: Patience,
        deadline: Moment,
        mut step: impl FnMut(&mut Document) -> Edit<T> + Send,
    ) -> FaultResult<Changed<T>> {
        let mut known = known.map(LockItem::Queue);
        loop {
            let fault = match self.attempts(name, known.take(), deadline, &mut step).await {
                Err(fault) if patience == Patience::Deadline && fault.kind.is_transient() => fault,
                answer => return answer,
            };
            let next = self.clock.now() + PAUSE;
            if next >= deadline {
                return Err(fault);
            }
            self.clock.sleep_until(next).await;
        }
    }

    async fn attempts<T>(
        &self,
        name: &LockName,
        known: Option<LockItem>,
        deadline: Moment,
        step: &mut (impl FnMut(&mut Document) -> Edit<T> + Send),
    ) -> FaultResult<Changed<T>> {
        let mut found = match known {
            Some(found) => found,
            None => self.look(name, deadline).await?,
        };
        loop {
            let LockItem::Queue(known) = found else { return Ok(Changed { said: None, after: found }) };
            let mut document = known.document.clone();
            let said = match step(&mut document) {
                Edit::Keep(said) => {
                    return Ok(Changed { said: Some(said), after: LockItem::Queue(known) });
                }
                Edit::Write(said) => said,
            };
            let replaced = self.put(name, &known.version, &document, deadline).await?;
            found = understand(replaced.item);
            if replaced.done {
                return Ok(Changed { said: Some(said), after: found });
            }
            if self.clock.now() >= deadline {
                return Err(Fault::unavailable(
                    "others changed the queue again and again until the deadline",
                ));
            }
        }
    }
}
