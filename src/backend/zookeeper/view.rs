//! Entries as their nodes show them, and queues: as the decisions of a claim need them, or whole.

use futures_util::future::try_join_all;
use zookeeper_client::{Client, Error as ZkError, Stat};

use super::config::is_aside;
use super::ensemble::Ensemble;
use super::life::{Life, Shown};
use super::note::{Note, time};
use super::queue::{ClaimNodes, Node, entries};
use crate::backend::record::foreign_claim;
use crate::lock::{ClaimId, Entry, FencingToken, LockName, Mode};
use crate::net::fault::FaultResult;
use crate::queue::store::{About, Answer, Item, Key, Own, Queue, Seen};

/// Returns the children of `path`; none if it does not exist. The request is sent at once, before the future is polled.
pub(super) fn children<'a>(
    client: &'a Client,
    path: &str,
) -> impl Future<Output = std::result::Result<Vec<String>, ZkError>> + Send + use<'a> {
    let listed = client.list_children(path);
    async move {
        match listed.await {
            Err(ZkError::NoNode) => Ok(Vec::new()),
            other => other,
        }
    }
}

/// Reads the data of each path in one exchange; `None` for missing nodes. The data of a node that only another user may
/// read is empty.
pub(super) async fn data_of(client: &Client, paths: &[String]) -> FaultResult<Vec<Option<(Vec<u8>, Stat)>>> {
    let asked: Vec<_> = paths.iter().map(|path| client.get_data(path)).collect();
    let mut found = Vec::with_capacity(asked.len());
    for (path, answer) in paths.iter().zip(asked) {
        found.push(match answer.await {
            Ok(data) => Some(data),
            Err(ZkError::NoNode) => None,
            Err(ZkError::NoAuth) => client.check_stat(path).await?.map(|stat| (Vec::new(), stat)),
            Err(error) => return Err(error.into()),
        });
    }
    Ok(found)
}

/// Returns an entry without its description, which may be another program's.
fn bare(at: usize, nodes: &ClaimNodes) -> Item {
    Item {
        at,
        key: Key { order: 0, text: nodes.text() },
        id: nodes.record().guid.unwrap_or(ClaimId::from_number(0)),
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
        None => About::foreign(name, stranger(), format!("node {path}")),
    };
    let waited = note.as_ref().and_then(|note| note.waited_ms);
    let entry = Entry { mode: Some(nodes.mode()), since, ..about.entry };
    let about = About { held_since: waited.map(|waited| time(stat, waited)), entry, ..about };
    Item {
        key: Key { order: stat.czxid.cast_unsigned(), text: nodes.text() },
        id: about.entry.claim.unwrap_or_else(stranger),
        foreign: note.is_none(),
        slot: note.as_ref().and_then(|note| note.slot),
        token: FencingToken::new(stat.czxid.cast_unsigned()),
        about: Some(Box::new(about)),
        ..bare(at, nodes)
    }
}

/// Returns whether a decision on `own`, which is at `own_at`, needs the record of the entry `at`: the first one is
/// shown to its waiters, those with slots have their slots in it, and one of another kind may be another program's.
fn matters(own: &Own, own_at: usize, at: usize, nodes: &ClaimNodes) -> bool {
    let may_have_slot = matches!(own.mode, Mode::Slots(n) if usize::try_from(n.get()).is_ok_and(|n| at < n));
    may_have_slot || (at < own_at && (at == 0 || !nodes.mode().mixes_with(own.mode)))
}

/// Returns the answer that shows the queues of `own`, for which `listed` are the names of the children.
pub(super) async fn answer(
    life: &Life,
    client: &Client,
    own: &Own,
    listed: &[Vec<String>],
    seen: Seen,
) -> FaultResult<Answer> {
    let (sent, ensemble) = (life.ensemble.clock.now(), &*life.ensemble);
    let mut shown = Shown { seen, ..Shown::default() };
    for ((name, key), names) in own.names.iter().zip(&own.keys).zip(listed) {
        let (path, mut nodes) = (ensemble.config.queue(name)?, entries(names));
        // An earlier attempt of the same claim left them, and the claim would wait for itself.
        let is_older = |entry: &ClaimNodes| entry.record().guid == Some(own.id) && entry.text() != key.text;
        for older in nodes.iter().filter(|entry| is_older(entry)).flat_map(|entry| &entry.nodes) {
            // If this fails, the next read removes it, or the end of the session does.
            drop(client.delete(&format!("{path}/{}", older.name), None));
        }
        nodes.retain(|entry| !is_older(entry));
        let own_at = nodes.iter().position(|entry| entry.text() == key.text).unwrap_or(0);
        let needed = nodes.iter().enumerate().filter(|(at, entry)| matters(own, own_at, *at, entry));
        let wanted: Vec<_> = needed.map(|(_, entry)| format!("{path}/{}", entry.record().name)).collect();
        let mut found = data_of(client, &wanted).await?.into_iter();
        let mut items = Vec::with_capacity(nodes.len());
        for (at, entry) in nodes.iter().enumerate() {
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
    let queues = shown.queues.clone();
    *life.shown() = shown;
    Ok(Answer { queues, note: life.note(), sent, seen })
}

/// Reads the queues of `own` in its session.
pub(super) async fn read(life: &Life, own: &Own) -> FaultResult<Answer> {
    let sent = life.ensemble.clock.now();
    let answer = life.ask(|client| async move {
        let seen = life.seen();
        let queues = life.queues();
        let listed = try_join_all(queues.iter().map(|path| children(&client, path))).await?;
        answer(life, &client, own, &listed, seen).await
    });
    Ok(answer.await?.unwrap_or_else(|| life.bare_answer(sent)))
}

/// Returns the queue of `name` at `path` from the names of its nodes, and the latest change of a record. Entries that
/// have gone meanwhile are left out.
async fn queue(client: &Client, name: &LockName, path: &str, names: &[String]) -> FaultResult<(Queue, Seen)> {
    let nodes = entries(names);
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
    // Sent along with the first read.
    let synced = client.sync("/");
    for name in names {
        let path = ensemble.config.queue(name)?;
        let (children, changed) = match client.get_children(&path).await {
            Ok((children, stat)) => (children, stat.pzxid.cast_unsigned()),
            Err(ZkError::NoNode) => (Vec::new(), 0),
            Err(error) => return Err(error.into()),
        };
        let (queue, latest) = queue(client, name, &path, &children).await?;
        seen = seen.max(changed).max(latest);
        queues.push(queue);
    }
    synced.await?;
    Ok(Answer { queues, note: None, sent, seen })
}

/// Returns the queues with entries and with names that start with `prefix`, by name.
pub(super) async fn list(ensemble: &Ensemble, client: &Client, prefix: &str) -> FaultResult<Vec<Queue>> {
    let config = &ensemble.config;
    let (mut found, mut left) = (Vec::new(), vec![config.folder()]);
    while let Some(path) = left.pop() {
        let names = children(client, if path.is_empty() { "/" } else { &path }).await?;
        if let Some(name) = config.name(&path).filter(|name| name.as_str().starts_with(prefix)) {
            let (queue, _) = queue(client, &name, &path, &names).await?;
            found.extend(Some(queue).filter(|queue| !queue.items.is_empty()));
        }
        // Without a prefix all queues are direct children of the directory.
        if config.prefix.is_some() || path == config.folder() {
            left.extend(
                names.iter().filter(|name| goes_on(&path, name)).map(|name| format!("{path}/{name}")),
            );
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Returns whether a child of `folder` may be a queue or contain queues. It excludes dlock's own node next to the
/// queues, the service's own nodes, and nodes in a queue.
fn goes_on(folder: &str, name: &str) -> bool {
    let own = is_aside(name) || (folder.is_empty() && name == "zookeeper");
    !own && Node::parse(name).is_none()
}
