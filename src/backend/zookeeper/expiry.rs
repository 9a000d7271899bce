//! A lease of nobody's process: whoever has the session lets it end one ttl after its last renewal.
//!
//! A renewal changes the record of the claim's first name, and the end removes the record only as it was read. So the servers
//! refuse whichever comes second. No clock is compared with another: a renewal counts from when it is seen, or later.

use std::time::Duration;

use zookeeper_client::{Client, Error as ZkError, MultiWriteError};

use super::fault::{Fault, FaultResult};
use super::note::Note;
use super::shared::{Lease, Own, Shared};
use crate::lock::{ErrorKind, Moment};

/// How often somebody else may change the record meanwhile.
const RACES: usize = 50;

/// As [`crate::backend::Claim::expire_if_due`], in the claim's session.
pub(super) async fn expire_if_due(
    shared: &Shared,
    client: &Client,
    ttl: Duration,
) -> FaultResult<Option<Moment>> {
    let own = shared.own();
    let Some(record) = shared.first_record() else { return Ok(Some(Moment::NEVER)) };
    for _ in 0..RACES {
        let (data, stat) = match look(client, &record).await {
            Ok(found) => found,
            // What has become of it is told as news.
            Err(ZkError::NoNode) => return Ok(Some(Moment::NEVER)),
            Err(error) => return Err(error.into()),
        };
        let (now, renewals) =
            (shared.ensemble.clock.now(), Note::parse(&data).map_or(0, |note| note.renewals));
        let until = {
            let mut lease = shared.lease();
            let lease = lease.get_or_insert_with(|| Lease::begin(renewals, now));
            lease.look(renewals, now);
            lease.counts_from() + ttl
        };
        if until > now {
            return Ok(Some(until));
        }
        let mut step = client.new_multi_writer();
        for path in own.iter().flat_map(Own::all) {
            let version = (path == record).then_some(stat.version);
            step.add_delete(&path, version)?;
        }
        match step.commit().await {
            Ok(_) => {
                shared.close();
                return Ok(None);
            }
            Err(MultiWriteError::OperationFailed { source: ZkError::BadVersion, .. }) => {}
            Err(MultiWriteError::OperationFailed { source: ZkError::NoNode, .. }) => {
                return Ok(Some(Moment::NEVER));
            }
            Err(error) => return Err(ZkError::from(error).into()),
        }
    }
    Err(Fault::Refusal(ErrorKind::Unavailable, "others change the entry all the time".into()))
}

/// Takes over what `note` at `path` says of renewals.
pub(super) fn saw(shared: &Shared, path: &str, note: &Note) {
    let is_counted = shared.first_record().as_deref() == Some(path);
    if let Some(lease) = shared.lease().as_mut().filter(|_| is_counted) {
        lease.look(note.renewals, shared.ensemble.clock.now());
    }
}

/// The record, as the servers have agreed on it.
async fn look(client: &Client, record: &str) -> Result<(Vec<u8>, zookeeper_client::Stat), ZkError> {
    client.sync(record).await?;
    client.get_data(record).await
}
