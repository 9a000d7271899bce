//! The last successful run, by the server's clock.

use std::time::Duration;

use zookeeper_client::{Client, CreateMode, Error as ZkError, MultiWriteError, Stat};

use super::ensemble::Ensemble;
use super::life::Life;
use super::view::data_of;
use crate::backend::success;
use crate::lock::{ErrorKind, Mode, Moment};
use crate::net::fault::{Fault, FaultResult};

/// How often other clients may write first.
const RACES: usize = 50;

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

/// Removes the nodes of a claim and records the success of its run, which acquired at `since`, in one step and one
/// write of the server's log.
pub(super) async fn leave(life: &Life, since: Moment) -> FaultResult<()> {
    let left = life.ask(|client| async move { record(life, &client, since).await }).await?;
    left.ok_or_else(|| Fault::unavailable("the session was over before the success was recorded"))
}

async fn record(life: &Life, client: &Client, since: Moment) -> FaultResult<()> {
    let (ensemble, queues) = (&*life.ensemble, life.queues());
    let paths: Vec<_> = queues.iter().map(|queue| ensemble.config.success(queue)).collect();
    let new = CreateMode::Persistent.with_acls(ensemble.acls());
    // No other claim can have acquired later than an exclusive one, so that one replaces what is there unread.
    let is_alone = life.request.mode == Mode::Exclusive;
    let mut found = if is_alone { None } else { Some(data_of(client, &paths).await?) };
    for _ in 0..RACES {
        // The server dates the write. The length of the hold before it is the same on every clock.
        let held = ensemble.clock.now().since(since).as_millis().to_string();
        let (mut step, mut writes) = (client.new_multi_writer(), 0);
        for (at, path) in paths.iter().enumerate() {
            match found.as_ref().map(|found| &found[at]) {
                None => step.add_set_data(path, held.as_bytes(), None)?,
                Some(None) => step.add_create(path, held.as_bytes(), &new)?,
                Some(Some(last)) if is_later(life, client, last, since).await? => continue,
                Some(Some((_, stat))) => step.add_set_data(path, held.as_bytes(), Some(stat.version))?,
            }
            writes += 1;
        }
        for node in life.nodes() {
            step.add_delete(&node, None)?;
        }
        match step.commit().await {
            Ok(_) => return Ok(()),
            Err(MultiWriteError::OperationFailed { source: ZkError::NoNode, index }) => {
                if index >= writes {
                    // An earlier step with a lost answer has removed the nodes.
                    return Ok(());
                }
                if found.is_some() {
                    // The directory is missing, too.
                    let folder = CreateMode::Container.with_acls(ensemble.acls());
                    client.mkdir(&ensemble.config.aside(), &folder).await?;
                }
            }
            // Another client wrote first.
            Err(MultiWriteError::OperationFailed {
                source: ZkError::BadVersion | ZkError::NodeExists,
                ..
            }) => {}
            Err(error) => return Err(ZkError::from(error).into()),
        }
        found = Some(data_of(client, &paths).await?);
    }
    Err(Fault::new(ErrorKind::Unavailable, "others write the last success all the time"))
}

/// Returns whether the run with the recorded success acquired later than the one that acquired at `since`.
async fn is_later(
    life: &Life,
    client: &Client,
    (data, stat): &(Vec<u8>, Stat),
    since: Moment,
) -> FaultResult<bool> {
    let token = life.own.get().and_then(|own| own.keys.first()).map_or(0, |key| key.order);
    // A success written before this claim was created is of a run that acquired before.
    let Some(lasted) = lasted(data).filter(|_| stat.mzxid.cast_unsigned() >= token) else { return Ok(false) };
    let age = age(now(&life.ensemble, client).await?, stat.mtime, lasted);
    Ok(age.is_some_and(|age| age <= life.ensemble.clock.now().since(since)))
}

/// Returns how long ago the last successful run under `queue` acquired. The server's present time is that of a node
/// created for this purpose.
pub(super) async fn last(ensemble: &Ensemble, client: &Client, queue: &str) -> FaultResult<Option<Duration>> {
    client.sync("/").await?;
    let (data, stat) = match client.get_data(&ensemble.config.success(queue)).await {
        Ok(found) => found,
        Err(ZkError::NoNode) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let Some(lasted) = lasted(&data) else { return Ok(None) };
    Ok(age(now(ensemble, client).await?, stat.mtime, lasted))
}

/// Returns the server's time, in milliseconds.
async fn now(ensemble: &Ensemble, client: &Client) -> FaultResult<i64> {
    let stem = format!("{}/now-", ensemble.config.aside());
    let options = CreateMode::EphemeralSequential.with_acls(ensemble.acls());
    let (stat, sequence) = client.create(&stem, b"", &options).await?;
    // If this fails, the node ends with the session.
    drop(client.delete(&format!("{stem}{sequence}"), None));
    Ok(stat.ctime)
}
