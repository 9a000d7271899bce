//! Single requests, by deadlines and with errors that people can read.

use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError, Stat};

use super::ensemble::Ensemble;
use crate::lock::Moment;
use crate::net::fault::FaultResult;

impl Ensemble {
    /// Does `work`, but not longer than the deadline.
    pub(super) async fn by<T>(
        &self,
        deadline: Moment,
        work: impl Future<Output = FaultResult<T>>,
    ) -> FaultResult<T> {
        tokio::select! {
            biased;
            result = work => result.map_err(|fault| self.explain(fault)),
            () = self.clock.sleep_until(deadline) => Err(self.late()),
        }
    }
}

/// Completes when the session has a connection, and says whether it still lives.
pub(super) async fn connected(client: &Client) -> bool {
    let mut watcher = client.state_watcher();
    loop {
        let state = watcher.state();
        if state.is_terminated() {
            return false;
        }
        if state == zookeeper_client::SessionState::SyncConnected {
            return true;
        }
        watcher.changed().await;
    }
}

/// Completes when the session that `watcher` sees is over.
pub(super) async fn ended(mut watcher: zookeeper_client::StateWatcher) {
    while !watcher.state().is_terminated() {
        watcher.changed().await;
    }
}

/// The children of `path`; none if it does not exist. Sent at once, whenever it is awaited.
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

/// The data of each path, or `None` where nothing is; asked for in one exchange. What only another user may read has none.
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

/// Makes `path` and what stands above it, in one exchange; what is there already is left as it is. Says whether the right to make one
/// of them was missing: it may be there all the same.
///
/// Containers, so that the server removes them when nobody uses them any more.
pub(super) async fn make_folders(client: &Client, acls: Acls<'static>, path: &str) -> FaultResult<bool> {
    let mut denied = false;
    for mode in [CreateMode::Container, CreateMode::Persistent] {
        let options = mode.with_acls(acls);
        let ends = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0).chain([path.len()]);
        let paths: Vec<&str> = ends.map(|end| &path[..end]).collect();
        let asked: Vec<_> = paths.iter().map(|path| client.create(path, b"", &options)).collect();
        let mut unknown = false;
        for answer in asked {
            match answer.await {
                // Who may not make a folder may still use it; whether it is there the next request tells.
                Err(ZkError::NoAuth) => denied = true,
                Ok(_) | Err(ZkError::NodeExists | ZkError::NoNode) => {}
                Err(ZkError::Unimplemented) => unknown = true,
                Err(error) => return Err(error.into()),
            }
        }
        if !unknown {
            break;
        }
    }
    Ok(denied)
}
