//! Who has a flock on a file, as the kernel tells.

use std::fs::File;
use std::io::Read;

use super::directory::Identity;

/// A process that has a flock on a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Locker {
    pub(super) pid: u32,
    pub(super) exclusive: bool,
}

/// How often a table of several pieces is read.
const READINGS: usize = 9;

/// The locks of this host; those of other PID namespaces are not seen.
///
/// The kernel hands out its table in pieces: as much as is asked for, and at most a page. A lock that comes or goes
/// between two pieces has it repeat another one at the seam, or leave it out. So nothing little is asked for, as the
/// standard library does first, and a table of several pages is read several times: what most readings say counts.
pub(super) struct Locks(Vec<String>);

impl Locks {
    pub(super) fn read() -> Self {
        let (first, pieces) = reading();
        let more = (1..READINGS).filter(|_| pieces > 1).map(|_| reading().0);
        Self(std::iter::once(first).chain(more).collect())
    }

    /// Who has a flock on the file.
    pub(super) fn lockers(&self, file: Identity) -> Vec<Locker> {
        let of = |text: &String| {
            let mut found: Vec<Locker> = text.lines().filter_map(|line| locker(line, file)).collect();
            found.sort_by_key(|locker| (locker.pid, locker.exclusive));
            found
        };
        let readings: Vec<_> = self.0.iter().map(of).collect();
        let times = |found: &&Vec<Locker>| readings.iter().filter(|other| other == found).count();
        readings.iter().max_by_key(times).cloned().unwrap_or_default()
    }
}

/// One reading of the table, and of how many pieces it is. What cannot be read is empty.
fn reading() -> (String, usize) {
    let mut table = Vec::new();
    let mut pieces = 0;
    if let Ok(mut file) = File::open("/proc/locks") {
        let mut piece = [0; 8192];
        while let Ok(length @ 1..) = file.read(&mut piece) {
            table.extend_from_slice(&piece[..length]);
            pieces += 1;
        }
    }
    (String::from_utf8_lossy(&table).into_owned(), pieces)
}

/// Who has a flock on the file.
pub(super) fn lockers(file: Identity) -> Vec<Locker> {
    Locks::read().lockers(file)
}

/// Reads `1: FLOCK  ADVISORY  WRITE 4121 fd:00:1234 0 EOF`; waiting ones have `->` behind the number.
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
    use rustix::fs::FlockOperation;

    use super::*;

    #[test]
    fn what_most_readings_say_counts() {
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
    }

    #[test]
    fn a_table_of_one_piece_leaves_nothing_out_while_locks_come_and_go() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let temp = tempfile();
        let held = File::create(temp.join("held")).expect("created");
        rustix::fs::flock(&held, FlockOperation::LockExclusive).expect("locked");
        let stat = rustix::fs::fstat(&held).expect("stat");
        let over = AtomicBool::new(false);
        let missed = std::thread::scope(|scope| {
            scope.spawn(|| {
                let files: Vec<_> =
                    (0..20).map(|n| File::create(temp.join(n.to_string())).expect("created")).collect();
                while !over.load(Ordering::Relaxed) {
                    for operation in [FlockOperation::LockExclusive, FlockOperation::Unlock] {
                        for file in &files {
                            rustix::fs::flock(file, operation).expect("flock");
                        }
                    }
                }
            });
            let file = (stat.st_dev, stat.st_ino);
            // Of a table of several pages a single reading may be wrong.
            let seamless = (0..1_000).map(|_| reading()).filter(|(_, pieces)| *pieces == 1);
            let missed =
                seamless.filter(|(table, _)| !table.lines().any(|l| locker(l, file).is_some())).count();
            over.store(true, Ordering::Relaxed);
            missed
        });
        std::fs::remove_dir_all(temp).expect("removed");
        assert_eq!(missed, 0, "readings without a seam");
    }

    fn tempfile() -> std::path::PathBuf {
        let temp = std::env::temp_dir().join(format!("dlock-locker-{}", std::process::id()));
        std::fs::create_dir(&temp).expect("a new folder");
        temp
    }

    #[test]
    fn reads_what_the_kernel_writes() {
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
