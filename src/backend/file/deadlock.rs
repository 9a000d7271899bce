//! The search for waits that would never end, in all lines of a directory.
//!
//! Claims with ancestors enter one at a time, so that of two that close a cycle together the later one sees it.

use std::sync::Arc;

use super::claim::FileClaim;
use super::directory::Directory;
use super::fault::{Fault, Outcome};
use super::fifo::Life;
use super::guard::{self, Failed, Flock};
use super::inspect;
use super::storage::LineFile;
use crate::lock::deadlock::{Graph, Member};
use crate::lock::{ClaimId, ErrorKind, Moment};

const FILE: &str = ".dlock-deadlock";

/// Keeps others with ancestors from entering meanwhile.
pub(super) async fn turn(directory: &Directory, deadline: Moment) -> Outcome<Flock> {
    let (file, _) = directory.open_or_make(FILE)?;
    let file = Arc::new(file);
    guard::lock(&file, true, deadline).await.map_err(|failed| match failed {
        Failed::Refused(errno) => Fault::os("lock", directory.path_of(FILE))(errno),
        Failed::Late => {
            let path = directory.path_of(FILE);
            let reason = format!("another dlock process keeps {} locked; it seems stopped", path.display());
            Fault::said(ErrorKind::Unavailable, reason)
        }
    })
}

/// Says so if the wait of `claim` would never end.
pub(super) async fn search(
    directory: &Arc<Directory>,
    id: ClaimId,
    deadline: Moment,
) -> Outcome<Option<String>> {
    let mut graph = Graph::default();
    for name in inspect::names(directory)? {
        if let Some(file) = LineFile::open(directory, &name, false)? {
            let _guard = file.guard(false, deadline).await?;
            graph.add(&file.lock, members(&file)?);
        }
    }
    Ok(graph.cycle(id))
}

/// The living entries of a line.
fn members(file: &LineFile) -> Outcome<Vec<Member>> {
    let line = file.read(None)?;
    let mut members = Vec::new();
    for record in line.image.records.iter().filter(|r| r.fixed.state.in_line()) {
        let Life::Alive(_) = file.life(&line, record)? else { continue };
        let Some(details) = line.image.details(record) else { continue };
        members.push(Member {
            id: record.fixed.id,
            mode: record.fixed.mode,
            owner: details.holder.to_string(),
            ancestors: details.ancestors.iter().filter_map(|a| a.parse().ok()).collect(),
        });
    }
    Ok(members)
}

/// Whether `claim` waits.
pub(super) fn waits(claim: &FileClaim) -> bool {
    !claim.is_over() && !claim.holds()
}
