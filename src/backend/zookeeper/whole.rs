//! Whole queues, for display and for decisions on other claims.

use zookeeper_client::{Client, Error as ZkError};

use super::ensemble::Ensemble;
use super::paths::is_aside;
use super::queue::QueueNodes;
use super::view::item;
use super::wire::{children, data_of};
use crate::lock::LockName;
use crate::net::fault::FaultResult;
use crate::queue::store::{Answer, Queue, Seen};

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
pub(super) async fn read(ensemble: &Ensemble, client: &Client, names: &[LockName]) -> FaultResult<Answer> {
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
    !own && super::node::Node::parse(name).is_none()
}
