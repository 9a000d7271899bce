//! Looking at queues from outside.

use std::path::Path;
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Dir, FileType, OFlags};

use super::contents;
use super::directory::{Directory, Identity, identity_of};
use super::fault::{self, is_of_others};
use super::flock;
use super::header::{HEADER, Header, wall};
use super::hold::Hold;
use super::locker::{self, Locker, Locks, lockers};
use super::storage::QueueFile;
use crate::backend::record::foreign_claim;
use crate::backend::success;
use crate::lock::{LockName, Mode, Moment};
use crate::net::fault::FaultResult;
use crate::queue::store::{About, Item, Key};

/// Returns the item of a process that has `file`, the lock file `path` of `lock`, locked for no claim.
fn stranger(lock: &LockName, path: &Path, file: Identity, locker: Option<Locker>) -> Item {
    let mode = if locker.is_none_or(|l| l.exclusive) { Mode::Exclusive } else { Mode::Shared };
    let name = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    let pid = locker::who_has(file, locker).filter(|pid| name(*pid).is_some());
    let by = locker.map_or(0, |locker| locker.pid);
    let claim = foreign_claim([&file.0.to_be_bytes(), &file.1.to_be_bytes(), &by.to_be_bytes()]);
    let mut about = About::foreign(lock, claim, format!("file {}", path.display()));
    about.entry.mode = Some(mode);
    about.entry.host = Some(rustix::system::uname().nodename().to_string_lossy().into_owned());
    about.entry.pid = pid;
    about.entry.command = pid.and_then(name).map(|name| name.trim_end().to_owned());
    let text = pid.map(|pid| pid.to_string()).unwrap_or_default();
    Item::foreign(Key { order: 0, text }, None, about)
}

/// Returns the process that has the lock file or slot file `hold` of `queue` locked, as far as the kernel shows it.
pub(super) fn holder_of(queue: &QueueFile, hold: &Hold) -> FaultResult<Item> {
    let path = queue.directory.path_of(queue.files.canonical());
    let file = identity_of(&queue.directory.stat(&hold.name, &hold.file)?);
    Ok(stranger(&queue.lock, &path, file, lockers(&queue.directory, file).first().copied()))
}

/// Returns the processes that have the lock file locked and belong to no claim. `owners` have it locked for a claim. If no
/// process is seen, tries the lock for a moment: a process in another PID namespace may have it.
pub(super) fn strangers(
    directory: &Directory,
    lock: &LockName,
    locks: &Locks,
    owners: &[Option<u32>],
    probe: bool,
    is_blocked: bool,
) -> FaultResult<Vec<Item>> {
    let files = directory.naming.of(lock)?;
    let Some(identity) = directory.present(files.canonical())? else { return Ok(Vec::new()) };
    let path = directory.path_of(files.canonical());
    let mut lockers: Vec<_> = locks.lockers(identity).into_iter().map(Some).collect();
    lockers.retain(|locker| !owners.contains(&locker.map(|locker| locker.pid)));
    if lockers.is_empty() && owners.is_empty() {
        let probes = probe || !locks.are_known();
        let unseen = if probes { !is_free(directory, files.canonical())? } else { is_blocked };
        lockers.extend(unseen.then_some(None));
    }
    Ok(lockers.into_iter().map(|locker| stranger(lock, &path, identity, locker)).collect())
}

fn is_free(directory: &Directory, file: &str) -> FaultResult<bool> {
    let Some(opened) = directory.open(FileType::RegularFile, file, OFlags::RDONLY)? else { return Ok(true) };
    flock::try_lock(&opened, false).map_err(fault::os("lock", directory.path_of(file)))
}

/// Returns the names of the queues and of the flocked lock files, sorted.
pub(super) fn names(directory: &Directory) -> FaultResult<Vec<LockName>> {
    let at = || directory.path().to_owned();
    let opened = directory.open(FileType::Directory, ".", OFlags::RDONLY)?;
    let Some(opened) = opened else { return Ok(Vec::new()) };
    let locks = Locks::read(directory);
    let mut names = Vec::new();
    for found in Dir::read_from(&opened).map_err(fault::os("list", at()))? {
        let found = found.map_err(fault::os("list", at()))?;
        let Ok(file) = found.file_name().to_str() else { continue };
        if file.strip_prefix('.').and_then(|file| file.strip_suffix(".queue")).is_some() {
            match name_in(directory, file) {
                Err(fault) if is_of_others(&fault) => {}
                found => names.extend(found?),
            }
        } else if !file.starts_with('.') {
            let identity = (directory.identity.0, found.ino());
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
    let opened = directory.open(FileType::RegularFile, file, OFlags::RDONLY)?;
    let Some(opened) = opened else { return Ok(None) };
    let mut bytes = vec![0; HEADER];
    let got =
        rustix::io::pread(&opened, &mut bytes, 0).map_err(fault::os("read", directory.path_of(file)))?;
    let header = Header::parse(&bytes[..got]).ok().flatten();
    let lock = header.and_then(|h| LockName::new(h.name).ok());
    Ok(lock.filter(|l| directory.naming.of(l).is_ok_and(|f| f.queue() == file)))
}

/// Returns the age of the last success under `lock`: the time since that run acquired.
pub(super) async fn last_success(
    directory: &Arc<Directory>,
    lock: &LockName,
    deadline: Moment,
) -> FaultResult<Option<Duration>> {
    let queues = contents::open(directory, from_ref(lock), false, deadline).await?;
    let acquired = queues.first().map(|queue| queue.header.success).filter(|acquired| !acquired.is_zero());
    Ok(acquired.and_then(|acquired| success::age(Duration::from_micros(wall()), acquired)))
}
