//! Joining the queues of a claim's names.

use std::sync::Arc;

use zookeeper_client::{Client, CreateMode, Error as ZkError, MultiWriteError, MultiWriteResult, Stat};

use super::ensemble::Ensemble;
use super::fault::LOST;
use super::life::Life;
use super::node::{Part, stem};
use super::note::Note;
use super::queue::{ClaimNodes, QueueNodes};
use super::view;
use super::wire::{children, connected, make_folders};
use crate::backend::ZkLayout;
use crate::backend::record::Record;
use crate::lock::validity::LeaseTimes;
use crate::lock::{ClaimId, ErrorKind, Mode, Request};
use crate::net::fault::{Fault, FaultResult};
use crate::queue::store::{Answer, Key, Own};

/// How often a directory may vanish while a claim enters it.
const VANISHING: usize = 20;

/// The queue of a name, and the beginnings of the claim's nodes in it.
struct NewEntry {
    queue: String,
    stems: Vec<String>,
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
    if request.names.is_empty() {
        return Err(Fault::new(ErrorKind::Invalid, "a claim needs a name"));
    }
    if matches!(request.mode, Mode::Slots(_)) && layout == ZkLayout::Kazoo {
        let reason =
            "kazoo's semaphore has no order that others could join; use --slots with --zk-layout curator";
        return Err(Fault::new(ErrorKind::Unsupported, reason));
    }
    let stems: Vec<String> =
        parts(layout, request.mode).iter().map(|part| stem(layout, request.id, *part)).collect();
    let each = request.names.iter();
    each.map(|name| Ok(NewEntry { queue: ensemble.queue(name)?, stems: stems.clone() })).collect()
}

/// A new life, closed if the attempt fails or is dropped.
struct Attempt<'a>(Option<&'a Life>);

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if let Some(life) = self.0 {
            life.close();
        }
    }
}

/// Implements [`crate::queue::store::Store::append`] in a new session. `remember` is called with its life.
pub(super) async fn append(
    ensemble: &Arc<Ensemble>,
    request: &Request,
    remember: impl FnOnce(&Arc<Life>),
) -> FaultResult<(Own, Answer)> {
    let entries = new_entries(ensemble, request)?;
    let begun = ensemble.clock.now();
    let link = ensemble.link(request.ttl);
    let session = ensemble.session(&link).await?;
    let client = session.client.clone();
    let life = Arc::new(Life::new(ensemble, request, session, begun));
    remember(&life);
    let mut attempt = Attempt(Some(&life));
    let entered = enter(&life, client, &entries).await;
    let (own, answer) = match entered {
        Ok(entered) => entered,
        Err(fault) => {
            // After a refusal the caller may rely on the claim having no entry.
            drop(attempt);
            life.ended().await;
            return Err(fault);
        }
    };
    attempt.0 = None;
    drop(attempt);
    life.start(link);
    Ok((own, Answer { sent: begun, ..answer }))
}

async fn enter(life: &Life, client: Client, entries: &[NewEntry]) -> FaultResult<(Own, Answer)> {
    let (ensemble, request, granted) = (&*life.ensemble, &life.request, client.session_timeout());
    if granted < LeaseTimes::LEAST_TTL {
        let reason = format!(
            "{} grants sessions of {granted:?} at most; raise its maxSessionTimeout to 1s or more",
            ensemble.config.address(),
        );
        return Err(Fault::new(ErrorKind::Invalid, reason));
    }
    let note = Note::new(Record::of(request, granted)).to_bytes();
    let mut joined = join(ensemble, &client, entries, &note).await;
    while joined.as_ref().is_err_and(|fault| fault.code == LOST) && connected(&client).await {
        joined = match find(&client, entries, request.id).await {
            Ok(None) => join(ensemble, &client, entries, &note).await,
            Ok(Some(found)) => Ok(found),
            Err(fault) => Err(fault),
        };
    }
    let (keys, listed) = joined?;
    let Request { id, names, mode, .. } = request;
    let own = Own { id: *id, names: names.clone(), mode: *mode, ttl: granted, keys };
    let own = life.own.get_or_init(|| own);
    match view::answer(life, &client, own, &listed, 0).await {
        // The entry exists; the next connection reads its queues.
        Err(fault) if fault.code == LOST => {
            drop(client);
            Ok((own.clone(), view::read(life, own).await?))
        }
        answer => Ok((own.clone(), answer?)),
    }
}

/// The keys of the claim's entries, and the children of each queue.
type Joined = (Vec<Key>, Vec<Vec<String>>);

/// Creates the nodes in one step and reads the queues, all in one exchange; in another one if a
/// directory is missing.
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
                let keys = keys(client, entries, results).await?;
                let mut names = Vec::with_capacity(entries.len());
                for answer in listed {
                    names.push(answer.await?);
                }
                return Ok((keys, names));
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
    Err(Fault::new(ErrorKind::Unavailable, "its directory is removed again and again"))
}

/// Finds the nodes of a step with a lost answer: entries with this id that belong to this very session. Nodes of an
/// earlier session are not taken for this claim's own (CURATOR-498).
async fn find(client: &Client, entries: &[NewEntry], id: ClaimId) -> FaultResult<Option<Joined>> {
    let (mut keys, mut listed) = (Vec::new(), Vec::new());
    for entry in entries {
        // This server may lag behind the one that executed the step.
        match client.sync(&entry.queue).await {
            Ok(()) | Err(ZkError::NoNode) => {}
            Err(error) => return Err(error.into()),
        }
        let names = children(client, &entry.queue).await?;
        let of_claim = |found: &ClaimNodes| found.guid() == Some(id);
        let Some(found) = QueueNodes::of(&names).entries.into_iter().rfind(of_claim) else {
            return Ok(None);
        };
        let stat = client.check_stat(&format!("{}/{}", entry.queue, found.record().name)).await?;
        let is_own = |stat: &Stat| stat.ephemeral_owner == client.session_id().0;
        let Some(stat) = stat.filter(is_own).filter(|_| found.nodes.len() == entry.stems.len()) else {
            return Ok(None);
        };
        keys.push(Key { order: stat.czxid.cast_unsigned(), text: found.text() });
        listed.push(names);
    }
    Ok(Some((keys, listed)))
}

/// Returns the keys of the entries that the step created.
async fn keys(
    client: &Client,
    entries: &[NewEntry],
    results: Vec<MultiWriteResult>,
) -> FaultResult<Vec<Key>> {
    let mut created = results.into_iter().filter_map(|result| match result {
        MultiWriteResult::Create { path, stat } => Some((path, stat)),
        _ => None,
    });
    let mut keys = Vec::with_capacity(entries.len());
    for entry in entries {
        let (nodes, stats): (Vec<String>, Vec<Stat>) = created.by_ref().take(entry.stems.len()).unzip();
        let Some(mut stat) = stats.first().copied().filter(|_| nodes.len() == entry.stems.len()) else {
            return Err(Fault::new(ErrorKind::Corrupt, "the server's answer makes no sense"));
        };
        // ZOOKEEPER-4026: older servers omit it in the answer to a step of several parts.
        if stat.is_invalid() {
            stat = client.check_stat(&nodes[0]).await?.ok_or(ZkError::NoNode)?;
        }
        let names = nodes.iter().filter_map(|path| path.rsplit('/').next()).collect::<Vec<_>>();
        keys.push(Key { order: stat.czxid.cast_unsigned(), text: names.join("/") });
    }
    Ok(keys)
}
