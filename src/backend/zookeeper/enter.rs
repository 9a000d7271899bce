//! Joining the queues of a claim's names.

use std::sync::Arc;

use zookeeper_client::{Client, CreateMode, Error as ZkError, MultiWriteError, MultiWriteResult, Stat};

use super::dial::{Dialer, Session};
use super::ensemble::Ensemble;
use super::fault::LOST;
use super::node::{Part, stem};
use super::note::{Note, token};
use super::proofs::Proofs;
use super::queue::{ClaimNodes, QueueNodes};
use super::shared::{Own, Shared};
use super::wire::{children, connected, data_of, make_folders};
use super::{evict, follow, position};
use crate::backend::mixing::{Use, mismatch};
use crate::backend::options::ZkLayout;
use crate::backend::record::Record;
use crate::lock::{ClaimId, ErrorKind, LockName, Mode, Moment, Request};
use crate::net::fault::{Fault, FaultResult};
use crate::net::link::Link;

/// How often a directory may vanish while a claim enters it.
const VANISHING: usize = 20;

/// The queue of a name, and the claim's nodes in it.
struct NewEntry {
    name: LockName,
    queue: String,
    stems: Vec<String>,
}

impl NewEntry {
    fn own(&self, nodes: Vec<String>, stat: &Stat) -> FaultResult<Own> {
        let token = token(stat).ok_or_else(nonsense)?;
        Ok(Own { name: self.name.clone(), queue: self.queue.clone(), nodes, token, slot: None })
    }
}

fn parts(layout: ZkLayout, mode: Mode) -> Vec<Part> {
    match (layout, mode) {
        // One node for Curator's mutex and one for its read/write lock: neither recognises the other's nodes.
        (ZkLayout::Curator, Mode::Exclusive) => vec![Part::Mutex, Part::Writer],
        (ZkLayout::Curator, Mode::Shared) => vec![Part::Mutex, Part::Reader],
        (_, Mode::Slots(n)) => vec![Part::Slots(n), Part::Writer],
        (ZkLayout::Kazoo, Mode::Shared) => vec![Part::Reader],
        (ZkLayout::Kazoo, Mode::Exclusive) => vec![Part::Mutex],
    }
}

fn new_entries(ensemble: &Ensemble, request: &Request) -> FaultResult<Vec<NewEntry>> {
    let layout = ensemble.config.layout;
    let slots = matches!(request.mode, Mode::Slots(_));
    if slots && layout == ZkLayout::Kazoo {
        let reason =
            "kazoo's semaphore has no order that others could join; use --slots with --zk-layout curator";
        return Err(Fault::new(ErrorKind::Unsupported, reason));
    }
    let entry = |name: &LockName| {
        let queue = ensemble.paths.queue(name).map_err(|why| Fault::new(ErrorKind::Invalid, why))?;
        let stems = parts(layout, request.mode).iter().map(|part| stem(layout, request.id, *part)).collect();
        Ok(NewEntry { name: name.clone(), queue, stems })
    };
    request.names.iter().map(entry).collect()
}

/// Enters with `session`, which began at `begun` over `link`, and returns the state of the entry.
pub(super) async fn enter(
    ensemble: &Arc<Ensemble>,
    request: &Request,
    link: Link<Dialer>,
    session: Session,
    begun: Moment,
) -> FaultResult<Arc<Shared>> {
    let client = &session.client.clone();
    let entries = new_entries(ensemble, request)?;
    let record = Record::of(request, client.session_timeout());
    let note = Note::new(record).to_bytes();
    let mut joined = join(ensemble, client, &entries, &note).await;
    while joined.as_ref().is_err_and(|fault| fault.code == LOST) && connected(client).await {
        joined = match find(client, &entries, request.id).await {
            Ok(None) => join(ensemble, client, &entries, &note).await,
            Ok(Some(found)) => Ok(found),
            Err(fault) => Err(fault),
        };
    }
    let (own, listed) = joined?;
    let listed = own.iter().zip(&listed);
    let mut queues: Vec<QueueNodes> =
        listed.map(|(own, listed)| position::queue_of(client, request.id, own, listed)).collect();
    check_kinds(client, request, &own, &queues).await?;
    let proofs = Proofs::new(begun, client.session_timeout());
    let shared = Shared::new(Arc::clone(ensemble), request.clone(), session, own, proofs);
    if request.supersede && evict::supersede(ensemble, client, &shared.own()).await? {
        queues = position::read(&shared, client).await?;
    }
    let settled = match follow::settle(&shared, client, &queues).await {
        // The entry exists; the next connection reads its state.
        Err(fault) if fault.code == LOST => Err(fault),
        settled => Ok(settled?),
    };
    follow::start(&shared, link, settled);
    Ok(shared)
}

/// The claim's nodes in its queues, and the children of each queue.
type Joined = (Vec<Own>, Vec<Vec<String>>);

/// Creates the nodes in one step and reads the queues, all in one exchange; in another exchange if a directory is missing.
async fn join(
    ensemble: &Ensemble,
    client: &Client,
    entries: &[NewEntry],
    note: &[u8],
) -> FaultResult<Joined> {
    let folder = CreateMode::Container.with_acls(ensemble.acls());
    // Access was denied, which matters only if the directory is missing.
    let mut denied = false;
    for _ in 0..VANISHING {
        // Servers remove an unused container within minutes, so it is usually missing. Sending its creation along costs
        // no exchange, and the step below shows the result.
        for entry in entries {
            drop(client.create(&entry.queue, b"", &folder));
        }
        let mut step = client.new_multi_writer();
        for entry in entries {
            for (index, stem) in entry.stems.iter().enumerate() {
                let data = if index == 0 { note } else { b"" };
                step.add_create(&format!("{}/{stem}", entry.queue), data, &ensemble.ephemeral())?;
            }
        }
        let made = step.commit();
        let listed: Vec<_> = entries.iter().map(|entry| children(client, &entry.queue)).collect();
        match made.await {
            Ok(results) => {
                let own = own(client, entries, results).await?;
                let mut names = Vec::with_capacity(entries.len());
                for answer in listed {
                    names.push(answer.await?);
                }
                return Ok((own, names));
            }
            Err(MultiWriteError::OperationFailed { source: ZkError::NoNode, .. }) => {
                for entry in entries {
                    denied |= make_folders(client, ensemble.acls(), &entry.queue).await?;
                }
            }
            Err(error) => return Err(ZkError::from(error).into()),
        }
    }
    if denied {
        return Err(ZkError::NoAuth.into());
    }
    Err(Fault::new(ErrorKind::Unavailable, "its parent node is removed again and again"))
}

async fn own(client: &Client, entries: &[NewEntry], results: Vec<MultiWriteResult>) -> FaultResult<Vec<Own>> {
    let mut created = results.into_iter().filter_map(|result| match result {
        MultiWriteResult::Create { path, stat } => Some((path, stat)),
        _ => None,
    });
    let mut own = Vec::with_capacity(entries.len());
    for entry in entries {
        let (nodes, stats): (Vec<String>, Vec<Stat>) = created.by_ref().take(entry.stems.len()).unzip();
        let Some(mut stat) = stats.first().copied().filter(|_| nodes.len() == entry.stems.len()) else {
            return Err(nonsense());
        };
        // ZOOKEEPER-4026: older servers omit it in the answer to a step of several parts.
        if stat.is_invalid() {
            stat = client.check_stat(&nodes[0]).await?.ok_or(ZkError::NoNode)?;
        }
        own.push(entry.own(nodes, &stat)?);
    }
    Ok(own)
}

/// Finds the nodes of a step with a lost answer: entries with this id that belong to this very session. Nodes of an
/// earlier session are not taken for this claim's own (CURATOR-498).
async fn find(client: &Client, entries: &[NewEntry], id: ClaimId) -> FaultResult<Option<Joined>> {
    let (mut own, mut listed) = (Vec::new(), Vec::new());
    for entry in entries {
        // This server may lag behind the one that executed the step.
        match client.sync(&entry.queue).await {
            Ok(()) | Err(ZkError::NoNode) => {}
            Err(error) => return Err(error.into()),
        }
        let names = children(client, &entry.queue).await?;
        let Some(found) = QueueNodes::of(&names).entries.into_iter().rfind(|found| found.guid() == Some(id))
        else {
            return Ok(None);
        };
        let nodes: Vec<String> =
            found.nodes.iter().map(|node| format!("{}/{}", entry.queue, node.name)).collect();
        let first = data_of(client, &nodes[..1]).await?.into_iter().flatten().next();
        let Some((_, stat)) = first.filter(|(_, stat)| stat.ephemeral_owner == client.session_id().0) else {
            return Ok(None);
        };
        if nodes.len() < entry.stems.len() {
            return Ok(None);
        }
        own.push(entry.own(nodes, &stat)?);
        listed.push(names);
    }
    Ok(Some((own, listed)))
}

fn nonsense() -> Fault {
    Fault::new(ErrorKind::Corrupt, "the server's answer makes no sense")
}

/// Refuses a claim of a kind that does not mix with one ahead of it in any of its queues. A claim behind finds this one
/// and is refused itself. Entries of other programs do not cause a refusal; the claim waits for them.
async fn check_kinds(
    client: &Client,
    request: &Request,
    own: &[Own],
    queues: &[QueueNodes],
) -> FaultResult<()> {
    let wanted = request.mode;
    for (own, queue) in own.iter().zip(queues) {
        let index = queue.position(own.record()).unwrap_or_default();
        for entry in queue.entries[..index].iter().filter(|entry| !entry.mode().mixes_with(wanted)) {
            let Some(owner) = owner_of(client, &own.queue, entry).await? else { continue };
            let reason = mismatch(Some(&own.name), Some(&owner), Use::Mode(entry.mode()), wanted);
            return Err(Fault::new(ErrorKind::Mismatch, reason));
        }
    }
    Ok(())
}

/// Returns the owner of an entry; `None` if the entry has gone, or another program made it.
async fn owner_of(client: &Client, queue: &str, entry: &ClaimNodes) -> FaultResult<Option<String>> {
    let path = format!("{queue}/{}", entry.record().name);
    let found = data_of(client, &[path]).await?.into_iter().flatten().next();
    Ok(found.and_then(|(data, _)| Note::parse(&data)).map(|note| note.record.holder.to_string()))
}
