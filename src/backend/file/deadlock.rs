//! The search for waits that would never end, in all queues of a directory.
//!
//! Claims with ancestors enter one at a time, so that of two that close a cycle together the later one sees it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::core::FileClaim;
use super::directory::Directory;
use super::fault;
use super::fifo::Life;
use super::guard::{Failed, Guard, GuardFile};
use super::inspect;
use super::storage::QueueFile;
use crate::backend::deadlock::{self, Queued};
use crate::lock::deadlock::Member;
use crate::lock::{ClaimId, ErrorKind, Moment};
use crate::net::fault::{Fault, FaultResult};

const FILE: &str = ".dlock-deadlock";

/// Keeps others with ancestors from entering meanwhile.
pub(super) async fn turn(directory: &Directory, deadline: Moment) -> FaultResult<Guard> {
    let (file, _) = directory.open_or_make(FILE)?;
    GuardFile::new(file, true).lock(deadline).await.map_err(|failed| match failed {
        Failed::Refused(errno) => fault::os("lock", directory.path_of(FILE))(errno),
        Failed::Late | Failed::TurnLate => {
            let path = directory.path_of(FILE);
            let reason = format!("another dlock process keeps {} locked; it seems stopped", path.display());
            Fault::new(ErrorKind::Unavailable, reason)
        }
    })
}

/// Says so if the wait of `claim` would never end.
pub(super) async fn search(
    directory: &Arc<Directory>,
    id: ClaimId,
    deadline: Moment,
) -> FaultResult<Option<String>> {
    let mut queues = BTreeMap::new();
    for name in inspect::names(directory)? {
        if let Some(file) = QueueFile::open(directory, &name, false)? {
            let _guard = file.guard(deadline).await?;
            queues.insert(file.lock.clone(), queue(&file)?);
        }
    }
    Ok(deadlock::cycle(&queues, id))
}

/// The living entries of a queue. They came no later: nested claims enter one at a time.
fn queue(file: &QueueFile) -> FaultResult<Vec<Queued<()>>> {
    let queue = file.read(None)?;
    let mut queued = Vec::new();
    for record in queue.image.records.iter().filter(|r| r.fixed.state.in_queue()) {
        let Life::Alive(_) = file.life(&queue, record)? else { continue };
        let Some(details) = queue.image.details(record) else { continue };
        let (id, mode, owner) = (record.fixed.id, record.fixed.mode, details.holder.to_string());
        let ancestors = details.ancestors.iter().filter_map(|a| a.parse().ok()).collect();
        let member = Some(Member { id, mode, owner, ancestors });
        queued.push(Queued { id, place: (), names: Vec::new(), member });
    }
    Ok(queued)
}

/// Whether `claim` waits.
pub(super) fn waits(claim: &FileClaim) -> bool {
    !claim.is_over() && !claim.holds()
}
