//! The surroundings of a lock directory: programs that remove old files there, and mounts that hide it from other
//! processes.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::fs::{
    FlockOperation, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, flock, fstat, futimens, openat,
};
use rustix::io::Errno;

use super::header::wall;

/// Directories from which others remove files, and when. The first one that fits counts.
const SWEPT: [(&str, &str); 5] = [
    ("/run/user", "systemd-logind removes them when the user has logged out"),
    ("/tmp", "systemd-tmpfiles removes old files there, and a restart of the host removes all of them"),
    ("/var/tmp", "systemd-tmpfiles removes files there that no run has used for 30 days"),
    ("/run", "a restart of the host removes all of them"),
    (
        "/dev/shm",
        "systemd-logind removes a user's files there at the logout, and a restart of the host removes all of them",
    ),
];

/// How often the lock on a directory is tried, and the pause between two tries.
const TRIES: u32 = 25;
const BETWEEN: Duration = Duration::from_millis(20);
/// The age, in seconds, from which a file's times are updated.
const OLD: i64 = 24 * 60 * 60;

/// Returns the place that contains `path` and from which others remove files, and when they do. `path` must be
/// resolved.
pub(super) fn swept(path: &Path) -> Option<(&'static str, &'static str)> {
    SWEPT.into_iter().find(|(place, _)| path.starts_with(place) && path != Path::new(place))
}

/// Returns the directory above `path` that only a part of the host sees under that name, such as the /var/tmp of a unit
/// with `PrivateTmp=`. systemd and `pam_namespace` mount a directory of a known name there.
pub(super) fn private(path: &Path) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let fields = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(3);
        Some((Path::new(fields.next()?), Path::new(fields.next()?)))
    });
    // The last of several mounts in one place is the visible one.
    let (root, point) = fields
        .filter(|(_, point)| path.starts_with(point))
        .max_by_key(|(_, point)| point.components().count())?;
    let is_own = |name: &str| name.starts_with("systemd-private-") || name.starts_with("tmp-inst");
    let own = root.components().any(|part| part.as_os_str().to_str().is_some_and(is_own));
    own.then(|| point.to_owned())
}

/// Locks the directory `handle`, shared, if others remove old files there: systemd-tmpfiles skips a locked directory.
///
/// It may be sweeping the directory just now. If the directory is this user's own (`waits`), it is waited for: a
/// removed file would cost the hold.
pub(super) fn keep_from_sweepers(handle: &OwnedFd, waits: bool) -> Option<OwnedFd> {
    swept(&fs::read_link(format!("/proc/self/fd/{}", handle.as_raw_fd())).ok()?)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(handle, c".", flags, Mode::empty()).ok()?;
    let tries = if waits { TRIES } else { 1 };
    for left in (0..tries).rev() {
        match flock(&directory, FlockOperation::NonBlockingLockShared) {
            Ok(()) => return Some(directory),
            Err(Errno::INTR | Errno::WOULDBLOCK) if left > 0 => std::thread::sleep(BETWEEN),
            Err(_) => return None,
        }
    }
    None
}

/// Updates the times of an old file, so that it looks used, for programs that go by its times alone. flock(2) changes
/// none.
pub(super) fn freshen(file: &OwnedFd) {
    let Ok(stat) = fstat(file) else { return };
    let now = i64::try_from(wall() / 1_000_000).unwrap_or(0);
    if now.saturating_sub(stat.st_mtime) > OLD {
        let at = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        // Another user's file stays as it is.
        let _ = futimens(file, &Timestamps { last_access: at, last_modification: at });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swept_places_are_known_by_their_whole_names() {
        let place = |path: &str| swept(Path::new(path)).map(|(place, _)| place);
        assert_eq!(place("/var/tmp/dlock-1000"), Some("/var/tmp"));
        assert_eq!(place("/run/user/1000/locks"), Some("/run/user"));
        assert_eq!(place("/run/locks"), Some("/run"));
        assert_eq!(place("/tmp"), None, "not in the table");
        assert_eq!(place("/tmpfoo/locks"), None);
        assert_eq!(place("/var/lib/dlock"), None);
    }
}
