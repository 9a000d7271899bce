//! Queues for display.

use super::evict::identity_of;
use super::queue::{Content, Document, QueueEntry};
use super::view::{entry, foreign_entry};
use super::watch::Watch;
use super::{Item, Store};
use crate::lock::{Entry, LockName, LockStatus, Moment};
use crate::net::fault::FaultResult;

/// Reads the queue of `name`.
pub(super) async fn inspect(store: &dyn Store, name: &LockName, deadline: Moment) -> FaultResult<LockStatus> {
    let item = store.read(name, deadline).await?;
    Ok(status_of(store, name, item.as_ref(), None))
}

/// Reads the queues with claims and with names that start with `prefix`, by name.
pub(super) async fn list(store: &dyn Store, prefix: &str, deadline: Moment) -> FaultResult<Vec<LockStatus>> {
    let mut all = Vec::new();
    for (key, item) in store.all(deadline).await? {
        let Content::Queue(document) = Content::parse(&item.bytes) else { continue };
        let Ok(name) = LockName::new(document.lock.clone()) else { continue };
        // A lock of the same name under another prefix has another key.
        let is_own = store.key(&name).is_ok_and(|own| own == key);
        if is_own && name.as_str().starts_with(prefix) && !document.claims.is_empty() {
            all.push(status(&name, &document, None));
        }
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all.dedup_by(|one, other| one.name == other.name);
    Ok(all)
}

/// Returns the status of the item of `name`. With `watch` it contains the rest of each ttl; a single read knows only
/// the full ttl.
pub(super) fn status_of(
    store: &dyn Store,
    name: &LockName,
    item: Option<&Item>,
    watch: Option<(&Watch, Moment)>,
) -> LockStatus {
    let Some(item) = item else { return LockStatus::empty(name) };
    match Content::parse(&item.bytes) {
        Content::Queue(document) => status(name, &document, watch),
        Content::Foreign => {
            let entry = foreign_entry(identity_of(name, item), store.called(name));
            LockStatus::of(name, vec![entry], Vec::new())
        }
    }
}

fn status(name: &LockName, document: &Document, watch: Option<(&Watch, Moment)>) -> LockStatus {
    let shown = |place: &QueueEntry| {
        let left = watch.and_then(|(watch, now)| watch.left(place.id()?, now));
        let entry = entry(place);
        Entry { ttl: left.or(entry.ttl), ..entry }
    };
    let (holders, waiters): (Vec<&QueueEntry>, _) =
        document.claims.iter().partition(|place| place.held.is_some());
    let entries = |places: Vec<&QueueEntry>| places.into_iter().map(shown).collect();
    LockStatus::of(name, entries(holders), entries(waiters))
}

#[cfg(test)]
#[path = "show_tests.rs"]
mod tests;
