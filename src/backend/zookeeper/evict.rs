//! Removing entries, and asking their owners to.

use zookeeper_client::{Client, Error as ZkError, MultiWriteError};

use super::note::Note;
use super::shared::{Own, Shared};
use super::sight::{Seen, Sight, modes};
use super::wire::{Door, Outcome, Trouble};
use crate::backend::Evict;
use crate::lock::{ClaimId, ErrorKind, Holder, LockName, Request, queue};

/// How often somebody else may be first in changing the same thing.
const RACES: usize = 50;

/// Changes the note at `path`; says whether there was one.
pub(super) async fn amend(client: &Client, path: &str, change: impl Fn(&mut Note)) -> Outcome<bool> {
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

fn busy() -> Trouble {
    Trouble::Refusal(ErrorKind::Unavailable, "others change the entry all the time".to_owned())
}

/// An entry of a claim in one of its lines, and what keeps it waiting there.
struct Target {
    seen: Seen,
    /// The node of an entry that must end before it.
    blocker: Option<String>,
    /// Whether it certainly waits, or holds, by where it stands.
    ticket: bool,
}

impl Target {
    fn nodes(&self) -> Vec<String> {
        self.seen.place.nodes.iter().map(|node| format!("{}/{}", self.seen.folder, node.name)).collect()
    }
}

/// Finds the entry of `id` in the line of `name`.
async fn find(door: &Door, client: &Client, name: &LockName, id: ClaimId) -> Outcome<Option<Target>> {
    let line = door.paths.line(name).map_err(|why| Trouble::Refusal(ErrorKind::Invalid, why))?;
    let sight = Sight::read(client, &line, true).await?;
    let parts = [&sight.line, &sight.leases, &sight.tickets];
    if parts.iter().all(|line| line.find(id).is_none()) {
        return Ok(None);
    }
    let entries = sight.entries(client, &line).await?;
    let Some(index) = entries.iter().position(|seen| seen.place.guid() == Some(id)) else { return Ok(None) };
    let seen = entries[index].clone();
    let semaphore = seen.folder != line;
    let blocker = if semaphore {
        None
    } else {
        let modes = modes(&entries);
        let blockers = queue::blockers(&modes[..=index], index);
        blockers.last().map(|at| format!("{line}/{}", entries[*at].place.watched().name))
    };
    let ticket = semaphore && !seen.lease;
    Ok(Some(Target { seen, blocker, ticket }))
}

/// The entry of `id` in the line of `name`, and those that the same claim has in other lines.
async fn find_all(door: &Door, client: &Client, name: &LockName, id: ClaimId) -> Outcome<Vec<Target>> {
    let Some(first) = find(door, client, name, id).await? else { return Ok(Vec::new()) };
    let names = first.seen.note.as_ref().map_or_else(Vec::new, |note| note.record.names(name));
    let mut targets = vec![first];
    for other in names.iter().filter(|other| *other != name) {
        targets.extend(find(door, client, other, id).await?);
    }
    Ok(targets)
}

/// Does `how` to the claim `id`, if it stands in the line of `name`.
pub(super) async fn evict(
    door: &Door,
    client: &Client,
    name: &LockName,
    id: ClaimId,
    how: Evict,
    by: &Holder,
) -> Outcome<bool> {
    for _ in 0..RACES {
        let targets = find_all(door, client, name, id).await?;
        let Some(first) = targets.first() else { return Ok(false) };
        if how == Evict::Ask {
            return amend(client, &first.seen.record_path(), |note| note.asked_by = Some(by.clone())).await;
        }
        let mut step = client.new_multi_writer();
        if how == Evict::IfWaiting {
            let blocker = targets.iter().find_map(|target| target.blocker.clone());
            match blocker {
                // In one step with the removal, or it might hold by then.
                Some(path) => step.add_check_version(&path, -1)?,
                None if targets.iter().any(|target| target.ticket) => {}
                None => return Ok(false),
            }
        }
        for path in targets.iter().flat_map(Target::nodes) {
            step.add_delete(&path, None)?;
        }
        match step.commit().await {
            Ok(_) => return Ok(true),
            Err(MultiWriteError::OperationFailed { source: ZkError::NoNode, .. }) => {}
            Err(error) => return Err(ZkError::from(error).into()),
        }
    }
    Err(busy())
}

/// Removes older waiters that make way for a newer claim; says whether there were any.
pub(super) async fn supersede(door: &Door, client: &Client, request: &Request, own: &[Own]) -> Outcome<bool> {
    let mut any = false;
    for own in own {
        let sight = Sight::read(client, &own.line, false).await?;
        for seen in sight.entries(client, &own.line).await? {
            let Some(note) = &seen.note else { continue };
            let earlier = super::note::token(&seen.stat).is_some_and(|token| token < own.token);
            let Some(id) = note.record.id().filter(|_| earlier && note.record.supersede) else { continue };
            any |= evict(door, client, &own.name, id, Evict::IfWaiting, &request.holder).await?;
        }
    }
    Ok(any)
}

/// Who took the place of a claim that said it would make way, if the one is still there.
pub(super) async fn successor(shared: &Shared, client: &Client) -> Option<Holder> {
    if !shared.request.supersede || shared.holds() {
        return None;
    }
    for own in shared.own() {
        let sight = Sight::read(client, &own.line, false).await.ok()?;
        let entries = sight.entries(client, &own.line).await.ok()?;
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
