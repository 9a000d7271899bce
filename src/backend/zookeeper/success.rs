//! What is remembered of successful runs, on the server's clock.

use std::pin::Pin;
use std::time::Duration;

use zookeeper_client::{Client, CreateMode, Error as ZkError, MultiWriteError};

use super::ensemble::Ensemble;
use super::fault::FaultResult;
use super::shared::{Memory, Shared};
use super::wire::make_folders;
use crate::lock::Mode;

type Looking = Pin<Box<dyn Future<Output = Memory> + Send>>;

/// Looks what there is. Sent at once, whenever it is awaited.
pub(super) fn look<'a>(
    ensemble: &Ensemble,
    client: &Client,
    queues: impl Iterator<Item = &'a str>,
) -> Looking {
    let folder = client.check_stat(&ensemble.paths.aside());
    let asked: Vec<_> = queues.map(|queue| client.check_stat(&ensemble.paths.success(queue))).collect();
    Box::pin(async move {
        let folder = matches!(folder.await, Ok(Some(_)));
        let mut nodes = true;
        for answer in asked {
            nodes &= matches!(answer.await, Ok(Some(_)));
        }
        Memory { folder, nodes }
    })
}

/// Looks once more, for a claim that has waited.
pub(super) async fn prepare(shared: &Shared, client: &Client) {
    let own = shared.own();
    let found = look(&shared.ensemble, client, own.iter().map(|own| own.queue.as_str()));
    shared.set_memory(found.await);
}

fn paths(shared: &Shared) -> Vec<String> {
    shared.own().iter().map(|own| shared.ensemble.paths.success(&own.queue)).collect()
}

/// How long the claim holds. The time of a write is the server's; how long before it the hold began is a length,
/// which every clock measures alike.
fn held(shared: &Shared) -> Option<String> {
    let since = shared.publisher.held_at()?;
    Some(shared.ensemble.clock.now().since(since).as_millis().to_string())
}

/// Whether a success was written; an answer on its way.
pub(super) type Answer = Pin<Box<dyn Future<Output = bool> + Send>>;

/// Sends that a run which acquired with this claim was a success, ahead of what is sent next in the session, and
/// leaves the answers for later.
pub(super) fn send(shared: &Shared) -> Option<Vec<Answer>> {
    let (client, held, memory) = (shared.client()?, held(shared)?, shared.memory());
    let acls = shared.ensemble.acls();
    let mut answers: Vec<Answer> = Vec::new();
    for own in shared.own() {
        let path = shared.ensemble.paths.success(&own.queue);
        if !memory.nodes {
            // What is there already is left as it is; what follows shows whether this was enough.
            if !memory.folder {
                let container = CreateMode::Container.with_acls(acls);
                drop(client.create(&shared.ensemble.paths.aside(), b"", &container));
            }
            drop(client.create(&path, held.as_bytes(), &CreateMode::Persistent.with_acls(acls)));
            if shared.request.mode == Mode::Exclusive {
                // Nobody else held meanwhile, so that what was written since the claim was made it has written.
                let since = own.token.get();
                let found = client.check_stat(&path);
                answers.push(Box::pin(async move {
                    matches!(found.await, Ok(Some(stat)) if u64::try_from(stat.mzxid).is_ok_and(|at| at > since))
                }));
                continue;
            }
        }
        let set = client.set_data(&path, held.as_bytes(), None);
        answers.push(Box::pin(async move { set.await.is_ok() }));
    }
    Some(answers)
}

/// Removes the claim's nodes and writes that its run was a success, in one step, which the server keeps with one write
/// of its log. Whether it came about: what is missing, or is there already, is another matter.
pub(super) async fn leave(shared: &Shared, client: &Client) -> bool {
    let (Some(held), memory) = (held(shared), shared.memory()) else { return false };
    if !memory.folder && !memory.nodes {
        return false;
    }
    let options = CreateMode::Persistent.with_acls(shared.ensemble.acls());
    let mut step = client.new_multi_writer();
    for own in shared.own() {
        let path = shared.ensemble.paths.success(&own.queue);
        let removed = own.all().all(|node| step.add_delete(&node, None).is_ok());
        let written = if memory.nodes {
            step.add_set_data(&path, held.as_bytes(), None)
        } else {
            step.add_create(&path, held.as_bytes(), &options)
        };
        if !removed || written.is_err() {
            return false;
        }
    }
    step.commit().await.is_ok()
}

/// Remembers it in a session of its own, after the claim's is gone.
pub(super) async fn record(shared: &Shared) -> FaultResult<()> {
    let Some(held) = held(shared) else { return Ok(()) };
    let client = shared.ensemble.connect(Duration::from_secs(10)).await?;
    for path in paths(shared) {
        write(&shared.ensemble, &client, &path, held.as_bytes()).await?;
    }
    Ok(())
}

async fn write(ensemble: &Ensemble, client: &Client, path: &str, data: &[u8]) -> FaultResult<()> {
    let options = CreateMode::Persistent.with_acls(ensemble.acls());
    loop {
        match client.set_data(path, data, None).await {
            Ok(_) => return Ok(()),
            Err(ZkError::NoNode) => {}
            Err(error) => return Err(error.into()),
        }
        match client.create(path, data, &options).await {
            Ok(_) => return Ok(()),
            Err(ZkError::NoNode) => {
                make_folders(client, ensemble.acls(), &ensemble.paths.aside()).await?;
            }
            Err(ZkError::NodeExists) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// How long ago the last successful run under `queue` acquired: the server's time now is that of a node made now
/// and gone in the same step.
pub(super) async fn last(ensemble: &Ensemble, client: &Client, queue: &str) -> FaultResult<Option<Duration>> {
    let path = ensemble.paths.success(queue);
    client.sync(&path).await.or_else(|error| if error == ZkError::NoNode { Ok(()) } else { Err(error) })?;
    let (data, stat) = match client.get_data(&path).await {
        Ok(found) => found,
        Err(ZkError::NoNode) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    // Empty between its making and the first write.
    let held: Option<u64> = std::str::from_utf8(&data).ok().and_then(|text| text.parse().ok());
    let Some(held) = held else { return Ok(None) };
    let now = now(ensemble, client).await?;
    let since_write = u64::try_from(now - stat.mtime).unwrap_or_default();
    Ok(Some(Duration::from_millis(since_write.saturating_add(held))))
}

/// The server's time, in milliseconds.
async fn now(ensemble: &Ensemble, client: &Client) -> FaultResult<i64> {
    let stem = format!("{}/now-", ensemble.paths.aside());
    let (stat, sequence) = client.create(&stem, b"", &ensemble.ephemeral()).await?;
    let path = format!("{stem}{sequence}");
    if !stat.is_invalid() {
        // It goes with the session otherwise.
        drop(client.delete(&path, None));
        return Ok(stat.ctime);
    }
    let mut both = client.new_multi_writer();
    both.add_check_version(&path, -1)?;
    both.add_delete(&path, None)?;
    let found = client.check_stat(&path).await?.ok_or(ZkError::NoNode)?;
    match both.commit().await {
        Ok(_) | Err(MultiWriteError::OperationFailed { .. }) => Ok(found.ctime),
        Err(error) => Err(ZkError::from(error).into()),
    }
}
