//! Joining the queues of a request.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use tokio::sync::oneshot;

use super::directory::Directory;
use super::entries::{Document, Stored};
use super::fault;
use super::fifo;
use super::header::wall;
use super::hold::Hold;
use super::seat::{Place, Seat};
use super::storage::{Guard, QueueFile, guards};
use super::view::{settle, tidy};
use crate::clock::Clock;
use crate::lock::{ErrorKind, Moment, Request};
use crate::net::fault::{Fault, FaultResult};
use crate::queue::store::{Key, Own, Queue};

/// Joins all queues at their ends, and takes the lock files if they are free.
pub(super) async fn append(
    directory: &Arc<Directory>,
    request: &Request,
    deadline: Moment,
) -> FaultResult<(Own, Seat, Vec<Queue>)> {
    loop {
        let mut queues = Vec::with_capacity(request.names.len());
        for name in &request.names {
            queues.push(Arc::new(QueueFile::open_or_make(directory, name)?));
        }
        let mut guards = guards(&queues, deadline).await?;
        // A queue that was unlinked between opening and locking is not the one that other processes use.
        let unlinked = queues.iter().map(|queue| queue.is_unlinked()).collect::<FaultResult<Vec<_>>>()?;
        if unlinked.contains(&true) {
            continue;
        }
        let documents = loop {
            let documents = queues.iter().map(|queue| queue.read()).collect::<FaultResult<Vec<_>>>()?;
            match documents.iter().position(|document| !document.header.is_ready(directory.boot())) {
                Some(index) => guards = reserve(Arc::clone(&queues[index]), guards, deadline).await?,
                None => break documents,
            }
        };
        let (seat, queues) = join(&queues, documents, request)?;
        drop(guards);
        let fifo = seat.own_fifo.clone().unwrap_or_else(|| seat.places[0].queue.files.kept_fifo());
        let keys = seat.places.iter().map(|place| Key { order: place.token, text: fifo.clone() }).collect();
        let own =
            Own { id: request.id, names: request.names.clone(), mode: request.mode, ttl: request.ttl, keys };
        return Ok((own, seat, queues));
    }
}

/// Joins the queues under the guards, so no other process finds an entry whose FIFO is still missing. The FIFO comes after
/// the entries, so a kill leaves no FIFO without one.
fn join(
    queues: &[Arc<QueueFile>],
    mut documents: Vec<Document>,
    request: &Request,
) -> FaultResult<(Seat, Vec<Queue>)> {
    let (files, directory) = (&queues[0].files, &queues[0].directory);
    let mut places = Vec::new();
    for (queue, document) in queues.iter().zip(&mut documents) {
        drop_earlier(queue, document, request)?;
        let token = document.header.take_token();
        document.entries.push(Stored::of(request, token, wall()));
        document.changed = true;
        let hold = Hold::open(directory, queue.files.canonical().to_owned())?;
        places.push(Place { queue: Arc::clone(queue), hold, slot: None, token });
    }
    let living = tidy(&places, request.mode, &mut documents)?;
    let kept = kept_fifo(queues, &mut documents);
    let mut seat = Seat::new(request.mode, places, kept);
    let shown = settle(&mut seat, &mut documents, &living)?;
    if seat.fifo.is_none() {
        let name = files.fifo(request.id);
        let fifo = fifo::take(directory, &name).inspect_err(|_| directory.unlink(&name))?;
        let in_use = fault::os("lock", directory.path_of(&name));
        seat.fifo = Some(fifo.ok_or(Errno::WOULDBLOCK).map_err(in_use)?);
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
    let fifo = fifo::take(&queue.directory, &queue.files.kept_fifo()).ok().flatten();
    own.kept = fifo.is_some();
    fifo
}

/// Reserves tokens in `queue`, in a thread, since it waits for the disk. The thread has the guards meanwhile.
async fn reserve(queue: Arc<QueueFile>, guards: Vec<Guard>, deadline: Moment) -> FaultResult<Vec<Guard>> {
    let (done, result) = oneshot::channel();
    let path = queue.path();
    let work = move || drop(done.send(write_reservation(&queue, QueueFile::sync).map(|()| guards)));
    std::thread::Builder::new().name("reserve".to_owned()).spawn(work).map_err(|e| {
        Fault::new(ErrorKind::System, format!("cannot start a thread that writes {}: {e}", path.display()))
    })?;
    match Clock::Boot.by(deadline, result).await {
        Some(done) => done.map_err(|_| Fault::new(ErrorKind::Internal, "a thread ended early"))?,
        None => Err(fault::silent_disk(&path)),
    }
}

/// Reserves tokens in `queue`. They may be given once `sync` has found the header on the disk.
pub(super) fn write_reservation(
    queue: &QueueFile,
    sync: fn(&QueueFile) -> FaultResult<()>,
) -> FaultResult<()> {
    let mut header = queue.read()?.header;
    let before = header.clone();
    header.reserve(queue.directory.boot());
    queue.write_header(&header).and_then(|()| sync(queue)).inspect_err(|_| {
        // A header that may not be on the disk must not make other claims give its tokens.
        let _ = queue.write_header(&before);
    })
}

/// Removes the entry of an earlier attempt that has ended.
fn drop_earlier(queue: &QueueFile, document: &mut Document, request: &Request) -> FaultResult<()> {
    let Some(earlier) = document.entries.iter().find(|entry| entry.id == request.id) else {
        return Ok(());
    };
    if queue.life(earlier)?.is_some() {
        let reason = format!("the claim {} is already in the queue, from another process", request.id);
        return Err(Fault::new(ErrorKind::Invalid, reason));
    }
    let token = earlier.token;
    queue.bury(document, token)
}
