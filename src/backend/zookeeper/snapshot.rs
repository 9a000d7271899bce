//! Reading the queue of a name.

use zookeeper_client::{Client, Error as ZkError, Stat};

use super::note::{self, Note};
use super::queue::{ClaimNodes, QueueNodes};
use super::wire::{children, data_of};
use crate::backend::foreign;
use crate::lock::{ClaimId, Entry, LockName, LockStatus, Mode, queue};
use crate::net::fault::FaultResult;

/// An entry, and its record.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) entry: ClaimNodes,
    /// The path of the queue.
    pub(super) queue: String,
    pub(super) note: Option<Note>,
    pub(super) stat: Stat,
}

impl Seen {
    pub(super) fn record_path(&self) -> String {
        format!("{}/{}", self.queue, self.entry.record().name)
    }

    /// Returns the entry for display. The caller adds whether it holds.
    fn shown(&self) -> Entry {
        let entry = note::entry(&self.record_path(), self.note.as_ref(), &self.stat);
        let claim = self.foreign_identity().or(entry.claim);
        Entry { mode: Some(self.entry.mode()), claim, ..entry }
    }

    /// Returns the claim id under which another program's entry is shown: no other node has its path and creating
    /// transaction.
    pub(super) fn foreign_identity(&self) -> Option<ClaimId> {
        let named = || foreign::identity([self.record_path().as_bytes(), &self.stat.czxid.to_be_bytes()]);
        self.note.is_none().then(named)
    }
}

/// Reads the queue at `path` from the names of its nodes. With `fresh` the server first catches up with the others.
pub(super) async fn read(client: &Client, path: &str, fresh: bool) -> FaultResult<QueueNodes> {
    let sync = fresh.then(|| client.sync(path));
    let listed = children(client, path);
    if let Some(sync) = sync {
        match sync.await {
            Ok(()) | Err(ZkError::NoNode) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(QueueNodes::of(&listed.await?))
}

/// Returns the entries of `queue`, which is at `path`, with their records. Entries that have gone meanwhile are left
/// out.
pub(super) async fn entries(client: &Client, path: &str, queue: QueueNodes) -> FaultResult<Vec<Seen>> {
    let paths: Vec<String> =
        queue.entries.iter().map(|entry| format!("{path}/{}", entry.record().name)).collect();
    let data = data_of(client, &paths).await?;
    let seen = queue.entries.into_iter().zip(data).filter_map(|(entry, data)| {
        let (data, stat) = data?;
        Some(Seen { entry, queue: path.to_owned(), note: Note::parse(&data), stat })
    });
    Ok(seen.collect())
}

/// Returns the queue of `name` for display.
pub(super) fn status(name: &LockName, seen: &[Seen]) -> LockStatus {
    let modes: Vec<Mode> = seen.iter().map(|seen| seen.entry.mode()).collect();
    let held = queue::held(&modes);
    let mut status = LockStatus::empty(name);
    status.holders.extend(seen[..held].iter().map(Seen::shown));
    let waiters = seen[held..].iter().zip(held..);
    status.waiters.extend(waiters.map(|(seen, index)| Entry {
        ahead: u32::try_from(index).ok(),
        token: None,
        slot: None,
        ..seen.shown()
    }));
    status
}
