//! Listing all queues of a configuration.

use zookeeper_client::Client;

use super::ensemble::Ensemble;
use super::paths::is_aside;
use super::queue::QueueNodes;
use super::snapshot::{self, Seen};
use super::wire::children;
use crate::lock::LockName;
use crate::net::fault::FaultResult;

/// A queue that is not empty.
pub(super) struct NamedQueue {
    pub(super) name: LockName,
    pub(super) entries: Vec<Seen>,
}

/// Returns the queues with entries and with names that start with `prefix`, by name.
pub(super) async fn queues(
    ensemble: &Ensemble,
    client: &Client,
    prefix: &str,
) -> FaultResult<Vec<NamedQueue>> {
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
            let Some(name) = ensemble.paths.name(&path).filter(|name| name.as_str().starts_with(prefix))
            else {
                if !ensemble.paths.is_flat() && !listed.is_empty() {
                    folders.push(path);
                }
                continue;
            };
            let entries = snapshot::entries(client, &path, QueueNodes::of(&listed)).await?;
            if !entries.is_empty() {
                found.push(NamedQueue { name, entries });
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
