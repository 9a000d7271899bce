//! What is done to claims of others: removing them, asking them to leave, publishing what a holder proclaims.

use super::arrive::KEEP_OUT;
use super::change::{LockItem, Patience, Step, wall_clock};
use super::client::Queues;
use super::queue::{Content, Document};
use super::view::Note;
use super::{Item, Side, Store};
use crate::backend::fault::{Fault, FaultResult};
use crate::backend::{Evict, foreign};
use crate::lock::{ClaimId, ErrorKind, Holder, LockName, Moment};

/// How a claim stood in one queue when it was to be removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Removal {
    /// It is out now, or is asked.
    Done,
    /// It was not there, and cannot come any more.
    Absent,
}

/// Does to the claim `id` what `how` says, on all of its names.
pub(super) async fn evict(
    queues: &Queues,
    name: &LockName,
    id: ClaimId,
    how: Evict,
    by: &Holder,
    deadline: Moment,
) -> FaultResult<bool> {
    let names = names_of(&*queues.store, name, id, deadline).await?;
    let mut all = Vec::with_capacity(names.len());
    for name in &names {
        all.push(one(queues, name, id, how, by, deadline).await?);
    }
    Ok(all.contains(&Removal::Done))
}

/// All names of the claim `id`, if it noted several with `name` among them.
async fn names_of(
    store: &dyn Store,
    name: &LockName,
    id: ClaimId,
    deadline: Moment,
) -> FaultResult<Vec<LockName>> {
    let noted = store.read_side(Side::Names(id), deadline).await?;
    let texts: Vec<String> =
        noted.and_then(|item| serde_json::from_slice(&item.bytes).ok()).unwrap_or_default();
    let names: Vec<LockName> = texts.into_iter().filter_map(|text| LockName::new(text).ok()).collect();
    Ok(if names.contains(name) { names } else { vec![name.clone()] })
}

/// Removes the claim `id` from the queue of one lock, whoever it is of, and keeps out what of it is still on its way.
pub(super) async fn withdraw(
    queues: &Queues,
    name: &LockName,
    id: ClaimId,
    by: &Holder,
    deadline: Moment,
) -> FaultResult<()> {
    one(queues, name, id, Evict::Force, by, deadline).await.map(drop)
}

async fn one(
    queues: &Queues,
    name: &LockName,
    id: ClaimId,
    how: Evict,
    by: &Holder,
    deadline: Moment,
) -> FaultResult<Removal> {
    if how == Evict::Ask {
        let ask = |document: &mut Document| {
            if document.ask(id, by) { Step::Write(Removal::Done) } else { Step::Keep(Removal::Absent) }
        };
        let asked = queues.change(name, None, Patience::Deadline, deadline, ask).await?;
        return Ok(asked.said.unwrap_or(Removal::Absent));
    }
    // Noted first, so that whoever finds itself removed finds the reason.
    let looked = queues.change(name, None, Patience::Deadline, deadline, |_| Step::Keep(())).await?;
    let note = Note::new("evicted", by).to_bytes();
    queues.store.write_side(Side::Gone(name, id), &note, KEEP_OUT, deadline).await?;
    let remove = |document: &mut Document| {
        // Written also if it is not there: a replacement that would add it is refused after that.
        let was_there = document.remove(id, wall_clock());
        Step::Write(if was_there { Removal::Done } else { Removal::Absent })
    };
    let known = match looked.after {
        LockItem::Queue(known) => Some(known),
        LockItem::Foreign(_) | LockItem::Nothing => None,
    };
    let was_there = known.as_ref().is_some_and(|known| known.document.find(id).is_some());
    let removed = queues.change(name, known, Patience::Deadline, deadline, remove).await?;
    Ok(match removed.said {
        // By an attempt whose answer was lost.
        None | Some(Removal::Absent) if was_there => Removal::Done,
        None => Removal::Absent,
        Some(removal) => removal,
    })
}

/// As [`crate::backend::Backend::publish`].
pub(super) async fn publish(
    queues: &Queues,
    name: &LockName,
    id: ClaimId,
    value: &str,
    deadline: Moment,
) -> FaultResult<bool> {
    let room = queues.store.room();
    let publish = |document: &mut Document| match document.publish(id, value) {
        true if document.to_bytes().len() > room / 16 * 15 => Step::Keep(None),
        true => Step::Write(Some(true)),
        false => Step::Keep(Some(false)),
    };
    let published = queues.change(name, None, Patience::Deadline, deadline, publish).await?;
    match published.said {
        Some(Some(holds)) => Ok(holds),
        None => Ok(false),
        Some(None) => Err(Fault::new(ErrorKind::Full, "the item of the lock has no room for this value")),
    }
}

/// The claim as which another program's item is shown.
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
