//! Waiting for changes.

use futures_util::future::{select_all, try_join_all};
use zookeeper_client::{Client, Error as ZkError};

use super::config::ZkConfig;
use super::life::Life;
use super::queue::{Note, entries};
use crate::lock::LockName;
use crate::net::fault::FaultResult;
use crate::queue::store::{Own, Seen, Target};

/// Completes when the own nodes, the session or a target may have changed.
pub(super) async fn claim(life: &Life, own: &Own, on: &[Target], seen: Seen) -> FaultResult<()> {
    tokio::select! {
        // The watchers of a broken connection must not be used.
        biased;
        () = life.changed(seen) => Ok(()),
        ended = first_of(life, own, on) => ended,
    }
}

/// Completes when one of the targets may have ended.
async fn first_of(life: &Life, own: &Own, on: &[Target]) -> FaultResult<()> {
    let Some(session) = life.up().filter(|_| !on.is_empty()) else { return std::future::pending().await };
    let mut each = Vec::new();
    for Target { name, key, or_holds } in on {
        let mut nodes = life.ensemble.config.nodes(&own.names[*name], key)?;
        // The data of a second node never changes.
        let node = if *or_holds { nodes.swap_remove(0) } else { nodes.pop().unwrap_or_default() };
        each.push(Box::pin(end_of(&session.client, node, *or_holds)));
    }
    select_all(each).await.0
}

/// Completes when the node at `path` is gone or has changed, or if `or_holds` when its record has a slot.
async fn end_of(client: &Client, path: String, or_holds: bool) -> FaultResult<()> {
    match client.get_and_watch_data(&path).await {
        Ok((data, ..)) if or_holds && Note::parse(&data).is_some_and(|note| note.slot.is_some()) => {}
        Ok((.., watcher)) => drop(watcher.changed().await),
        Err(ZkError::NoNode) => {}
        // Only the node's user may read it, and servers notify no other user of its end.
        Err(ZkError::NoAuth) => {
            let (folder, name) = path.rsplit_once('/').unwrap_or_default();
            let (names, watcher) = client.list_and_watch_children(folder).await?;
            if names.iter().any(|one| one == name) {
                watcher.changed().await;
            }
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Completes when the queue of `name` may have changed after `seen`, or when the connection breaks. Then the caller
/// uses another session, because a server that has lost its data refuses clients that have seen more than it has.
pub(super) async fn queue(
    config: &ZkConfig,
    client: &Client,
    name: &LockName,
    seen: Seen,
) -> FaultResult<()> {
    let path = config.queue(name)?;
    let mut state = client.state_watcher();
    let (shows, watchers) = match client.get_and_watch_children(&path).await {
        Ok((names, stat, watcher)) => {
            let (mut shows, mut watchers) = (stat.pzxid, vec![watcher]);
            let entries = entries(&names);
            let records = entries.iter().map(|entry| format!("{path}/{}", entry.record().name));
            // Unlike its data, the state of another user's record is not secret.
            let asked = records.map(|path| async move { client.check_and_watch_stat(&path).await });
            for (stat, watcher) in try_join_all(asked).await? {
                shows = shows.max(stat.map_or(0, |stat| stat.mzxid));
                watchers.push(watcher);
            }
            (shows, watchers)
        }
        Err(ZkError::NoNode) => {
            let (stat, watcher) = client.check_and_watch_stat(&path).await?;
            // It may have been created meanwhile.
            (stat.map_or(0, |stat| stat.czxid), vec![watcher])
        }
        Err(error) => return Err(error.into()),
    };
    // The server may lag behind the one that was read. Its own changes then follow.
    if shows.cast_unsigned() > seen || (shows == 0 && seen > 0) {
        return Ok(());
    }
    let changes = watchers.into_iter().map(|watcher| Box::pin(watcher.changed()));
    tokio::select! {
        _ = select_all(changes) => {}
        _ = state.changed() => {}
    }
    Ok(())
}
