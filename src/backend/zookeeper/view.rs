//! Entries as their nodes show them, and queues: as the decisions of a claim need them, or whole.

use std::time::{Duration, UNIX_EPOCH};

use futures_util::future::try_join_all;
use zookeeper_client::{Client, Error as ZkError, Stat};

use super::config::{ZkConfig, is_aside};
use super::ensemble::Ensemble;
use super::life::Life;
use super::queue::{ClaimNodes, Node, Note, entries};
use crate::backend::record::foreign_claim;
use crate::lock::{ClaimId, FencingToken, LockName, Mode};
use crate::net::fault::FaultResult;
use crate::queue::store::{About, Answer, Item, Key, Own, Queue, Seen};

/// The names of the nodes in a queue, and the latest change of them.
pub(super) type Children = (Vec<String>, Seen);

/// Returns the children of `path`; none if it does not exist.
pub(super) async fn children(client: &Client, path: &str) -> FaultResult<Children> {
    match client.get_children(path).await {
        Ok((names, stat)) => Ok((names, stat.pzxid.cast_unsigned())),
        Err(ZkError::NoNode) => Ok((Vec::new(), 0)),
        Err(error) => Err(error.into()),
    }
}

/// Reads the data of the node at `path`; `None` if it does not exist. The data of a node that only another user may read
/// is empty.
pub(super) async fn data_of(client: &Client, path: &str) -> FaultResult<Option<(Vec<u8>, Stat)>> {
    match client.get_data(path).await {
        Ok(data) => Ok(Some(data)),
        Err(ZkError::NoNode) => Ok(None),
        Err(ZkError::NoAuth) => Ok(client.check_stat(path).await?.map(|stat| (Vec::new(), stat))),
        Err(error) => Err(error.into()),
    }
}

/// Returns an entry in the queue of `name`, with its description if `found` are the data and the state of its record at
/// `path`. An entry whose record this client cannot read is another program's.
fn item(name: &LockName, path: &str, at: usize, nodes: &ClaimNodes, found: Option<&(Vec<u8>, Stat)>) -> Item {
    let mut item = Item {
        at,
        key: Key { order: 0, text: nodes.text() },
        id: nodes.record().claim.unwrap_or(ClaimId::from_number(0)),
        foreign: true,
        mode: Some(nodes.mode()),
        slot: None,
        token: None,
        left: None,
        about: None,
    };
    let Some((data, stat)) = found else { return item };
    let since = UNIX_EPOCH + Duration::from_millis(u64::try_from(stat.ctime).unwrap_or_default());
    let mut about = if let Some(note) = Note::parse(data) {
        (item.foreign, item.slot) = (false, note.slot);
        let waited = note.waited_ms.map(Duration::from_millis);
        let held_since = waited.and_then(|waited| since.checked_add(waited));
        About { held_since, ..About::of(&note.record, name, None) }
    } else {
        // No other node has its path and creating transaction.
        let stranger = foreign_claim([path.as_bytes(), &stat.czxid.to_be_bytes()]);
        About::foreign(name, stranger, format!("node {path}"))
    };
    (about.entry.mode, about.entry.since) = (item.mode, Some(since));
    item.id = about.entry.claim.unwrap_or(item.id);
    item.key.order = stat.czxid.cast_unsigned();
    item.token = FencingToken::new(item.key.order);
    item.about = Some(Box::new(about));
    item
}

/// Returns whether a decision on `own`, which is at `own_at`, needs the record of the entry `at`: the first one is
/// shown to its waiters, those with slots have their slots in it, and one of another kind may be another program's.
fn matters(own: &Own, own_at: usize, at: usize, nodes: &ClaimNodes) -> bool {
    let may_have_slot = matches!(own.mode, Mode::Slots(n) if usize::try_from(n.get()).is_ok_and(|n| at < n));
    may_have_slot || (at < own_at && (at == 0 || !nodes.mode().mixes_with(own.mode)))
}

/// Returns the queue of `name` from the `names` of its nodes, and the latest change of a record: whole, or what a
/// decision on `own` with that key needs. Entries that have gone meanwhile are left out.
async fn queue(
    config: &ZkConfig,
    client: &Client,
    name: &LockName,
    names: &[String],
    own: Option<(&Own, &Key)>,
) -> FaultResult<(Queue, Seen)> {
    let (path, mut nodes) = (config.queue(name)?, entries(names));
    let is_own = |entry: &ClaimNodes| own.is_some_and(|(_, key)| entry.text() == key.text);
    if let Some((own, _)) = own {
        // An earlier attempt of the same claim left them, and the claim would wait for itself.
        let is_older = |entry: &mut ClaimNodes| entry.record().claim == Some(own.id) && !is_own(entry);
        for older in nodes.extract_if(.., is_older).flat_map(|entry| entry.nodes) {
            // If this fails, the next read removes it, or the end of the session does.
            drop(client.delete(&format!("{path}/{}", older.name), None));
        }
    }
    let own_at = nodes.iter().position(is_own).unwrap_or(0);
    let each = nodes.iter().enumerate().map(|(at, entry)| {
        let path = format!("{path}/{}", entry.record().name);
        let is_read = own.is_none_or(|(own, _)| matters(own, own_at, at, entry));
        async move {
            let found = if is_read { data_of(client, &path).await? } else { None };
            let is_gone = is_read && found.is_none();
            FaultResult::Ok((!is_gone).then_some((entry, path, found)))
        }
    });
    let (mut items, mut seen) = (Vec::with_capacity(nodes.len()), 0);
    for (entry, path, found) in try_join_all(each).await?.into_iter().flatten() {
        seen = seen.max(found.as_ref().map_or(0, |(_, stat)| stat.mzxid.cast_unsigned()));
        let item = item(name, &path, items.len(), entry, found.as_ref());
        items.push(match own.filter(|_| is_own(entry)) {
            Some((own, key)) => {
                let token = FencingToken::new(key.order);
                Item { key: key.clone(), id: own.id, foreign: false, token, ..item }
            }
            None => item,
        });
    }
    Ok((Queue { name: name.clone(), items }, seen))
}

/// Reads the queues of `own` in its session. `listed` are the names of their nodes, if they came with the own entry.
pub(super) async fn read(life: &Life, own: &Own, listed: Option<&[Children]>) -> FaultResult<Answer> {
    let (sent, config) = (life.ensemble.clock.now(), &life.ensemble.config);
    let answer = life.ask(|client| async move {
        let (seen, client) = (if listed.is_some() { 0 } else { life.seen() }, &client);
        let each = own.names.iter().zip(&own.keys).enumerate().map(|(at, (name, key))| async move {
            let (names, _) = match listed {
                Some(listed) => listed[at].clone(),
                None => children(client, &config.queue(name)?).await?,
            };
            queue(config, client, name, &names, Some((own, key))).await
        });
        let queues = try_join_all(each).await?.into_iter().map(|(queue, _)| queue).collect();
        Ok(Answer { queues, seen, ..life.bare_answer(sent) })
    });
    Ok(answer.await?.unwrap_or_else(|| life.bare_answer(sent)))
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
        let (names, changed) = children(client, &ensemble.config.queue(name)?).await?;
        let (queue, latest) = queue(&ensemble.config, client, name, &names, None).await?;
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
        let (names, _) = children(client, if path.is_empty() { "/" } else { &path }).await?;
        let name = config.name(&path).filter(|name| name.as_str().starts_with(prefix));
        if let Some(name) = name.filter(|name| config.queue(name).is_ok()) {
            let (queue, _) = queue(config, client, &name, &names, None).await?;
            found.extend(Some(queue).filter(|queue| !queue.items.is_empty()));
        }
        // Without a prefix all queues are direct children of the directory.
        if config.prefix.is_some() || path == config.folder() {
            // In the directory itself are queues only, whatever their names end in.
            let is_queue = |name: &str| path == config.folder() || Node::parse(name).is_none();
            let further = names.iter().filter(|name| !is_aside(name) && is_queue(name));
            left.extend(further.map(|name| format!("{path}/{name}")));
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}
