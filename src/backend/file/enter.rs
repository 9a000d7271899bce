//! Entering the queues of a request.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::core::{FileClaim, Inner};
use super::directory::Directory;
use super::fifo::{self, Life};
use super::grant::{self, QueuedClaim};
use super::guard::Guard;
use super::hold::Hold;
use super::promote::waiting;
use super::queue::{Details, FIXED, Fixed, Mark, Record, State, Which, mark_line, record_line};
use super::reservation::reserve;
use super::storage::{QueueFile, ReadQueue, guards};
use super::token;
use crate::backend::mixing::{Use, mismatch};
use crate::backend::record::{ancestor_ids, ancestor_names};
use crate::clock;
use crate::lock::{ErrorKind, Moment, Request};
use crate::net::fault::{Fault, FaultResult};

/// The result of an attempt to enter.
enum Progress {
    Joined(Box<FileClaim>),
    /// Tokens must be reserved in the queue of this index first.
    Reserve(usize),
}

/// Enters the queues of all names. A free lock is acquired at once.
pub(super) async fn enter(
    directory: &Arc<Directory>,
    request: &Request,
    deadline: Moment,
) -> FaultResult<FileClaim> {
    let began = clock::now();
    loop {
        let mut queues = Vec::with_capacity(request.names.len());
        for name in &request.names {
            let files = directory.naming.of(name)?;
            queues.push(Arc::new(QueueFile::open_or_make(directory, name, files)?));
        }
        let mut ordered = queues.clone();
        ordered.sort_by(|a, b| a.files.cmp(&b.files));
        let mut guards: Vec<Guard> = guards(&ordered, deadline).await?;
        // A queue that was unlinked between opening and locking is not the one that other processes use.
        let mut unlinked = false;
        for queue in &queues {
            unlinked |= queue.is_unlinked()?;
        }
        if unlinked {
            continue;
        }
        loop {
            match try_enter(&queues, request, began)? {
                Progress::Joined(claim) => return Ok(*claim),
                Progress::Reserve(index) => {
                    guards = reserve(Arc::clone(&queues[index]), guards, deadline).await?;
                }
            }
        }
    }
}

/// Enters all queues or none, under the guards.
fn try_enter(files: &[Arc<QueueFile>], request: &Request, began: Moment) -> FaultResult<Progress> {
    let mut queues = Vec::with_capacity(files.len());
    for file in files {
        let mut queue = file.read(None)?;
        check_kinds(file, &mut queue, request)?;
        grant::bury_front(file, &mut queue)?;
        queues.push(queue);
    }
    let mut victims = Vec::new();
    if request.supersede {
        for (file, queue) in files.iter().zip(&mut queues) {
            victims.push(take_out_older(file, queue)?);
        }
    }
    let mut waits = false;
    for (file, queue) in files.iter().zip(&mut queues) {
        waits |= grant::ahead(file, queue, request.mode, u64::MAX)?.waits;
    }
    let mut places = Vec::with_capacity(files.len());
    for file in files {
        let hold = Hold::open(&file.directory, file.files.canonical().to_owned())?;
        let fixed = first_record(request);
        places.push(QueuedClaim { queue: Arc::clone(file), hold, slot: None, at: 0, end: 0, fixed });
    }
    let busy = if waits { None } else { grant::take(&mut places, &queues)? };
    let holds = !waits && busy.is_none();
    if holds {
        if let Some(index) = queues.iter().position(|l| !token::ready(&l.header, files[0].directory.boot())) {
            return Ok(Progress::Reserve(index));
        }
    } else {
        for place in &mut places {
            place.slot = None;
        }
    }
    if let Some(index) = busy {
        places[index].fixed.state = State::Blocked;
    }
    let kept = kept_fifo(files, &queues);
    if kept.is_some() {
        places[0].fixed.fifo = Which::Kept;
    }
    write(&mut places, &mut queues, request, holds).inspect_err(|_| undo(&places))?;
    let fifo = match kept {
        Some(fifo) => (None, Some(fifo)),
        None => own_fifo(&files[0], request, &places)?,
    };
    // Comes after everything else that can fail, so that such a failure supersedes no other claim.
    let superseded = supersede(files, &mut queues, &victims, request);
    superseded.and(tell(files, &queues, &victims)).inspect_err(|_| {
        undo(&places);
        fifo.0.iter().for_each(|name| files[0].directory.unlink(name));
    })?;
    let mut inner = Inner::new(places, fifo, began);
    if holds {
        inner.hold(began);
    } else {
        inner.state = waiting(&inner, &queues);
    }
    Ok(Progress::Joined(Box::new(FileClaim::new(request, inner))))
}

/// Returns the lock's own FIFO, for a claim on one name that finds no record in its queue. Without a record no other
/// process knows of the FIFO. So the end of one claim cannot be taken for the end of another.
///
/// This saves creating and deleting an inode in every run without contention. ext4 does not reuse a deleted inode for
/// seconds, and searches longer and longer for another one.
fn kept_fifo(files: &[Arc<QueueFile>], queues: &[ReadQueue]) -> Option<Arc<OwnedFd>> {
    let ([file], [queue]) = (files, queues) else { return None };
    let empty = queue.image.records.iter().all(|r| r.fixed.state == State::Gone);
    if empty { fifo::keep(&file.directory, &file.files.kept_fifo(), &file.files.unready()) } else { None }
}

/// Creates a FIFO of the claim's own. Its record is written before, so that a kill leaves no FIFO without a record.
fn own_fifo(
    file: &QueueFile,
    request: &Request,
    places: &[QueuedClaim],
) -> FaultResult<(Option<String>, Option<Arc<OwnedFd>>)> {
    let name = file.files.fifo(request.id);
    let fifo = fifo::make(&file.directory, &name, &file.files.unready()).inspect_err(|_| {
        undo(places);
        file.directory.unlink(&name);
    })?;
    Ok((Some(name), Some(fifo)))
}

/// Wakes the superseded claims and the waiters behind them.
fn tell(files: &[Arc<QueueFile>], queues: &[ReadQueue], victims: &[Vec<Record>]) -> FaultResult<()> {
    let mut told = Ok(());
    for (file, (queue, victims)) in files.iter().zip(queues.iter().zip(victims)) {
        for victim in victims {
            told = told.and(file.wake(queue, victim));
            told = told.and(grant::wake_behind(file, queue, victim));
        }
    }
    told
}

fn first_record(request: &Request) -> Fixed {
    Fixed {
        state: State::Waiting,
        asked: false,
        supersede: request.supersede,
        fifo: if request.names.len() > 1 { Which::First } else { Which::Own },
        mode: request.mode,
        slot: 0,
        token: 0,
        since: token::wall(),
        id: request.id,
    }
}

/// Refuses a queue of another kind (C15), and a claim that is in the queue already.
fn check_kinds(file: &QueueFile, queue: &mut ReadQueue, request: &Request) -> FaultResult<()> {
    let suspicious = |r: &Record| {
        r.fixed.id == request.id || (r.fixed.state.in_queue() && !r.fixed.mode.mixes_with(request.mode))
    };
    for index in (0..queue.image.records.len()).rev() {
        let record = &queue.image.records[index];
        if !suspicious(record) {
            continue;
        }
        if let Life::Dead = file.life(queue, record)? {
            file.bury(queue, record)?;
            queue.image.records.remove(index);
            continue;
        }
        if record.fixed.id == request.id {
            let reason = format!("the claim {} is already in the queue, from another process", request.id);
            return Err(Fault::new(ErrorKind::Invalid, reason));
        }
        let who = queue.image.details(record).map(|details| details.holder.to_string());
        let used = Use::Mode(record.fixed.mode);
        let reason = mismatch(Some(&file.lock), who.as_deref(), used, request.mode);
        return Err(Fault::new(ErrorKind::Mismatch, reason));
    }
    Ok(())
}

/// Takes the older waiters that also supersede out of the queue as read, but not yet out of its file.
fn take_out_older(file: &QueueFile, queue: &mut ReadQueue) -> FaultResult<Vec<Record>> {
    let holders = grant::holders(file, queue)?;
    let mut victims = Vec::new();
    for record in &mut queue.image.records {
        let blocked = record.fixed.state == State::Blocked;
        let holds = !blocked && holders.iter().any(|holder| holder.at == record.at);
        let waiting = matches!(record.fixed.state, State::Waiting | State::Blocked) && !holds;
        if record.fixed.supersede && waiting {
            victims.push(record.clone());
            record.fixed.state = State::Superseded;
        }
    }
    Ok(victims)
}

/// Takes the victims out of the files. First writes a mark for each that names the superseding holder, since there may
/// be no room for it.
fn supersede(
    files: &[Arc<QueueFile>],
    queues: &mut [ReadQueue],
    victims: &[Vec<Record>],
    request: &Request,
) -> FaultResult<()> {
    for (file, (queue, victims)) in files.iter().zip(queues.iter_mut().zip(victims)) {
        for victim in victims {
            let mark = mark_line(Mark::Superseded, victim.fixed.id, &request.holder, 0);
            file.append(queue, &mark, 0, false)?;
        }
    }
    for (file, victims) in files.iter().zip(victims) {
        for victim in victims {
            file.set_state(victim.at, State::Superseded)?;
        }
    }
    Ok(())
}

/// Writes the record into all queues, as a hold if the locks were taken.
fn write(
    places: &mut [QueuedClaim],
    queues: &mut [ReadQueue],
    request: &Request,
    holds: bool,
) -> FaultResult<()> {
    let several = request.names.len() > 1;
    let details = Details {
        holder: request.holder.clone(),
        ancestors: ancestor_ids(request),
        ancestor_names: ancestor_names(request),
        names: request.names.iter().filter(|_| several).map(|n| n.as_str().to_owned()).collect(),
    };
    for (place, queue) in places.iter_mut().zip(queues) {
        if holds {
            place.fixed.state = State::Held;
            place.fixed.slot = place.slot.as_ref().map_or(0, |(k, _)| *k);
            place.fixed.token =
                token::take(&mut queue.header, place.queue.directory.boot()).unwrap_or_default();
        }
        let text = record_line(&place.fixed, &details);
        place.at = place.queue.append(queue, &text, FIXED, holds)?;
        place.end = place.at + text.len() as u64;
    }
    Ok(())
}

/// Removes the records that were written.
fn undo(places: &[QueuedClaim]) {
    for place in places.iter().filter(|p| p.end > 0) {
        let _ = place.queue.remove(place.fixed.id, place.at, place.end, None);
    }
}
