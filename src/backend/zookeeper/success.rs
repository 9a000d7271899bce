//! What is remembered of successful runs, on the server's clock.

use std::pin::Pin;
use std::time::Duration;

use zookeeper_client::{Client, CreateMode, Error as ZkError, MultiWriteError};

use super::ensemble::Ensemble;
use super::fault::FaultResult;
use super::shared::{Memory, Own, Shared};
use super::wire::make_folders;
use crate::backend::success;
use crate::lock::Mode;

/// How often others may be faster before a success is written after the queue is left.
const RACES: usize = 20;

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

/// How long the claim holds. The time of a write is the server's; how long before it the hold began is a length,
/// which every clock measures alike.
fn held(shared: &Shared) -> Option<String> {
    let since = shared.publisher.held_at()?;
    Some(shared.ensemble.clock.now().since(since).as_millis().to_string())
}

/// What `data` says of how long it had held; empty between the making of a node and the first write.
fn lasted(data: &[u8]) -> Option<Duration> {
    std::str::from_utf8(data).ok()?.parse().ok().map(Duration::from_millis)
}

/// How long before `now` the run acquired that has written `lasted` at `written`, both by the server's clock, in milliseconds.
fn age(now: i64, written: i64, lasted: Duration) -> Option<Duration> {
    let time = |millis| Duration::from_millis(u64::try_from(millis).unwrap_or_default());
    Some(success::age(time(now), time(written))?.saturating_add(lasted))
}

/// What the success of a claim has to do with the node of one of its names.
#[derive(Clone, Copy)]
enum Write {
    /// Nothing: the run that has written it last acquired later.
    Nothing,
    Create,
    /// Only in this version, if any.
    Set(Option<i32>),
}

impl Write {
    /// What the node of `own` needs, whoever may have held with this claim or after it.
    async fn due(shared: &Shared, client: &Client, own: &Own) -> FaultResult<Self> {
        let ensemble = &shared.ensemble;
        let (data, stat) = match client.get_data(&ensemble.paths.success(&own.queue)).await {
            Ok(found) => found,
            Err(ZkError::NoNode) => return Ok(Self::Create),
            Err(error) => return Err(error.into()),
        };
        let set = Self::Set(Some(stat.version));
        // Who has written before this claim was made has acquired before it.
        let earlier = u64::try_from(stat.mzxid).is_ok_and(|at| at < own.token.get());
        let Some(lasted) = lasted(&data).filter(|_| !earlier) else { return Ok(set) };
        let Some(since) = shared.publisher.held_at() else { return Ok(Self::Nothing) };
        let age = age(now(ensemble, client).await?, stat.mtime, lasted);
        let is_later = age.is_some_and(|age| age <= ensemble.clock.now().since(since));
        Ok(if is_later { Self::Nothing } else { set })
    }
}

/// Whether a success was written; an answer on its way.
pub(super) type Answer = Pin<Box<dyn Future<Output = bool> + Send>>;

/// Sends that a run which acquired with this exclusive claim was a success, ahead of what is sent next in the session, and
/// leaves the answers for later.
pub(super) fn send(shared: &Shared) -> Option<Vec<Answer>> {
    if shared.request.mode != Mode::Exclusive {
        return None;
    }
    let (client, held, memory) = (shared.client()?, held(shared)?, shared.memory());
    let acls = shared.ensemble.acls();
    let mut answers: Vec<Answer> = Vec::new();
    for own in shared.own() {
        let path = shared.ensemble.paths.success(&own.queue);
        if memory.nodes {
            let set = client.set_data(&path, held.as_bytes(), None);
            answers.push(Box::pin(async move { set.await.is_ok() }));
            continue;
        }
        // What is there already is left as it is; what follows shows whether this was enough.
        if !memory.folder {
            let container = CreateMode::Container.with_acls(acls);
            drop(client.create(&shared.ensemble.paths.aside(), b"", &container));
        }
        drop(client.create(&path, held.as_bytes(), &CreateMode::Persistent.with_acls(acls)));
        // Nobody else held meanwhile, so that what was written since the claim was made it has written.
        let since = own.token.get();
        let found = client.check_stat(&path);
        answers.push(Box::pin(async move {
            matches!(found.await, Ok(Some(stat)) if u64::try_from(stat.mzxid).is_ok_and(|at| at > since))
        }));
    }
    Some(answers)
}

/// Removes the claim's nodes and writes that its run was a success, in one step, which the server keeps with one write
/// of its log. Whether it came about: what is missing, or is there already, is another matter.
pub(super) async fn leave(shared: &Shared, client: &Client) -> bool {
    let (own, memory) = (shared.own(), shared.memory());
    if shared.request.mode == Mode::Exclusive {
        if !memory.folder && !memory.nodes {
            return false;
        }
        // Nobody can have acquired later.
        let write = if memory.nodes { Write::Set(None) } else { Write::Create };
        return step(shared, client, own.iter().map(|own| (own, write))).await.is_ok();
    }
    if !memory.folder
        && make_folders(client, shared.ensemble.acls(), &shared.ensemble.paths.aside()).await.is_err()
    {
        return false;
    }
    for _ in 0..RACES {
        let mut writes = Vec::new();
        for own in &own {
            let Ok(write) = Write::due(shared, client, own).await else { return false };
            writes.push((own, write));
        }
        match step(shared, client, writes.into_iter()).await {
            // Somebody who held with this one was faster.
            Err(ZkError::BadVersion | ZkError::NodeExists) => {}
            done => return done.is_ok(),
        }
    }
    false
}

/// Removes the claim's nodes and writes its success as each name needs it, in one step.
async fn step(
    shared: &Shared,
    client: &Client,
    writes: impl Iterator<Item = (&Own, Write)>,
) -> Result<(), ZkError> {
    let held = held(shared).ok_or(ZkError::NoNode)?;
    let options = CreateMode::Persistent.with_acls(shared.ensemble.acls());
    let mut step = client.new_multi_writer();
    for (own, write) in writes {
        let path = shared.ensemble.paths.success(&own.queue);
        for node in own.all() {
            step.add_delete(&node, None)?;
        }
        match write {
            Write::Nothing => {}
            Write::Create => step.add_create(&path, held.as_bytes(), &options)?,
            Write::Set(version) => step.add_set_data(&path, held.as_bytes(), version)?,
        }
    }
    step.commit().await?;
    Ok(())
}

/// Remembers it in a session of its own, after the claim's is gone.
pub(super) async fn record(shared: &Shared) -> FaultResult<()> {
    if shared.publisher.held_at().is_none() {
        return Ok(());
    }
    let client = shared.ensemble.connect(Duration::from_secs(10)).await?;
    for own in shared.own() {
        write(shared, &client, &own).await?;
    }
    Ok(())
}

async fn write(shared: &Shared, client: &Client, own: &Own) -> FaultResult<()> {
    let ensemble = &shared.ensemble;
    let path = ensemble.paths.success(&own.queue);
    loop {
        let write = Write::due(shared, client, own).await?;
        let Some(held) = held(shared) else { return Ok(()) };
        let written = match write {
            Write::Nothing => return Ok(()),
            Write::Create => {
                let options = CreateMode::Persistent.with_acls(ensemble.acls());
                client.create(&path, held.as_bytes(), &options).await.map(drop)
            }
            Write::Set(version) => client.set_data(&path, held.as_bytes(), version).await.map(drop),
        };
        match written {
            Ok(()) => return Ok(()),
            // There is no folder if nothing was there to set, either.
            Err(ZkError::NoNode) => {
                make_folders(client, ensemble.acls(), &ensemble.paths.aside()).await?;
            }
            Err(ZkError::BadVersion | ZkError::NodeExists) => {}
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
    let Some(lasted) = lasted(&data) else { return Ok(None) };
    Ok(age(now(ensemble, client).await?, stat.mtime, lasted))
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
