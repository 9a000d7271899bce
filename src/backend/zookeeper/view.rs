//! Entries as their nodes show them, and queues: as the decisions of a claim need them, or whole.

use std::num::NonZeroU32;

use zookeeper_client::{Client, Error as ZkError, Stat};

use super::ensemble::Ensemble;
use super::life::{Life, Shown};
use super::node::Node;
use super::note::{Note, called, time, token};
use super::paths::is_aside;
use super::queue::{ClaimNodes, QueueNodes};
use super::wire::{children, data_of};
use crate::backend::record::foreign_claim;
use crate::lock::{ClaimId, Entry, FencingToken, LockName, Mode};
use crate::net::fault::FaultResult;
use crate::queue::store::{About, Answer, Item, Key, Own, Queue, Seen};

/// Returns an entry without its description, which may be another program's.
fn bare(at: usize, nodes: &ClaimNodes) -> Item {
    Item {
        at,
        key: Key { order: 0, text: nodes.text() },
        id: nodes.guid().unwrap_or(ClaimId::from_number(0)),
        foreign: true,
        mode: Some(nodes.mode()),
        slot: None,
        token: None,
        left: None,
        about: None,
    }
}

/// Returns an entry in the queue of `name` at `queue`, with its description. `data` and `stat` are those of its record.
/// An entry whose record this client cannot read is another program's.
fn item(name: &LockName, queue: &str, at: usize, nodes: &ClaimNodes, (data, stat): &(Vec<u8>, Stat)) -> Item {
    let (note, path) = (Note::parse(data), format!("{queue}/{}", nodes.record().name));
    // No other node has its path and creating transaction.
    let stranger = || foreign_claim([path.as_bytes(), &stat.czxid.to_be_bytes()]);
    let since = Some(time(stat, 0));
    let about = match &note {
        Some(note) => About::of(&note.record, name, since),
        None => About::foreign(name, stranger(), called(&path)),
    };
    let waited = note.as_ref().and_then(|note| note.waited_ms);
    let entry = Entry { mode: Some(nodes.mode()), since, ..about.entry };
    let about = About { held_since: waited.map(|waited| time(stat, waited)), entry, ..about };
    Item {
        key: Key { order: stat.czxid.cast_unsigned(), text: nodes.text() },
        id: about.entry.claim.unwrap_or_else(stranger),
        foreign: note.is_none(),
        slot: note.as_ref().and_then(|note| note.slot),
        token: token(stat),
        about: Some(Box::new(about)),
        ..bare(at, nodes)
    }
}

fn number(n: NonZeroU32) -> usize {
    usize::try_from(n.get()).unwrap_or(usize::MAX)
}

/// Returns whether a decision on `own`, which is at `own_at`, needs the record of the entry `at`: the first one is
/// shown to its waiters, those with slots have their slots in it, and one of another kind may be another program's.
fn matters(own: &Own, own_at: usize, at: usize, nodes: &ClaimNodes) -> bool {
    let may_have_slot = matches!(own.mode, Mode::Slots(n) if at < number(n));
    may_have_slot || (at < own_at && (at == 0 || !nodes.mode().mixes_with(own.mode)))
}

/// Returns the queues of `own` from the names of their children. Removes nodes that an earlier attempt of the claim
/// left in them, for which it would wait.
pub(super) async fn shown(
    ensemble: &Ensemble,
    client: &Client,
    own: &Own,
    listed: &[Vec<String>],
) -> FaultResult<Shown> {
    let (mut each, mut wanted) = (Vec::new(), Vec::new());
    for ((name, key), names) in own.names.iter().zip(&own.keys).zip(listed) {
        let (path, mut nodes) = (ensemble.queue(name)?, QueueNodes::of(names));
        for older in nodes.take_older_selves(own.id, &key.text) {
            // If this fails, the next read removes it, or the end of the session does.
            drop(client.delete(&format!("{path}/{}", older.name), None));
        }
        let own_at = nodes.entries.iter().position(|entry| entry.text() == key.text).unwrap_or(0);
        let needed = nodes.entries.iter().enumerate().filter(|(at, entry)| matters(own, own_at, *at, entry));
        wanted.extend(needed.map(|(_, entry)| format!("{path}/{}", entry.record().name)));
        each.push((name, key, path, nodes, own_at));
    }
    let mut found = data_of(client, &wanted).await?.into_iter();
    let mut shown = Shown::default();
    for (name, key, path, nodes, own_at) in each {
        let mut items = Vec::with_capacity(nodes.entries.len());
        for (at, entry) in nodes.entries.iter().enumerate() {
            let data = if matters(own, own_at, at, entry) { found.next().flatten() } else { None };
            let is_own = entry.text() == key.text;
            let read = match &data {
                Some(data) => item(name, &path, at, entry, data),
                None => bare(at, entry),
            };
            if !is_own {
                items.push(read);
                continue;
            }
            if let Some((data, stat)) = &data {
                // Another program has overwritten the record, which ends the claim.
                let Some(note) = Note::parse(data) else { continue };
                shown.records.push((format!("{path}/{}", entry.record().name), note, stat.version));
            }
            let token = FencingToken::new(key.order);
            items.push(Item { key: key.clone(), id: own.id, foreign: false, token, ..read });
        }
        shown.queues.push(Queue { name: name.clone(), items });
    }
    Ok(shown)
}

/// Returns the answer that shows the queues of `own`, for which `listed` are the names of the children.
pub(super) async fn answer(
    life: &Life,
    client: &Client,
    own: &Own,
    listed: &[Vec<String>],
    seen: Seen,
) -> FaultResult<Answer> {
    let sent = life.ensemble.clock.now();
    let shown = Shown { seen, ..shown(&life.ensemble, client, own, listed).await? };
    let queues = shown.queues.clone();
    *life.shown() = shown;
    Ok(Answer { queues, note: life.note(), sent, seen })
}

/// Reads the queues of `own` in its session.
pub(super) async fn read(life: &Life, own: &Own) -> FaultResult<Answer> {
    let sent = life.ensemble.clock.now();
    let answer = life.ask(|client| async move {
        let seen = life.seen();
        let paths =
            own.names.iter().map(|name| life.ensemble.queue(name)).collect::<FaultResult<Vec<_>>>()?;
        let asked: Vec<_> = paths.iter().map(|path| children(&client, path)).collect();
        let mut listed = Vec::with_capacity(asked.len());
        for names in asked {
            listed.push(names.await?);
        }
        answer(life, &client, own, &listed, seen).await
    });
    Ok(answer.await?.unwrap_or_else(|| life.bare_answer(sent)))
}

/// Returns the queue of `name` at `path` from the names of its nodes, and the latest change of a record. Entries that
/// have gone meanwhile are left out.
async fn queue(client: &Client, name: &LockName, path: &str, names: &[String]) -> FaultResult<(Queue, Seen)> {
    let nodes = QueueNodes::of(names).entries;
    let paths: Vec<String> = nodes.iter().map(|entry| format!("{path}/{}", entry.record().name)).collect();
    let (mut items, mut seen) = (Vec::with_capacity(paths.len()), 0);
    for (entry, data) in nodes.iter().zip(data_of(client, &paths).await?) {
        if let Some(data) = data {
            seen = seen.max(data.1.mzxid.cast_unsigned());
            items.push(item(name, path, items.len(), entry, &data));
        }
    }
    Ok((Queue { name: name.clone(), items }, seen))
}

/// Reads queues. The server first catches up with the others.
pub(super) async fn read_whole(
    ensemble: &Ensemble,
    client: &Client,
    names: &[LockName],
) -> FaultResult<Answer> {
    let (sent, mut seen, mut queues) = (ensemble.clock.now(), 0, Vec::with_capacity(names.len()));
    for name in names {
        let path = ensemble.queue(name)?;
        let (synced, listed) = (client.sync(&path), client.get_children(&path));
        match synced.await {
            Ok(()) | Err(ZkError::NoNode) => {}
            Err(error) => return Err(error.into()),
        }
        let (children, changed) = match listed.await {
            Ok((children, stat)) => (children, stat.pzxid.cast_unsigned()),
            Err(ZkError::NoNode) => (Vec::new(), 0),
            Err(error) => return Err(error.into()),
        };
        let (queue, latest) = queue(client, name, &path, &children).await?;
        seen = seen.max(changed).max(latest);
        queues.push(queue);
    }
    Ok(Answer { queues, note: None, sent, seen })
}

/// Returns the queues with entries and with names that start with `prefix`, by name.
pub(super) async fn list(ensemble: &Ensemble, client: &Client, prefix: &str) -> FaultResult<Vec<Queue>> {
    let mut found = Vec::new();
    let mut folders = vec![ensemble.paths.folder()];
    while !folders.is_empty() {
        let listed: Vec<_> = folders.iter().map(|folder| children(client, or_root(folder))).collect();
        let mut below = Vec::new();
        for (folder, listed) in std::mem::take(&mut folders).into_iter().zip(listed) {
            let names = listed.await?;
            below.extend(names.iter().filter(|name| goes_on(&folder, name)).map(|n| format!("{folder}/{n}")));
        }
        let asked: Vec<_> = below.iter().map(|path| children(client, path)).collect();
        for (path, listed) in below.into_iter().zip(asked) {
            let listed = listed.await?;
            let name = ensemble.paths.name(&path).filter(|name| name.as_str().starts_with(prefix));
            if let Some(name) = name {
                let (queue, _) = queue(client, &name, &path, &listed).await?;
                found.extend(Some(queue).filter(|queue| !queue.items.is_empty()));
            }
            if !ensemble.paths.is_flat() && !listed.is_empty() {
                folders.push(path);
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn or_root(folder: &str) -> &str {
    if folder.is_empty() { "/" } else { folder }
}

/// Returns whether a child of `folder` may be a queue or contain queues. It excludes dlock's own node next to the
/// queues, the service's own nodes, and nodes in a queue.
fn goes_on(folder: &str, name: &str) -> bool {
    let own = is_aside(name) || (folder.is_empty() && name == "zookeeper");
    !own && Node::parse(name).is_none()
}
