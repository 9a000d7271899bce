//! Which processes have a flock on a file, as the kernel shows them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt;

use super::directory::{Directory, Identity};

/// A process that has a flock on a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Locker {
    pub(super) pid: u32,
    pub(super) exclusive: bool,
}

/// How often the table is read. For the first reading the kernel waits for its processors (8 ms); each further one
/// takes 10 µs.
const READINGS: usize = 5;

/// Room for a table, so that the kernel is asked for whole pages.
const ROOM: usize = 64 * 1024;

/// The locks of this host, without those of other PID namespaces.
///
/// The kernel hands out its table in pieces of at most a page. If a lock comes or goes between two pieces, another one
/// may be repeated at the seam, or left out. So the table is read several times, and a lock counts that any reading has.
pub(super) struct Locks {
    table: Option<String>,
    /// The device that the table has for the files of the lock directory, if it is known.
    device: Option<u64>,
}

impl Locks {
    /// Reads the locks, to find those on files in `directory`.
    pub(super) fn read(directory: &Directory) -> Self {
        let mut table = Vec::with_capacity(ROOM);
        let mut reading = || File::open("/proc/locks")?.read_to_end(&mut table);
        let is_read = (0..READINGS).all(|_| reading().is_ok());
        let table = is_read.then(|| String::from_utf8_lossy(&table).into_owned());
        Self { table, device: directory.device() }
    }

    /// Returns whether the table could be read. Only then a file without a locker is free.
    pub(super) fn are_known(&self) -> bool {
        self.table.is_some()
    }

    /// Returns the processes that have a flock on the file, each once.
    pub(super) fn lockers(&self, file: Identity) -> Vec<Locker> {
        let (device, inode) = file;
        let lines = self.table.iter().flat_map(|text| text.lines()).filter_map(locker);
        // A file that is mounted in the directory has a device of its own.
        let on_file = lines.filter(|((found, number), _)| {
            *number == inode && (*found == device || Some(*found) == self.device)
        });
        on_file.map(|(_, locker)| locker).collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// Returns the processes that have a flock on the file in `directory`.
pub(super) fn lockers(directory: &Directory, file: Identity) -> Vec<Locker> {
    Locks::read(directory).lockers(file)
}

/// Returns a process that has the lock on the file now. The process that took it may have ended, or its number may be
/// another process's by now. Then it is a process that inherited the descriptor, if one can be seen.
pub(super) fn who_has(file: Identity, taker: Option<Locker>) -> Option<u32> {
    let taker = taker.map(|taker| taker.pid).filter(|pid| has_lock(*pid, file) != Some(false));
    taker.or_else(|| {
        let processes = fs::read_dir("/proc").ok()?.flatten();
        let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.find(|pid| has_lock(*pid, file) == Some(true))
    })
}

/// Returns whether `pid` has a descriptor with a flock on the file; `None` if this process may not see it.
fn has_lock(pid: u32, file: Identity) -> Option<bool> {
    let descriptors = match fs::read_dir(format!("/proc/{pid}/fd")) {
        Ok(descriptors) => descriptors,
        Err(error) if error.kind() == ErrorKind::NotFound => return Some(false),
        Err(_) => return None,
    };
    Some(descriptors.flatten().any(|entry| {
        let is_file = fs::metadata(entry.path()).is_ok_and(|found| (found.dev(), found.ino()) == file);
        // The locks of this open file only: other processes open the same file to wait for it.
        let info = format!("/proc/{pid}/fdinfo/{}", entry.file_name().display());
        is_file && fs::read_to_string(info).is_ok_and(|info| info.contains("FLOCK"))
    }))
}

/// Reads `1: FLOCK  ADVISORY  WRITE 4121 fd:00:1234 0 EOF`; a waiting lock has `->` behind the number.
fn locker(line: &str) -> Option<(Identity, Locker)> {
    let mut words = line.split_ascii_whitespace().skip(1);
    if words.next()? != "FLOCK" {
        return None;
    }
    let exclusive = words.nth(1)? == "WRITE";
    let pid = words.next()?.parse().ok()?;
    let mut parts = words.next()?.split(':');
    let major = u32::from_str_radix(parts.next()?, 16).ok()?;
    let minor = u32::from_str_radix(parts.next()?, 16).ok()?;
    let inode: u64 = parts.next()?.parse().ok()?;
    Some(((rustix::fs::makedev(major, minor), inode), Locker { pid, exclusive }))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::fs::FlockOperation;

    use super::super::testing::fixture;
    use super::*;

    #[test]
    fn lasting_locks_are_seen_while_others_come_and_go() {
        let f = fixture();
        let create = |name: String| File::create(f.temp.path().join(name)).expect("created");
        let all = |files: &[File], operation| {
            for file in files {
                rustix::fs::flock(file, operation).expect("flock");
            }
        };
        // Enough for a table of two pages, with a seam somewhere among the locks that stay.
        let held: Vec<_> = (0..50).map(|n| create(format!("held{n}"))).collect();
        let others: Vec<_> = (0..80).map(|n| create(n.to_string())).collect();
        all(&held, FlockOperation::LockExclusive);
        let identities: Vec<_> = held
            .iter()
            .map(|file| rustix::fs::fstat(file).map(|s| (s.st_dev, s.st_ino)).expect("stat"))
            .collect();
        let over = AtomicBool::new(false);
        let wrong = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    all(&others, FlockOperation::LockExclusive);
                    all(&others, FlockOperation::Unlock);
                }
            });
            let wrong = || {
                let locks = Locks::read(f.backend.made());
                identities.iter().filter(|file| locks.lockers(**file).len() != 1).count()
            };
            let wrong: usize = (0..50).map(|_| wrong()).sum();
            over.store(true, Ordering::Relaxed);
            wrong
        });
        // All readings can lack a lock, if other programs change the table all the time.
        assert!(wrong <= 2, "{wrong} of 2,500");
    }

    #[test]
    fn kernel_lock_line_is_parsed() {
        let file = (rustix::fs::makedev(0xfd, 0x1), 1234);
        let write = "1: FLOCK  ADVISORY  WRITE 4121 fd:01:1234 0 EOF";
        assert_eq!(locker(write), Some((file, Locker { pid: 4121, exclusive: true })));
        let read = "12: FLOCK  ADVISORY  READ  7 fd:01:1234 0 EOF";
        assert_eq!(locker(read), Some((file, Locker { pid: 7, exclusive: false })));
        for other in [
            "1: -> FLOCK  ADVISORY  WRITE 4121 fd:01:1234 0 EOF",
            "1: POSIX  ADVISORY  WRITE 4121 fd:01:1234 0 EOF",
            "",
        ] {
            assert_eq!(locker(other), None, "{other}");
        }
    }
}
