//! Looking at queues from outside.

use std::cell::LazyCell;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Dir, FileType, OFlags};

use super::directory::{Directory, Identity};
use super::fault::{self, is_of_others};
use super::fifo::Life;
use super::grant::QueuedClaim;
use super::guard;
use super::locker::{self, Locker, Locks, lockers};
use super::names::base_of_queue;
use super::queue::{Mark, Record, State};
use super::storage::{QueueFile, ReadQueue};
use crate::backend::record::parsed;
use crate::backend::{foreign, success};
use crate::lock::{Entry, FencingToken, Holder, LockName, LockStatus, Mode, Moment, queue};
use crate::net::fault::FaultResult;

fn time(micros: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(micros)
}

/// Returns the owner of `record`, with its latest label.
fn labelled(queue: &ReadQueue, record: &Record, mut holder: Holder) -> Holder {
    if let Some((_, _, label)) = queue.image.mark(Mark::Label, record.fixed.id) {
        holder.label = serde_json::from_slice(label).ok().or(holder.label);
    }
    holder
}

/// Returns `record` as seen from outside; `ahead` counts the claims ahead of a waiter.
pub(super) fn entry(queue: &ReadQueue, record: &Record, ahead: Option<u32>) -> Entry {
    let fixed = &record.fixed;
    let details = queue.image.details(record);
    let (ancestors, related) = details.as_ref().map_or_else(Default::default, |details| {
        (parsed(&details.ancestors), [parsed(&details.names), parsed(&details.ancestor_names)].concat())
    });
    let holder = details.map(|details| labelled(queue, record, details.holder));
    let text = |get: fn(&Holder) -> &String| holder.as_ref().map(get).cloned();
    Entry {
        claim: Some(fixed.id),
        mode: Some(fixed.mode),
        slot: (fixed.slot > 0).then_some(fixed.slot),
        token: FencingToken::new(fixed.token),
        host: text(|h| &h.host),
        pid: holder.as_ref().map(|h| h.pid),
        born: holder.as_ref().and_then(|h| h.born),
        user: text(|h| &h.user),
        command: text(|h| &h.command),
        label: holder.as_ref().and_then(|h| h.label.clone()),
        key: None,
        since: Some(time(fixed.since)),
        ttl: None,
        ahead,
        foreign: false,
        replace: holder.as_ref().is_some_and(|h| h.replace),
        verb: holder.as_ref().map(|h| h.verb).unwrap_or_default(),
        ancestors,
        related,
    }
}

/// Returns the entry of a hold of `file` at `path` that belongs to no claim.
fn stranger(path: &Path, file: Identity, locker: Option<Locker>) -> Entry {
    let mode = if locker.is_none_or(|l| l.exclusive) { Mode::Exclusive } else { Mode::Shared };
    let name = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    let pid = locker::who_has(file, locker).filter(|pid| name(*pid).is_some());
    let command = pid.and_then(name).map(|n| n.trim_end().to_owned());
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let by = locker.map_or(0, |locker| locker.pid);
    let claim = foreign::identity([&file.0.to_be_bytes(), &file.1.to_be_bytes(), &by.to_be_bytes()]);
    Entry {
        claim: Some(claim),
        mode: Some(mode),
        host: Some(host),
        pid,
        command,
        key: Some(format!("file {}", path.display())),
        foreign: true,
        ..Entry::default()
    }
}

/// Returns the holder of the lock file of `place`, for which its claim waits, as far as the kernel shows it.
pub(super) fn foreign_holder(place: &QueuedClaim) -> Entry {
    let file = place.slot.as_ref().map_or_else(|| place.hold.identity(), |(_, slot)| slot.identity());
    let path = place.queue.directory.path_of(place.queue.files.canonical());
    stranger(&path, file, lockers(file).first().copied())
}

/// Returns the queue of `lock`. With `probe` it also finds holders in other PID namespaces, by locking the file for a
/// moment.
pub(super) async fn status(
    directory: &Arc<Directory>,
    lock: &LockName,
    probe: bool,
    deadline: Moment,
) -> FaultResult<LockStatus> {
    let mut status = LockStatus::empty(lock);
    let file = QueueFile::open(directory, lock, false)?;
    let Some(file) = file else {
        status.holders.extend(strangers(directory, lock, &LazyCell::new(Locks::read), &[], probe)?);
        return Ok(status);
    };
    let _guard = file.guard(deadline).await?;
    let queue = file.read(None)?;
    let locks: LazyCell<Locks> = LazyCell::new(Locks::read);
    let mut present = Vec::new();
    // The processes that have the lock file locked for a claim: their pids in this namespace.
    let mut owners = Vec::new();
    for record in &queue.image.records {
        let Life::Alive(fifo) = file.life(&queue, record)? else { continue };
        if record.fixed.token > 0 {
            owners.push(file.owner(&fifo, &locks)?);
        }
        if record.fixed.state.in_queue() {
            present.push(record);
        }
    }
    let modes: Vec<Mode> = present.iter().map(|r| r.fixed.mode).collect();
    let holding = queue::held(&modes);
    for (index, record) in present.iter().enumerate() {
        if index < holding && record.fixed.state != State::Blocked {
            status.holders.push(entry(&queue, record, None));
        } else {
            status.waiters.push(entry(&queue, record, u32::try_from(index).ok()));
        }
    }
    status.holders.extend(strangers(directory, lock, &locks, &owners, probe)?);
    Ok(status)
}

/// Returns the holders of the lock file that belong to no claim.
fn strangers(
    directory: &Directory,
    lock: &LockName,
    locks: &LazyCell<Locks>,
    owners: &[Option<u32>],
    probe: bool,
) -> FaultResult<Vec<Entry>> {
    let files = directory.naming.of(lock)?;
    let Some(identity) = directory.present(files.canonical())? else { return Ok(Vec::new()) };
    let path = directory.path_of(files.canonical());
    let mut lockers = locks.lockers(identity);
    for owner in owners.iter().flatten() {
        if let Some(at) = lockers.iter().position(|l| l.pid == *owner) {
            lockers.remove(at);
        }
    }
    if lockers.is_empty() && owners.is_empty() && (probe || !locks.are_known()) {
        let Some((file, _)) = directory.open(files.canonical(), OFlags::RDONLY)? else {
            return Ok(Vec::new());
        };
        let free =
            guard::try_lock(&file, false).map_err(fault::os("lock", directory.path_of(files.canonical())))?;
        return Ok(if free { Vec::new() } else { vec![stranger(&path, identity, None)] });
    }
    Ok(lockers.into_iter().map(|l| stranger(&path, identity, Some(l))).collect())
}

/// Returns the names of the queues and of the flocked lock files, sorted.
pub(super) fn names(directory: &Directory) -> FaultResult<Vec<LockName>> {
    let at = || directory.path().to_owned();
    let Some(opened) = directory.open_listing()? else { return Ok(Vec::new()) };
    let locks = Locks::read();
    let mut names = Vec::new();
    for found in Dir::read_from(&opened).map_err(fault::os("list", at()))? {
        let found = found.map_err(fault::os("list", at()))?;
        let Ok(file) = found.file_name().to_str() else { continue };
        if base_of_queue(file).is_some() {
            match name_in(directory, file) {
                Err(fault) if is_of_others(&fault) => {}
                found => names.extend(found?),
            }
        } else if !file.starts_with('.') {
            let identity = (directory.identity().0, found.ino());
            let is_file = found.file_type() == FileType::RegularFile;
            if if locks.are_known() { !locks.lockers(identity).is_empty() } else { is_file } {
                names.extend(directory.naming.lock_of(file));
            }
        }
    }
    names.sort();
    names.dedup();
    Ok(names)
}

/// Returns the lock that the header of `file` names, if `file` is the queue of that lock.
fn name_in(directory: &Directory, file: &str) -> FaultResult<Option<LockName>> {
    let Some((opened, _)) = directory.open(file, OFlags::RDONLY)? else { return Ok(None) };
    let mut bytes = vec![0; super::header::HEADER];
    let got =
        rustix::io::pread(&opened, &mut bytes, 0).map_err(fault::os("read", directory.path_of(file)))?;
    let header = super::header::Header::parse(&bytes[..got]).ok().flatten();
    let lock = header.and_then(|h| LockName::new(h.name).ok());
    Ok(lock.filter(|l| directory.naming.of(l).is_ok_and(|f| f.queue() == file)))
}

/// Returns the age of the last success under `lock`: the time since that run acquired.
pub(super) async fn last_success(
    directory: &Arc<Directory>,
    lock: &LockName,
    deadline: Moment,
) -> FaultResult<Option<Duration>> {
    let Some(file) = QueueFile::open(directory, lock, false)? else { return Ok(None) };
    let _guard = file.guard(deadline).await?;
    let acquired = file.read(Some(0))?.header.success;
    if acquired == 0 {
        return Ok(None);
    }
    Ok(success::age(Duration::from_micros(super::token::wall()), Duration::from_micros(acquired)))
}
