//! Waiting for changes.

use futures_util::future::{join_all, select_all};
use zookeeper_client::{Client, Error as ZkError, EventType, OneshotWatcher};

use super::ensemble::Ensemble;
use super::fault::{LOST, OVER};
use super::life::Life;
use super::note::Note;
use super::queue::entries;
use crate::lock::LockName;
use crate::net::fault::FaultResult;
use crate::queue::store::{Own, Seen, Target};

/// Completes when the own nodes, the session or a target may have changed.
pub(super) async fn claim(life: &Life, own: &Own, on: &[Target], seen: Seen) -> FaultResult<()> {
    tokio::select! {
        // The watchers of a broken connection must not be used.
        biased;
        () = life.changed(seen) => Ok(()),
        ended = first_of(life, own, on) => match ended {
            // The life reports the next connection, or its end.
            Err(fault) if matches!(fault.code, LOST | OVER) => {
                life.changed(seen).await;
                Ok(())
            }
            ended => ended,
        },
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

/// Completes when the node at `path` is gone, or if `or_holds` when its record has a slot.
async fn end_of(client: &Client, path: String, or_holds: bool) -> FaultResult<()> {
    loop {
        match client.get_and_watch_data(&path).await {
            Ok((data, ..)) if or_holds && Note::parse(&data).is_some_and(|note| note.slot.is_some()) => {
                return Ok(());
            }
            Ok((.., watcher)) => {
                if watcher.changed().await.event_type != EventType::NodeDataChanged {
                    return Ok(());
                }
            }
            Err(ZkError::NoNode) => return Ok(()),
            Err(ZkError::NoAuth) => return moved(client, &path).await,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Completes when the queue of the node at `path` changes. Only the node's user may read it, and servers notify no
/// other user of its end.
async fn moved(client: &Client, path: &str) -> FaultResult<()> {
    let (folder, name) = path.rsplit_once('/').unwrap_or_default();
    let (names, watcher) = client.list_and_watch_children(folder).await?;
    if names.iter().any(|one| one == name) {
        watcher.changed().await;
    }
    Ok(())
}

/// Completes when the queue of `name` may have changed after `seen`, or when the connection breaks. Then the caller
/// uses another session, because a server that has lost its data refuses clients that have seen more than it has.
pub(super) async fn queue(
    ensemble: &Ensemble,
    client: &Client,
    name: &LockName,
    seen: Seen,
) -> FaultResult<()> {
    let path = ensemble.config.queue(name)?;
    let mut state = client.state_watcher();
    let (shows, watchers) = watches(client, &path).await?;
    // The server may lag behind the one that was read. Its own changes then follow.
    if shows > seen || (shows == 0 && seen > 0) {
        return Ok(());
    }
    let changes = watchers.into_iter().map(|watcher| Box::pin(watcher.changed()));
    tokio::select! {
        _ = select_all(changes) => {}
        _ = state.changed() => {}
    }
    Ok(())
}

/// Watches the children of `path`, or its creation, and the records. Returns the latest change of these, too.
async fn watches(client: &Client, path: &str) -> FaultResult<(Seen, Vec<OneshotWatcher>)> {
    loop {
        match client.get_and_watch_children(path).await {
            Ok((names, stat, watcher)) => {
                let (mut seen, mut watchers) = (stat.pzxid, vec![watcher]);
                let paths: Vec<_> =
                    entries(&names).iter().map(|entry| format!("{path}/{}", entry.record().name)).collect();
                // Unlike its data, the state of another user's record is not secret.
                for watched in join_all(paths.iter().map(|path| client.check_and_watch_stat(path))).await {
                    let (stat, watcher) = watched?;
                    seen = seen.max(stat.map_or(0, |stat| stat.mzxid));
                    watchers.push(watcher);
                }
                return Ok((seen.cast_unsigned(), watchers));
            }
            Err(ZkError::NoNode) => {}
            Err(error) => return Err(error.into()),
        }
        let (stat, watcher) = client.check_and_watch_stat(path).await?;
        if stat.is_none() {
            return Ok((0, vec![watcher]));
        }
    }
}
