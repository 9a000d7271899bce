//! Which processes have a flock on a file, as the kernel shows them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;

use super::directory::Identity;

/// A process that has a flock on a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Locker {
    pub(super) pid: u32,
    pub(super) exclusive: bool,
}

/// How often the table is read. For the first reading the kernel waits for its processors (8 ms); each further one
/// takes 10 µs.
const READINGS: usize = 9;

/// The locks of this host, without those of other PID namespaces.
///
/// The kernel hands out its table in pieces: as much as is asked for, and at most a page. If a lock comes or goes
/// between two pieces, another one may be repeated at the seam, or left out. If many go, the second piece is empty, and
/// the table looks as if it had one piece.
///
/// So each read asks for much, unlike the first read of the standard library. The table is read several times, and the
/// majority of the readings counts.
pub(super) struct Locks(Vec<String>);

impl Locks {
    pub(super) fn read() -> Self {
        Self(std::iter::repeat_with(reading).take(READINGS).flatten().collect())
    }

    /// Returns whether the table could be read. Only then a file without a locker is free.
    pub(super) fn are_known(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns the processes that have a flock on the file in most readings, each once.
    pub(super) fn lockers(&self, file: Identity) -> Vec<Locker> {
        let mut times = BTreeMap::new();
        for text in &self.0 {
            let found: BTreeSet<Locker> = text.lines().filter_map(|line| locker(line, file)).collect();
            for locker in found {
                *times.entry(locker).or_insert(0) += 1;
            }
        }
        times.into_iter().filter(|(_, times)| times * 2 > self.0.len()).map(|(locker, _)| locker).collect()
    }
}

/// Reads the table once, if it can be read.
fn reading() -> Option<String> {
    let mut table = Vec::new();
    let mut file = File::open("/proc/locks").ok()?;
    let mut piece = [0; 8192];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Some(String::from_utf8_lossy(&table).into_owned()),
            Ok(length) => table.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// Returns the processes that have a flock on the file.
pub(super) fn lockers(file: Identity) -> Vec<Locker> {
    Locks::read().lockers(file)
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
        let number = entry.file_name();
        // The locks of this open file only: other processes open the same file to wait for it.
        let locks =
            || fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", number.display())).unwrap_or_default();
        is_file
            && locks()
                .lines()
                .filter_map(|line| line.strip_prefix("lock:"))
                .any(|lock| lock.contains("FLOCK"))
    }))
}

/// Reads `1: FLOCK  ADVISORY  WRITE 4121 fd:00:1234 0 EOF`; a waiting lock has `->` behind the number.
fn locker(line: &str, file: Identity) -> Option<Locker> {
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
    ((rustix::fs::makedev(major, minor), inode) == file).then_some(Locker { pid, exclusive })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::fs::FlockOperation;

    use super::super::testing::TempDir;
    use super::*;

    #[test]
    fn majority_of_readings_counts() {
        let (line, file) =
            ("1: FLOCK  ADVISORY  WRITE 4121 fd:01:1234 0 EOF\n", (rustix::fs::makedev(0xfd, 0x1), 1234));
        let twice = [line, line].concat();
        for odd in ["", &twice] {
            for readings in [[odd, line, line], [line, odd, line], [line, line, odd]] {
                let locks = Locks(readings.map(str::to_owned).to_vec());
                assert_eq!(locks.lockers(file), [Locker { pid: 4121, exclusive: true }]);
            }
        }
        assert_eq!(Locks(vec![String::new()]).lockers(file), []);
        assert!(Locks(vec![String::new()]).are_known() && !Locks(Vec::new()).are_known());
    }

    #[test]
    fn lasting_locks_are_seen_while_others_come_and_go() {
        let temp = TempDir::new();
        let create = |name: String| File::create(temp.path().join(name)).expect("created");
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
                let locks = Locks::read();
                identities.iter().filter(|file| locks.lockers(**file).len() != 1).count()
            };
            let wrong: usize = (0..50).map(|_| wrong()).sum();
            over.store(true, Ordering::Relaxed);
            wrong
        });
        // A majority can be wrong, too, if other programs change the table all the time.
        assert!(wrong <= 2, "{wrong} of 2,500");
    }

    #[test]
    fn kernel_lock_line_is_parsed() {
        let file = (rustix::fs::makedev(0xfd, 0x1), 1234);
        let write = "1: FLOCK  ADVISORY  WRITE 4121 fd:01:1234 0 EOF";
        assert_eq!(locker(write, file), Some(Locker { pid: 4121, exclusive: true }));
        let read = "12: FLOCK  ADVISORY  READ  7 fd:01:1234 0 EOF";
        assert_eq!(locker(read, file), Some(Locker { pid: 7, exclusive: false }));
        for other in [
            "1: -> FLOCK  ADVISORY  WRITE 4121 fd:01:1234 0 EOF",
            "1: POSIX  ADVISORY  WRITE 4121 fd:01:1234 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 4121 fd:01:1235 0 EOF",
            "",
        ] {
            assert_eq!(locker(other, file), None, "{other}");
        }
    }
}
