//! Joining the queues of a request.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::directory::Directory;
use super::entries::{Document, Stored};
use super::fifo::{self, Life};
use super::look::{settle, tidy};
use super::reservation::reserve;
use super::seat::{Place, Seat};
use super::storage::{QueueFile, guards};
use super::token;
use crate::lock::{ErrorKind, Moment, Request};
use crate::net::fault::{Fault, FaultResult};
use crate::queue::store::{Key, Own, Queue};

/// Joins all queues at their ends, and takes the lock files if they are free. A failure leaves at most entries without a
/// FIFO, which are dead.
pub(super) async fn append(
    directory: &Arc<Directory>,
    request: &Request,
    deadline: Moment,
) -> FaultResult<(Own, Seat, Vec<Queue>)> {
    loop {
        let mut queues = Vec::with_capacity(request.names.len());
        for name in &request.names {
            let files = directory.naming.of(name)?;
            queues.push(Arc::new(QueueFile::open_or_make(directory, name, files)?));
        }
        let mut guards = guards(&queues, deadline).await?;
        // A queue that was unlinked between opening and locking is not the one that other processes use.
        let mut unlinked = false;
        for queue in &queues {
            unlinked |= queue.is_unlinked()?;
        }
        if unlinked {
            continue;
        }
        let documents = loop {
            let documents = queues.iter().map(|queue| queue.read()).collect::<FaultResult<Vec<_>>>()?;
            match documents.iter().position(|document| !token::ready(&document.header, directory.boot())) {
                Some(index) => guards = reserve(Arc::clone(&queues[index]), guards, deadline).await?,
                None => break documents,
            }
        };
        let (seat, queues) = join(&queues, documents, request)?;
        drop(guards);
        let key = |(place, queue): (&Place, &Queue)| {
            let own = queue.items.iter().find(|item| item.key.order == place.token);
            own.map_or(Key { order: place.token, text: String::new() }, |item| item.key.clone())
        };
        let keys = seat.places.iter().zip(&queues).map(key).collect();
        let own =
            Own { id: request.id, names: request.names.clone(), mode: request.mode, ttl: request.ttl, keys };
        return Ok((own, seat, queues));
    }
}

/// Joins the queues under the guards.
fn join(
    queues: &[Arc<QueueFile>],
    mut documents: Vec<Document>,
    request: &Request,
) -> FaultResult<(Seat, Vec<Queue>)> {
    let mut places = Vec::new();
    for (queue, document) in queues.iter().zip(&mut documents) {
        drop_earlier(queue, document, request)?;
        let token = token::take(&mut document.header, queue.directory.boot()).unwrap_or_default();
        document.entries.push(Stored::of(request, token, token::wall()));
        places.push(Place::open(queue, token)?);
    }
    let mut seat = Seat::new(request.mode, places);
    let tidied = tidy(&seat, &mut documents)?;
    seat.fifo = kept_fifo(queues, &mut documents);
    let shown = settle(&mut seat, &mut documents, &tidied, true)?;
    if seat.fifo.is_none() {
        // After the entries, so that a kill leaves no FIFO without one.
        let (files, directory) = (&queues[0].files, &queues[0].directory);
        let name = files.fifo(request.id);
        let fifo = fifo::make(directory, &name, &files.unready());
        seat.fifo = Some(fifo.inspect_err(|_| directory.unlink(&name))?);
        seat.own_fifo = Some(name);
    }
    Ok((seat, shown))
}

/// Returns the lock's own FIFO, for a claim on one name that finds no entry in its queue. Without an entry no other
/// process knows of the FIFO. So the end of one claim cannot be taken for the end of another.
///
/// This saves creating and deleting an inode in every run without contention. ext4 does not reuse a deleted inode for
/// seconds, and searches longer and longer for another one.
fn kept_fifo(queues: &[Arc<QueueFile>], documents: &mut [Document]) -> Option<Arc<OwnedFd>> {
    let ([queue], [document]) = (queues, documents) else { return None };
    let [own] = &mut document.entries[..] else { return None };
    let fifo = fifo::keep(&queue.directory, &queue.files.kept_fifo(), &queue.files.unready());
    own.kept = fifo.is_some();
    fifo
}

/// Removes the entry of an earlier attempt that has ended.
fn drop_earlier(queue: &QueueFile, document: &mut Document, request: &Request) -> FaultResult<()> {
    let Some(earlier) = document.entries.iter().find(|entry| entry.id == request.id) else {
        return Ok(());
    };
    if let Life::Alive(_) = queue.life(earlier)? {
        let reason = format!("the claim {} is already in the queue, from another process", request.id);
        return Err(Fault::new(ErrorKind::Invalid, reason));
    }
    let token = earlier.token;
    queue.bury(document, token)
}
