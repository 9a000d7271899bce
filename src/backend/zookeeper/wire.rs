//! Single requests, with deadlines and readable errors.

use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError, Stat};

use super::ensemble::Ensemble;
use crate::lock::Moment;
use crate::net::fault::FaultResult;

impl Ensemble {
    /// Runs `work` until the deadline.
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

/// Completes when the session has a connection or is over. Returns whether it still lives.
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

/// Completes when the session of `watcher` is over.
pub(super) async fn ended(mut watcher: zookeeper_client::StateWatcher) {
    while !watcher.state().is_terminated() {
        watcher.changed().await;
    }
}

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

/// Creates `path` and its ancestors in one exchange; existing nodes remain unchanged. Returns whether the right to
/// create one was missing; it may exist nevertheless.
///
/// Containers, so that the server removes them when they are unused.
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
                // Without the right to create it, this user may still use the directory. The next request shows whether it
                // exists.
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
