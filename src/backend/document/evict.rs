//! Changes to claims of other processes: removing them, asking them to leave, publishing the value of a holder.

use super::arrive::NOTED;
use super::change::{Edit, LockItem, wall_clock};
use super::client::Queues;
use super::queue::{Content, Document};
use super::view::Note;
use super::{Item, Store};
use crate::backend::{Evict, foreign};
use crate::lock::{ClaimId, ErrorKind, Holder, LockName, Moment};
use crate::net::fault::{Fault, FaultResult};
use crate::net::request::Patience;

/// Implements [`crate::backend::Backend::evict`].
pub(super) async fn evict(
    queues: &Queues,
    name: &LockName,
    id: ClaimId,
    how: Evict,
    by: &Holder,
    deadline: Moment,
) -> FaultResult<bool> {
    if how == Evict::Ask {
        let ask = |document: &mut Document| {
            if document.ask(id, by) { Edit::Write(true) } else { Edit::Keep(false) }
        };
        let asked = queues.change(name, None, Patience::Deadline, deadline, ask).await?;
        return Ok(asked.said.unwrap_or(false));
    }
    // The note is written first, so that the removed claim finds the reason.
    let looked = queues.change(name, None, Patience::Deadline, deadline, |_| Edit::Keep(())).await?;
    let note = Note::new("evicted", by).to_bytes();
    queues.store.write_note(name, id, &note, NOTED, deadline).await?;
    let remove = |document: &mut Document| {
        // Written even if the claim is absent: a replacement in flight that would add it is then refused.
        Edit::Write(document.remove(id, wall_clock()))
    };
    let known = match looked.after {
        LockItem::Queue(known) => Some(known),
        LockItem::Foreign(_) | LockItem::Nothing => None,
    };
    let was_there = known.as_ref().is_some_and(|known| known.document.find(id).is_some());
    let removed = queues.change(name, known, Patience::Deadline, deadline, remove).await?;
    // If it was there and is absent now, an earlier attempt with a lost answer has removed it.
    Ok(was_there || removed.said == Some(true))
}

/// Implements [`crate::backend::Backend::publish`].
pub(super) async fn publish(
    queues: &Queues,
    name: &LockName,
    id: ClaimId,
    value: &str,
    deadline: Moment,
) -> FaultResult<bool> {
    let room = queues.store.room();
    let publish = |document: &mut Document| match document.publish(id, value) {
        true if document.to_bytes().len() > room / 16 * 15 => Edit::Keep(None),
        true => Edit::Write(Some(true)),
        false => Edit::Keep(Some(false)),
    };
    let published = queues.change(name, None, Patience::Deadline, deadline, publish).await?;
    match published.said {
        Some(Some(holds)) => Ok(holds),
        None => Ok(false),
        Some(None) => Err(Fault::new(ErrorKind::Full, "the item of the lock has no room for this value")),
    }
}

/// Returns the claim id under which another program's item is shown.
pub(super) fn identity_of(name: &LockName, item: &Item) -> ClaimId {
    foreign::identity([name.as_str().as_bytes(), item.version.write.as_bytes()])
}

/// Removes another program's item, if it is still the one that was shown as `id`.
pub(super) async fn evict_foreign(
    store: &dyn Store,
    name: &LockName,
    id: ClaimId,
    deadline: Moment,
) -> FaultResult<bool> {
    let mut found = store.read(name, deadline).await?;
    while let Some(item) = found {
        if Content::parse(&item.bytes) != Content::Foreign || identity_of(name, &item) != id {
            return Ok(false);
        }
        let removed = store.remove(name, &item.version, deadline).await?;
        if removed.done {
            return Ok(true);
        }
        found = removed.item;
    }
    Ok(false)
}
