//! The last successful run, by the server's clock.

use std::time::Duration;

use zookeeper_client::{Client, CreateMode, Error as ZkError};

use super::ensemble::Ensemble;
use super::fault::{LOST, OVER};
use super::life::{Life, RETRY};
use super::wire::{LOOKING, make_folders};
use crate::backend::success;
use crate::lock::{ErrorKind, Moment};
use crate::net::fault::{Fault, FaultResult};

/// How often other clients may write first.
const RACES: usize = 50;

/// Returns how long a claim has held, in milliseconds. The server dates the write. The length of the hold before it is
/// the same on every clock.
fn held(ensemble: &Ensemble, since: Moment) -> String {
    ensemble.clock.now().since(since).as_millis().to_string()
}

/// Parses the length of the hold; `None` if it is missing.
fn lasted(data: &[u8]) -> Option<Duration> {
    std::str::from_utf8(data).ok()?.parse().ok().map(Duration::from_millis)
}

/// Returns how long before `now` the run acquired that wrote `lasted` at `written`. Both times are milliseconds by the
/// server's clock.
fn age(now: i64, written: i64, lasted: Duration) -> Option<Duration> {
    let time = |millis| Duration::from_millis(u64::try_from(millis).unwrap_or_default());
    Some(success::age(time(now), time(written))?.saturating_add(lasted))
}

/// Removes the nodes of an exclusive claim and records the success of its run, in one step and one write of the
/// server's log. No other claim can have acquired later. Returns whether it succeeded.
pub(super) async fn leave(life: &Life, since: Moment) -> bool {
    let Some(client) = life.client().await else { return false };
    for is_first in [false, true] {
        match step(life, &client, since, is_first).await {
            Ok(()) => return true,
            // There is no earlier success to replace.
            Err(ZkError::NoNode) => {}
            Err(_) => return false,
        }
    }
    false
}

async fn step(life: &Life, client: &Client, since: Moment, is_first: bool) -> Result<(), ZkError> {
    let held = held(&life.ensemble, since);
    let options = CreateMode::Persistent.with_acls(life.ensemble.acls());
    let mut step = client.new_multi_writer();
    for queue in life.queues() {
        let path = life.ensemble.paths.success(&queue);
        if is_first {
            step.add_create(&path, held.as_bytes(), &options)?;
        } else {
            step.add_set_data(&path, held.as_bytes(), None)?;
        }
    }
    for node in life.nodes() {
        step.add_delete(&node, None)?;
    }
    step.commit().await?;
    Ok(())
}

/// Records the success of the run that acquired with this claim at `since`, in the claim's session, or in a new one if
/// that is over.
pub(super) async fn record(life: &Life, since: Moment) -> FaultResult<()> {
    loop {
        let client = match life.client().await.filter(|client| !client.state().is_terminated()) {
            Some(client) => client,
            None => life.ensemble.connect(LOOKING).await?,
        };
        let mut written = Ok(());
        let token = life.own.get().and_then(|own| own.keys.first()).map_or(0, |key| key.order);
        for queue in life.queues() {
            let path = life.ensemble.paths.success(&queue);
            written = written.and(write(&life.ensemble, &client, &path, token, since).await);
        }
        match written {
            // Successes that were written already are written again.
            Err(fault) if matches!(fault.code, LOST | OVER) => tokio::time::sleep(RETRY).await,
            done => return done,
        }
    }
}

/// Writes the success at `path`, unless the last recorded run acquired later than this one, which has `token`.
async fn write(
    ensemble: &Ensemble,
    client: &Client,
    path: &str,
    token: u64,
    since: Moment,
) -> FaultResult<()> {
    let mut denied = false;
    for _ in 0..RACES {
        let found = match client.get_data(path).await {
            Ok(found) => Some(found),
            Err(ZkError::NoNode) => None,
            Err(error) => return Err(error.into()),
        };
        if let Some((data, stat)) = &found
            && let Some(lasted) = lasted(data)
            // A success written before this claim was created is of a run that acquired before.
            && stat.mzxid.cast_unsigned() >= token
        {
            let age = age(now(ensemble, client).await?, stat.mtime, lasted);
            if age.is_some_and(|age| age <= ensemble.clock.now().since(since)) {
                return Ok(());
            }
        }
        let held = held(ensemble, since);
        let options = CreateMode::Persistent.with_acls(ensemble.acls());
        let written = match found {
            Some((_, stat)) => client.set_data(path, held.as_bytes(), Some(stat.version)).await.map(drop),
            None => client.create(path, held.as_bytes(), &options).await.map(drop),
        };
        match written {
            Ok(()) => return Ok(()),
            // The directory is missing, too.
            Err(ZkError::NoNode) => {
                denied |= make_folders(client, ensemble.acls(), &ensemble.paths.aside()).await?;
            }
            // Another client wrote first.
            Err(ZkError::BadVersion | ZkError::NodeExists) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if denied {
        return Err(ZkError::NoAuth.into());
    }
    Err(Fault::new(ErrorKind::Unavailable, "others write the last success all the time"))
}

/// Returns how long ago the last successful run under `queue` acquired. The server's present time is that of a node
/// created for this purpose.
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

/// Returns the server's time, in milliseconds.
async fn now(ensemble: &Ensemble, client: &Client) -> FaultResult<i64> {
    let stem = format!("{}/now-", ensemble.paths.aside());
    let (stat, sequence) = client.create(&stem, b"", &ensemble.ephemeral()).await?;
    // If this fails, the node ends with the session.
    drop(client.delete(&format!("{stem}{sequence}"), None));
    Ok(stat.ctime)
}
