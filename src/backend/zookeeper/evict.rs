//! Removing entries, and asking their owners to leave.

use zookeeper_client::{Client, Error as ZkError, MultiWriteError, MultiWriter};

use super::ensemble::Ensemble;
use super::note::Note;
use super::shared::{Own, Shared};
use super::snapshot::{self, Seen};
use super::wire::data_of;
use crate::backend::Evict;
use crate::lock::{ClaimId, ClaimState, ErrorKind, Holder, LockName, LossReason, Mode, queue};
use crate::net::fault::{Fault, FaultResult};

/// How often other clients may change the same node first.
const RACES: usize = 50;

/// Changes the note at `path`. Returns whether there was one.
pub(super) async fn amend(client: &Client, path: &str, change: impl Fn(&mut Note)) -> FaultResult<bool> {
    for _ in 0..RACES {
        let (data, stat) = match client.get_data(path).await {
            Ok(found) => found,
            Err(ZkError::NoNode) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let Some(mut note) = Note::parse(&data) else { return Ok(false) };
        change(&mut note);
        match client.set_data(path, &note.to_bytes(), Some(stat.version)).await {
            Ok(_) => return Ok(true),
            Err(ZkError::NoNode) => return Ok(false),
            Err(ZkError::BadVersion) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(busy())
}

fn busy() -> Fault {
    Fault::new(ErrorKind::Unavailable, "others change the entry all the time")
}

/// An entry of a claim in one of its queues.
struct Target {
    seen: Seen,
    /// The proof, for the removing step, that it waits; `None` if it holds.
    waits: Option<Waits>,
}

/// The reason why an entry waits.
enum Waits {
    /// The node of this entry ahead still exists.
    Behind(String),
    /// Its record has no slot yet.
    WithoutSlot,
}

/// Finds the entry of `id` in the queue of `name`.
async fn find(
    ensemble: &Ensemble,
    client: &Client,
    name: &LockName,
    id: ClaimId,
) -> FaultResult<Option<Target>> {
    let queue = ensemble.paths.queue(name).map_err(|why| Fault::new(ErrorKind::Invalid, why))?;
    let read = snapshot::read(client, &queue, true).await?;
    let Some(index) = read.find(id) else { return Ok(None) };
    let entry = read.entries[index].clone();
    let record = format!("{queue}/{}", entry.record().name);
    let Some((data, stat)) =
        data_of(client, std::slice::from_ref(&record)).await?.into_iter().flatten().next()
    else {
        return Ok(None);
    };
    let note = Note::parse(&data);
    let waits = match entry.mode() {
        Mode::Slots(_) => note.as_ref().is_none_or(|note| note.slot.is_none()).then_some(Waits::WithoutSlot),
        _ => queue::blockers(&read.modes(), index)
            .last()
            .map(|at| Waits::Behind(format!("{queue}/{}", read.entries[*at].watched().name))),
    };
    Ok(Some(Target { seen: Seen { entry, queue, note, stat }, waits }))
}

/// Returns the entry of `id` in the queue of `name`, and the same claim's entries in other queues.
async fn find_all(
    ensemble: &Ensemble,
    client: &Client,
    name: &LockName,
    id: ClaimId,
) -> FaultResult<Vec<Target>> {
    let Some(first) = find(ensemble, client, name, id).await? else { return Ok(Vec::new()) };
    let names = first.seen.note.as_ref().map_or_else(Vec::new, |note| note.record.names(name));
    let mut targets = vec![first];
    for other in names.iter().filter(|other| *other != name) {
        targets.extend(find(ensemble, client, other, id).await?);
    }
    Ok(targets)
}

/// Applies `how` to the claim `id`, if it is in the queue of `name`.
pub(super) async fn evict(
    ensemble: &Ensemble,
    client: &Client,
    name: &LockName,
    id: ClaimId,
    how: Evict,
    by: &Holder,
) -> FaultResult<bool> {
    match how {
        Evict::Ask => {
            let Some(target) = find(ensemble, client, name, id).await? else { return Ok(false) };
            amend(client, &target.seen.record_path(), |note| note.asked_by = Some(by.clone())).await
        }
        Evict::Force => remove(ensemble, client, name, id, false).await,
    }
}

/// Removes the claim `id` from all its queues, if it is in the queue of `name`; with `only_waiting` only if it does not
/// hold.
async fn remove(
    ensemble: &Ensemble,
    client: &Client,
    name: &LockName,
    id: ClaimId,
    only_waiting: bool,
) -> FaultResult<bool> {
    for _ in 0..RACES {
        let targets = find_all(ensemble, client, name, id).await?;
        if targets.is_empty() {
            return Ok(false);
        }
        let mut step = client.new_multi_writer();
        if only_waiting {
            // Checked in the step of the removal; otherwise it might hold by then.
            match targets.iter().find_map(|target| target.waits.as_ref()) {
                Some(Waits::Behind(path)) => step.add_check_version(path, -1)?,
                // The version check of its record proves this below.
                Some(Waits::WithoutSlot) => {}
                None => return Ok(false),
            }
        }
        for Target { seen, waits } in &targets {
            // Only in the version that was read; otherwise it might have a slot by then.
            let version = matches!(waits, Some(Waits::WithoutSlot)).then_some(seen.stat.version);
            delete(&mut step, seen, version)?;
        }
        if is_done(step).await? {
            return Ok(true);
        }
    }
    Err(busy())
}

/// Implements [`crate::backend::Backend::publish`]. An entry that was seen to hold does so until it is gone.
pub(super) async fn publish(
    ensemble: &Ensemble,
    client: &Client,
    name: &LockName,
    id: ClaimId,
    value: &str,
) -> FaultResult<bool> {
    let found = find(ensemble, client, name, id).await?;
    let Some(target) = found.filter(|target| target.waits.is_none()) else { return Ok(false) };
    let label = Some(value.to_owned());
    amend(client, &target.seen.record_path(), |note| note.record.holder.label.clone_from(&label)).await
}

/// Commits `step`. Returns false if it was refused because a node is gone or has changed.
async fn is_done(mut step: MultiWriter<'_>) -> FaultResult<bool> {
    match step.commit().await {
        Ok(_) => Ok(true),
        Err(MultiWriteError::OperationFailed { source: ZkError::NoNode | ZkError::BadVersion, .. }) => {
            Ok(false)
        }
        Err(error) => Err(ZkError::from(error).into()),
    }
}

/// Adds the removal of all nodes of `seen` to `step`. The node with the record is removed only in `version`, if given.
fn delete(step: &mut MultiWriter<'_>, seen: &Seen, version: Option<i32>) -> FaultResult<()> {
    for node in &seen.entry.nodes {
        let version = version.filter(|_| node == seen.entry.record());
        step.add_delete(&format!("{}/{}", seen.queue, node.name), version)?;
    }
    Ok(())
}

/// Implements [`crate::backend::Backend::evict_foreign`], in the queue at `path`.
pub(super) async fn evict_foreign(client: &Client, path: &str, id: ClaimId) -> FaultResult<bool> {
    for _ in 0..RACES {
        let queue = snapshot::read(client, path, true).await?;
        let entries = snapshot::entries(client, path, queue).await?;
        let Some(seen) = entries.into_iter().find(|seen| seen.foreign_identity() == Some(id)) else {
            return Ok(false);
        };
        let mut step = client.new_multi_writer();
        delete(&mut step, &seen, Some(seen.stat.version))?;
        if is_done(step).await? {
            return Ok(true);
        }
    }
    Err(busy())
}

/// Removes older waiters that a newer claim supersedes. Returns whether there were any.
pub(super) async fn supersede(ensemble: &Ensemble, client: &Client, own: &[Own]) -> FaultResult<bool> {
    let mut any = false;
    for own in own {
        let queue = snapshot::read(client, &own.queue, false).await?;
        for seen in snapshot::entries(client, &own.queue, queue).await? {
            let Some(note) = &seen.note else { continue };
            let earlier = super::note::token(&seen.stat).is_some_and(|token| token < own.token);
            let Some(id) = note.record.id().filter(|_| earlier && note.record.supersede) else { continue };
            any |= remove(ensemble, client, &own.name, id, true).await?;
        }
    }
    Ok(any)
}

/// Returns the claim that superseded this one, if it is still in the queue.
async fn successor(shared: &Shared, client: &Client) -> Option<Holder> {
    if !shared.request.supersede || shared.publisher.held_at().is_some() {
        return None;
    }
    for own in shared.own() {
        let queue = snapshot::read(client, &own.queue, false).await.ok()?;
        let entries = snapshot::entries(client, &own.queue, queue).await.ok()?;
        let newer = entries.into_iter().rev().find(|seen| {
            let later = super::note::token(&seen.stat).is_some_and(|token| token > own.token);
            later && seen.note.as_ref().is_some_and(|note| note.record.supersede)
        });
        if let Some(note) = newer.and_then(|seen| seen.note) {
            return Some(note.record.holder);
        }
    }
    None
}

/// Ends a claim after another client removed its entry, as superseded if the successor is still there.
pub(super) async fn be_gone(shared: &Shared, client: &Client) {
    let end = successor(shared, client).await;
    shared.end(end.map_or(ClaimState::Lost(LossReason::Evicted(None)), |by| ClaimState::Superseded { by }));
}
