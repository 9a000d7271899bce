//! Joining the queues of a request.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

use super::contents::{self, Contents};
use super::directory::Directory;
use super::entries::Stored;
use super::fault;
use super::fifo;
use super::header::wall;
use super::hold::Hold;
use super::names::claim_fifo;
use super::seat::{Place, Seat};
use super::storage::QueueFile;
use super::view::settle;
use crate::lock::{Moment, Request};
use crate::net::fault::FaultResult;
use crate::queue::store::{Key, Own, Queue};

/// Joins all queues at their ends, and takes the lock files if they are free.
pub(super) async fn append(
    directory: &Arc<Directory>,
    request: &Request,
    deadline: Moment,
) -> FaultResult<(Own, Seat, Vec<Queue>)> {
    loop {
        let files = request.names.iter().map(|name| QueueFile::open_or_make(directory, name));
        let files: Vec<_> = files.collect::<FaultResult<_>>()?;
        let queues = contents::read(&files, deadline).await?;
        // A queue that was unlinked between opening and locking is not the one that other processes use.
        let unlinked = files.iter().map(|file| file.is_unlinked()).collect::<FaultResult<Vec<_>>>()?;
        if !unlinked.contains(&true) {
            return join(queues, request);
        }
    }
}

/// Joins the queues under the guards, so no other process finds an entry whose FIFO is still missing. The FIFO comes after
/// the entries, so a kill leaves no FIFO without one.
fn join(mut queues: Vec<Contents>, request: &Request) -> FaultResult<(Own, Seat, Vec<Queue>)> {
    let first = Arc::clone(&queues[0].file);
    let directory = &first.directory;
    let mut places = Vec::new();
    for queue in &mut queues {
        // That of an earlier attempt, which has ended.
        queue.entries.retain(|entry| entry.id() != Some(request.id));
        let token = queue.header.take_token();
        queue.entries.push(Stored::of(request, token, wall()));
        queue.changed = true;
        queue.tidy(token, request.mode)?;
        let hold = Hold::open(directory, queue.file.files.canonical().to_owned())?;
        places.push(Place { queue: Arc::clone(&queue.file), hold, slot: None, token });
    }
    let kept = kept_fifo(&mut queues);
    let name = if kept.is_some() { first.files.kept_fifo() } else { claim_fifo(request.id) };
    let mut seat = Seat::new(request.mode, places, kept);
    let shown = settle(&mut seat, &mut queues)?;
    if seat.fifo.is_none() {
        let in_use = fault::os("lock", directory.path_of(&name));
        seat.fifo = Some(fifo::take(directory, &name)?.ok_or(Errno::WOULDBLOCK).map_err(in_use)?);
        seat.fifo_name = Some(name.clone());
    }
    let keys = seat.places.iter().map(|place| Key { order: place.token, text: name.clone() }).collect();
    let (names, mode) = (request.names.clone(), request.mode);
    Ok((Own { id: request.id, names, mode, ttl: request.ttl, keys }, seat, shown))
}

/// Returns the lock's own FIFO, for a claim on one name that finds no entry in its queue. Without an entry no other
/// process knows of the FIFO. So the end of one claim cannot be taken for the end of another.
///
/// This saves creating and deleting an inode in every run without contention. ext4 does not reuse a deleted inode for
/// seconds, and searches longer and longer for another one.
fn kept_fifo(queues: &mut [Contents]) -> Option<Arc<OwnedFd>> {
    let [queue] = queues else { return None };
    let [own] = &mut queue.entries[..] else { return None };
    let fifo = fifo::take(&queue.file.directory, &queue.file.files.kept_fifo()).ok().flatten();
    own.kept = fifo.is_some();
    fifo
}
