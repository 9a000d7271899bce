//! The surroundings of a lock directory: programs that remove old files there, mounts that hide it from other processes,
//! and its file system.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, makedev, openat};
use rustix::io::Errno;

/// The directory from which systemd-tmpfiles removes files by their age alone.
pub(super) const AGED: &str = "/var/tmp";

/// Directories from which others remove files. The first one that fits counts.
const SWEPT: [&str; 5] = [AGED, "/tmp", "/run/user", "/run", "/dev/shm"];

/// How often the lock on a directory is tried, and the pause between two tries.
const TRIES: u32 = 25;
const BETWEEN: Duration = Duration::from_millis(20);

/// Returns the place that contains `path`, which must be resolved, and from which others remove files.
pub(super) fn swept(path: &Path) -> Option<&'static str> {
    SWEPT.into_iter().find(|place| path.starts_with(place) && path != Path::new(place))
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

/// Returns the device of the file system of `handle`, as the kernel's tables have it. With btrfs and overlayfs, stat(2) reports
/// others.
pub(super) fn device(handle: &OwnedFd) -> Option<u64> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", handle.as_raw_fd())).ok()?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mut mounts = mounts.lines().map(|line| line.split(' '));
    let device =
        mounts.find_map(|mut fields| fields.next().filter(|first| *first == id).and(fields.nth(1)))?;
    let (major, minor) = device.split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swept_places_are_known_by_their_whole_names() {
        let place = |path: &str| swept(Path::new(path));
        assert_eq!(place("/var/tmp/dlock-1000"), Some("/var/tmp"));
        assert_eq!(place("/run/user/1000/locks"), Some("/run/user"));
        assert_eq!(place("/run/locks"), Some("/run"));
        assert_eq!(place("/tmp"), None, "not in the table");
        assert_eq!(place("/tmpfoo/locks"), None);
        assert_eq!(place("/var/lib/dlock"), None);
    }
}
