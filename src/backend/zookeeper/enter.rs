//! Joining the queues of a claim's names.

use std::sync::Arc;

use zookeeper_client::{Client, CreateMode, Error as ZkError, MultiWriteError, MultiWriteResult, Stat};

use super::ensemble::Ensemble;
use super::fault::{Fault, FaultResult, is_ambiguous, is_over};
use super::follow::Settled;
use super::grants::Grants;
use super::node::{Node, Part, stem};
use super::note::{Note, called, token};
use super::proofs::Proofs;
use super::queue::QueueEntry;
use super::shared::{Memory, Own, Shared};
use super::snapshot::{Snapshot, leases, tickets};
use super::wire::{connected, data_of, make_folders};
use super::{deadlock, evict, follow, position, success};
use crate::backend::foreign;
use crate::backend::mixing::{Use, mismatch};
use crate::backend::options::ZkLayout;
use crate::backend::record::Record;
use crate::lock::{ClaimId, ErrorKind, LockName, Mode, Moment, Request};

/// How often a folder may vanish under a claim that enters it.
const VANISHING: usize = 20;

/// The queue of a name, and what the claim has in it.
struct Site {
    name: LockName,
    queue: String,
    stems: Vec<String>,
}

fn parts(layout: ZkLayout, mode: Mode) -> Vec<Part> {
    match (layout, mode) {
        // One for Curator's mutex and one for its read/write lock: neither sees the other's.
        (ZkLayout::Curator, Mode::Exclusive) => vec![Part::Mutex, Part::Writer],
        (ZkLayout::Curator, Mode::Shared) => vec![Part::Mutex, Part::Reader],
        (_, Mode::Slots(n)) => vec![Part::Slots(n), Part::Writer],
        (ZkLayout::Kazoo, Mode::Shared) => vec![Part::Reader],
        (ZkLayout::Kazoo, Mode::Exclusive) => vec![Part::Mutex],
    }
}

fn sites(ensemble: &Ensemble, request: &Request) -> FaultResult<Vec<Site>> {
    let layout = ensemble.config.layout;
    let slots = matches!(request.mode, Mode::Slots(_));
    if slots && layout == ZkLayout::Kazoo {
        let reason =
            "kazoo's semaphore has no order that others could join; use --slots with --zk-layout curator";
        return Err(Fault::Refusal(ErrorKind::Unsupported, reason.into()));
    }
    let site = |name: &LockName| {
        let queue =
            ensemble.paths.queue(name).map_err(|why| Fault::Refusal(ErrorKind::Invalid, why.into()))?;
        let stems = parts(layout, request.mode).iter().map(|part| stem(layout, request.id, *part)).collect();
        Ok(Site { name: name.clone(), queue, stems })
    };
    request.names.iter().map(site).collect()
}

/// Enters in a session of `client` that began at `begun`: the entry, and what it found.
pub(super) async fn enter(
    ensemble: &Arc<Ensemble>,
    request: &Request,
    client: &Client,
    begun: Moment,
) -> FaultResult<Arc<Shared>> {
    let grants = Grants::of(client.session_id().0);
    let sites = sites(ensemble, request)?;
    let record = Record::of(request, client.session_timeout());
    let semaphore = matches!(request.mode, Mode::Slots(_)) && ensemble.joins_semaphores();
    let note = Note { semaphore, ..Note::new(record) }.to_bytes();
    let slots = matches!(request.mode, Mode::Slots(_));
    let mut answer = join(ensemble, client, &sites, &note, slots).await;
    while let Err(Fault::Service(error)) = &answer {
        if !is_ambiguous(error) || is_over(error) || !connected(client).await {
            break;
        }
        answer = match adopt(ensemble, client, &sites, request.id).await {
            Ok(None) => join(ensemble, client, &sites, &note, slots).await,
            Ok(Some(joined)) => Ok(joined),
            Err(fault) => Err(fault),
        };
    }
    let Joined { own, listed, memory } = answer?;
    let snapshots = snapshots(client, request, &own, &listed).await?;
    check_kinds(client, request, &own, &snapshots).await?;
    let proofs = Proofs::new(begun, client.session_timeout());
    let shared = Shared::new(Arc::clone(ensemble), request.clone(), client.clone(), own, proofs);
    shared.set_memory(memory);
    let mut position = position::stand(&shared, &snapshots);
    if !position.is_free() && request.supersede && evict::supersede(ensemble, client, &shared.own()).await? {
        position = position::look(&shared, client).await?;
    }
    let settled = match follow::settle(&shared, client, position).await {
        Ok(settled) => Some(settled),
        // It stands in the queue; how, is asked again of the next connection.
        Err(Fault::Service(error)) if is_ambiguous(&error) => None,
        Err(fault) => return Err(fault),
    };
    let waits = settled.as_ref().is_none_or(|settled| matches!(settled, Settled::Waits(_)));
    if waits && !request.ancestors.is_empty() {
        deadlock::search(ensemble, client, request, &shared.own()).await?;
    }
    follow::start(&shared, client, settled, grants);
    Ok(shared)
}

/// An entry that was made, the children that its folders then had, and what there was to remember successes in.
struct Joined {
    own: Vec<Own>,
    listed: Vec<Vec<String>>,
    memory: Memory,
}

/// Makes the nodes in one step and reads what stands in the queue, all in one exchange; where a folder is missing,
/// in another one.
async fn join(
    ensemble: &Ensemble,
    client: &Client,
    sites: &[Site],
    note: &[u8],
    slots: bool,
) -> FaultResult<Joined> {
    let folder = CreateMode::Container.with_acls(ensemble.acls());
    // What nobody may make here is not there, either.
    let mut denied = false;
    for _ in 0..VANISHING {
        // Ahead of the writes, whose answers take longer.
        let memory = success::look(ensemble, client, sites.iter().map(|site| site.queue.as_str()));
        // A container that nobody uses is removed within minutes, so that it is missing more often than not. Made
        // on the way it costs no exchange; what becomes of this the step shows.
        for site in sites {
            drop(client.create(&site.queue, b"", &folder));
            if slots {
                drop(client.create(&leases(&site.queue), b"", &folder));
            }
        }
        let before: Vec<_> = sites.iter().map(|site| client.check_stat(&site.queue)).collect();
        let mut step = client.new_multi_writer();
        for site in sites {
            for (index, stem) in site.stems.iter().enumerate() {
                let data = if index == 0 { note } else { b"" };
                step.add_create(&format!("{}/{stem}", site.queue), data, &ensemble.ephemeral())?;
            }
        }
        let made = step.commit();
        let after: Vec<_> = sites.iter().map(|site| client.check_stat(&site.queue)).collect();
        let listed: Vec<_> = sites.iter().map(|site| super::wire::children(client, &site.queue)).collect();
        match made.await {
            Ok(results) => {
                let mut zxids = Vec::with_capacity(sites.len());
                for ((site, before), after) in sites.iter().zip(before).zip(after) {
                    zxids.push(zxid_of_step(before.await?, after.await?, site.stems.len()));
                }
                let own = own(client, sites, results, &zxids).await?;
                let mut children = Vec::with_capacity(sites.len());
                for answer in listed {
                    children.push(answer.await?);
                }
                return Ok(Joined { own, listed: children, memory: memory.await });
            }
            Err(MultiWriteError::OperationFailed { source: ZkError::NoNode, .. }) => {
                for site in sites {
                    denied |= make_folders(client, ensemble.acls(), &site.queue).await?;
                }
            }
            Err(error) => return Err(ZkError::from(error).into()),
        }
    }
    if denied {
        return Err(Fault::Service(ZkError::NoAuth));
    }
    Err(Fault::Refusal(ErrorKind::Unavailable, "its folder is removed again and again".into()))
}

/// The zxid of a step that made `made` children of a folder, if the folder was seen `before` and `after` it and
/// nothing else changed its children: the last change of them is then the step.
fn zxid_of_step(before: Option<Stat>, after: Option<Stat>, made: usize) -> Option<i64> {
    let (before, after) = (before?, after?);
    let made = i32::try_from(made).ok()?;
    let alone = before.czxid == after.czxid
        && after.cversion.wrapping_sub(before.cversion) == made
        && after.num_children.wrapping_sub(before.num_children) == made;
    alone.then_some(after.pzxid)
}

async fn own(
    client: &Client,
    sites: &[Site],
    results: Vec<MultiWriteResult>,
    zxids: &[Option<i64>],
) -> FaultResult<Vec<Own>> {
    let mut created = results.into_iter().filter_map(|result| match result {
        MultiWriteResult::Create { path, stat } => Some((path, stat)),
        _ => None,
    });
    let mut own = Vec::with_capacity(sites.len());
    for (site, zxid) in sites.iter().zip(zxids) {
        let nodes: Vec<(String, Stat)> = created.by_ref().take(site.stems.len()).collect();
        let Some((first, mut stat)) = nodes.first().cloned() else { return Err(nonsense()) };
        if nodes.len() < site.stems.len() {
            return Err(nonsense());
        }
        // ZOOKEEPER-4026: older servers leave it out of the answer to a step of several parts.
        match (stat.is_invalid(), zxid) {
            (true, Some(zxid)) => stat.czxid = *zxid,
            (true, None) => stat = client.check_stat(&first).await?.ok_or(ZkError::NoNode)?,
            (false, _) => {}
        }
        own.push(one(site, nodes.into_iter().map(|(path, _)| path).collect(), &stat)?);
    }
    Ok(own)
}

fn one(site: &Site, nodes: Vec<String>, stat: &Stat) -> FaultResult<Own> {
    let token = token(stat).ok_or_else(nonsense)?;
    Ok(Own { name: site.name.clone(), queue: site.queue.clone(), nodes, token, slot: None })
}

fn nonsense() -> Fault {
    Fault::Refusal(ErrorKind::Corrupt, "the server's answer makes no sense".into())
}

/// Finds what a step made whose answer was lost: nodes with this id that belong to this very session. A node
/// of an earlier session is not taken for one's own (CURATOR-498).
async fn adopt(
    ensemble: &Ensemble,
    client: &Client,
    sites: &[Site],
    id: ClaimId,
) -> FaultResult<Option<Joined>> {
    let mut own = Vec::new();
    let mut listed = Vec::new();
    for site in sites {
        // This server may lag behind the one that took the step.
        match client.sync(&site.queue).await {
            Ok(()) | Err(ZkError::NoNode) => {}
            Err(error) => return Err(error.into()),
        }
        let children = super::wire::children(client, &site.queue).await?;
        let paths: Vec<String> =
            of_id(&children, id).map(|node| format!("{}/{}", site.queue, node.name)).collect();
        let data = data_of(client, &paths).await?;
        let mine = |stat: &Stat| stat.ephemeral_owner == client.session_id().0;
        let found: Vec<(String, Stat)> = paths
            .into_iter()
            .zip(data)
            .filter_map(|(path, data)| data.filter(|(_, stat)| mine(stat)).map(|(_, stat)| (path, stat)))
            .take(site.stems.len())
            .collect();
        if found.len() < site.stems.len() {
            return Ok(None);
        }
        let stat = found[0].1;
        own.push(one(site, found.into_iter().map(|(path, _)| path).collect(), &stat)?);
        listed.push(children);
    }
    let memory = success::look(ensemble, client, sites.iter().map(|site| site.queue.as_str())).await;
    Ok(Some(Joined { own, listed, memory }))
}

/// The nodes with this id, in order.
fn of_id(children: &[String], id: ClaimId) -> impl Iterator<Item = Node> {
    let mut nodes: Vec<Node> =
        children.iter().filter_map(|name| Node::parse(name)).filter(|n| n.guid == Some(id)).collect();
    nodes.sort_by(|a, b| a.sequence.wrapping_sub(b.sequence).cmp(&0));
    nodes.into_iter()
}

/// What stands in the queues, without what the claim itself removes from them.
async fn snapshots(
    client: &Client,
    request: &Request,
    own: &[Own],
    listed: &[Vec<String>],
) -> FaultResult<Vec<Snapshot>> {
    let mut snapshots = Vec::with_capacity(own.len());
    for (own, listed) in own.iter().zip(listed) {
        let queue = position::queue_of(client, request.id, own, listed);
        snapshots.push(match request.mode {
            Mode::Slots(_) => Snapshot { queue, ..Snapshot::default() },
            _ => Snapshot { queue, ..Snapshot::complete(client, &own.queue, listed).await? },
        });
    }
    Ok(snapshots)
}

/// Refuses a claim of a kind that does not mix with one ahead of it in any of its queues. One behind finds this claim
/// there and is refused itself; a foreign client of a semaphore never is.
async fn check_kinds(
    client: &Client,
    request: &Request,
    own: &[Own],
    snapshots: &[Snapshot],
) -> FaultResult<()> {
    for (own, snapshot) in own.iter().zip(snapshots) {
        let wanted = request.mode;
        let index = snapshot.queue.position(own.record()).unwrap_or_default();
        let ahead = snapshot.queue.entries[..index].iter().filter(|entry| !entry.mode().mixes_with(wanted));
        let ahead = ahead.map(|entry| (entry, own.queue.clone(), Use::Mode(entry.mode())));
        let leases = snapshot.leases.entries.iter().map(|entry| (entry, leases(&own.queue)));
        let tickets = snapshot.foreign_tickets().map(|entry| (entry, tickets(&own.queue)));
        let semaphores = leases.chain(tickets).map(|(entry, folder)| (entry, folder, Use::Semaphore));
        for (entry, folder, used) in ahead.chain(semaphores) {
            let Some(owner) = owner_of(client, &folder, entry).await? else { continue };
            let reason = mismatch(Some(&own.name), Some(&owner), used, wanted);
            return Err(Fault::Refusal(ErrorKind::Mismatch, reason.into()));
        }
    }
    Ok(())
}

/// Whose entry it is; `None` if it has gone meanwhile.
async fn owner_of(client: &Client, folder: &str, entry: &QueueEntry) -> FaultResult<Option<String>> {
    let path = format!("{folder}/{}", entry.record().name);
    let found = data_of(client, std::slice::from_ref(&path)).await?;
    let Some((data, _)) = found.into_iter().flatten().next() else { return Ok(None) };
    Ok(Some(match Note::parse(&data) {
        Some(note) => note.record.holder.to_string(),
        None => foreign::owner(&called(&path)),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder made at 5 whose children changed `changes` times, the last time at `last`; `children` are left.
    fn folder(changes: i32, children: i32, last: i64) -> Stat {
        Stat {
            czxid: 5,
            mzxid: 5,
            pzxid: last,
            ctime: 0,
            mtime: 0,
            version: 0,
            cversion: changes,
            aversion: 0,
            ephemeral_owner: 0,
            data_length: 0,
            num_children: children,
        }
    }

    #[test]
    fn a_step_is_the_last_change_if_nothing_else_was() {
        assert_eq!(zxid_of_step(Some(folder(0, 0, 5)), Some(folder(2, 2, 9)), 2), Some(9));
        let (before, after) = (folder(i32::MAX, 3, 8), folder(i32::MIN, 4, 9));
        assert_eq!(zxid_of_step(Some(before), Some(after), 1), Some(9), "it wraps");
    }

    #[test]
    fn a_step_that_others_came_beside_is_not_told() {
        let fresh = folder(0, 0, 5);
        assert_eq!(zxid_of_step(None, Some(fresh), 2), None);
        assert_eq!(zxid_of_step(Some(fresh), None, 2), None);
        for (before, after) in [
            (fresh, folder(3, 3, 10)),
            (folder(4, 2, 8), folder(7, 3, 10)),
            (folder(4, 2, 8), folder(6, 2, 10)),
            (Stat { czxid: 4, ..fresh }, folder(2, 2, 9)),
        ] {
            assert_eq!(zxid_of_step(Some(before), Some(after), 2), None, "{before:?} {after:?}");
        }
    }
}
