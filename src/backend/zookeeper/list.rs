//! All lines of a configuration.

use zookeeper_client::Client;

use super::paths::is_aside;
use super::sight::{Seen, Sight};
use super::wire::{Door, Outcome, children};
use crate::lock::LockName;

/// A line that is not empty.
pub(super) struct Found {
    pub(super) name: LockName,
    pub(super) entries: Vec<Seen>,
}

/// The lines with entries whose names start with `prefix`, by name.
pub(super) async fn lines(door: &Door, client: &Client, prefix: &str) -> Outcome<Vec<Found>> {
    let mut found = Vec::new();
    let mut folders = vec![door.paths.folder()];
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
            let Some(name) = door.paths.name(&path).filter(|name| name.as_str().starts_with(prefix)) else {
                if !door.paths.is_flat() && !listed.is_empty() {
                    folders.push(path);
                }
                continue;
            };
            let sight = Sight::complete(client, &path, &listed).await?;
            let entries = sight.entries(client, &path).await?;
            if !entries.is_empty() {
                found.push(Found { name, entries });
            }
            if !door.paths.is_flat() && !listed.is_empty() {
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

/// Whether a child of `folder` may be a line or have lines below it: not what is kept beside them, not what the
/// service keeps for itself, and no node of a line.
fn goes_on(folder: &str, name: &str) -> bool {
    let own = is_aside(name) || (folder.is_empty() && name == "zookeeper");
    !own && super::node::Node::parse(name).is_none()
}
