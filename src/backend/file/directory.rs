//! The lock directory and the files in it.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, fchmod, fchown, fstat, linkat, mknodat, openat, statat,
    unlinkat,
};
use rustix::io::Errno;

use super::fault::{self, is_one_of};
use super::names::Naming;
use super::surroundings;
use crate::lock::ErrorKind;
use crate::net::fault::{Fault, FaultResult};

/// The flags of every `open`: other users may have put anything in the directory, and it must neither block nor be
/// followed.
const CAREFUL: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The identity of a file: device and inode.
pub(super) type Identity = (u64, u64);

/// The lock directory, opened.
#[derive(Debug)]
pub(super) struct Directory {
    handle: OwnedFd,
    path: PathBuf,
    pub(super) identity: Identity,
    /// The mode of the files created in it: its read and write bits.
    mode: Mode,
    group: Gid,
    pub(super) naming: Naming,
    /// The device that [`Directory::device`] has found.
    device: OnceLock<Option<u64>>,
    /// Keeps programs that remove old files away, where there are any, for as long as it is open.
    _in_use: Option<OwnedFd>,
}

pub(super) fn identity_of(stat: &Stat) -> Identity {
    (stat.st_dev, stat.st_ino)
}

impl Directory {
    /// The directory `handle` of `stat` at `path`. If it is `private`, the files in it are for its owner only, whatever
    /// its mode.
    pub(super) fn new(handle: OwnedFd, path: PathBuf, stat: &Stat, naming: Naming, private: bool) -> Self {
        let in_use = surroundings::keep_from_sweepers(&handle, private);
        let shown = if private { 0o600 } else { 0o666 };
        let mode = Mode::from_raw_mode((stat.st_mode & shown) | 0o600);
        let (identity, group, device) = (identity_of(stat), Gid::from_raw(stat.st_gid), OnceLock::new());
        Self { handle, path, identity, mode, group, naming, device, _in_use: in_use }
    }

    /// Returns the device by which /proc/locks names files of its file system, if that is known.
    pub(super) fn device(&self) -> Option<u64> {
        *self.device.get_or_init(|| surroundings::device(&self.handle))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of `file`, for display and for checks that must notice a replaced directory.
    pub(super) fn path_of(&self, file: &str) -> PathBuf {
        self.path.join(file)
    }

    /// Opens `file`, which is to be of this kind, if it exists.
    pub(super) fn open(&self, kind: FileType, file: &str, flags: OFlags) -> FaultResult<Option<OwnedFd>> {
        let planted = |found| fault::planted(&self.path_of(file), name_of(found), name_of(kind));
        let fd = match openat(&self.handle, file, flags | CAREFUL, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            // Or a FIFO without a reader that is opened for writing; only `wake` does that.
            Err(Errno::NXIO) => return Err(planted(FileType::Socket)),
            Err(errno) => return Err(fault::os("open", self.path_of(file))(errno)),
        };
        let found = FileType::from_raw_mode(self.stat(file, &fd)?.st_mode);
        if found == kind { Ok(Some(fd)) } else { Err(planted(found)) }
    }

    /// Opens `file` for reading and writing, and creates it if it is missing.
    ///
    /// Never uses `O_CREAT` on a file that exists: `fs.protected_regular` refuses that for another user's file in a
    /// sticky directory.
    pub(super) fn open_or_make(&self, file: &str) -> FaultResult<OwnedFd> {
        loop {
            if let Some(opened) = self.open(FileType::RegularFile, file, OFlags::RDWR)? {
                return Ok(opened);
            }
            // An error ends the loop, which a removed directory would otherwise keep going for ever.
            match self.make_whole(file).or_else(|_| self.make(file)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(fault::os("make", self.path_of(file))(errno)),
            }
        }
    }

    /// Creates the empty file `file`, which gets its mode before its name. Otherwise the umask would keep other users out
    /// until the mode is set, and for ever after a kill. Fails where the file system has no unnamed files.
    fn make_whole(&self, file: &str) -> Result<(), Errno> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let made = openat(&self.handle, ".", flags, self.mode)?;
        self.share(&made)?;
        let path = format!("/proc/self/fd/{}", made.as_raw_fd());
        linkat(CWD, path, &self.handle, file, AtFlags::SYMLINK_FOLLOW)
    }

    /// Creates the empty file `file`, and then sets its mode.
    pub(super) fn make(&self, file: &str) -> Result<(), Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | CAREFUL;
        self.share(&openat(&self.handle, file, flags, self.mode)?)
    }

    /// Gives a new file its mode, and the group of the directory, for which that mode is meant. A user outside of that
    /// group cannot, and then users in it may be kept out.
    fn share(&self, made: &OwnedFd) -> Result<(), Errno> {
        let _ = fchown(made, None, Some(self.group));
        fchmod(made, self.mode)
    }

    /// Opens a lock file. Its owner may let others only read it, which is enough for flock(2).
    pub(super) fn open_lock(&self, file: &str) -> FaultResult<OwnedFd> {
        match self.open_or_make(file) {
            Err(fault) if is_one_of(&fault, &[Errno::ACCESS, Errno::ROFS]) => {
                self.open(FileType::RegularFile, file, OFlags::RDONLY)?.ok_or(fault)
            }
            other => other,
        }
    }

    /// Creates and opens the FIFO `file`, which must not exist.
    pub(super) fn make_fifo(&self, file: &str) -> FaultResult<OwnedFd> {
        let at = || self.path_of(file);
        mknodat(&self.handle, file, FileType::Fifo, self.mode, 0).map_err(fault::os("make", at()))?;
        let fifo = self.open(FileType::Fifo, file, OFlags::RDWR)?;
        let fifo = fifo.ok_or(Errno::NOENT).map_err(fault::os("open", at()))?;
        // In a directory for the owner only the mode that the umask leaves is enough. Another user that may write in the
        // directory may have put another FIFO there meanwhile. A FIFO with a second name keeps its mode, since it could be
        // one from elsewhere.
        let is_shared = self.mode.as_raw_mode() & 0o077 != 0;
        if is_shared && self.stat(file, &fifo)?.st_nlink == 1 {
            self.share(&fifo).map_err(fault::os("set the mode of", at()))?;
        }
        Ok(fifo)
    }

    /// Examines the open `opened`, which has the name `file`.
    pub(super) fn stat(&self, file: &str, opened: &OwnedFd) -> FaultResult<Stat> {
        fstat(opened).map_err(fault::os("examine", self.path_of(file)))
    }

    /// Returns whether another file than `opened`, or none, is at the path of `file` now. An unlinked file counts as
    /// replaced, even if the directory is out of reach.
    pub(super) fn is_replaced(&self, file: &str, opened: &OwnedFd) -> FaultResult<bool> {
        let stat = self.stat(file, opened)?;
        Ok(stat.st_nlink == 0 || self.present(file)? != Some(identity_of(&stat)))
    }

    /// Returns the identity of the file at the path of `file` now; resolves the whole path again.
    ///
    /// Errors: one if the directory is out of reach, since then its contents are unknown.
    pub(super) fn present(&self, file: &str) -> FaultResult<Option<Identity>> {
        for _ in 0..2 {
            match statat(CWD, self.path_of(file), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => return Ok(Some(identity_of(&stat))),
                // Tries once more: the directory may have come into reach between the two calls.
                Err(Errno::NOENT | Errno::NOTDIR) => self.check_reach()?,
                Err(errno) => return Err(fault::os("examine", self.path_of(file))(errno)),
            }
        }
        Ok(None)
    }

    /// Fails unless there is a directory at the path, this one or another.
    fn check_reach(&self) -> FaultResult<()> {
        match statat(CWD, &self.path, AtFlags::empty()) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => Ok(()),
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => {
                let reason = format!("the lock directory {} is out of reach", self.path.display());
                Err(Fault::new(ErrorKind::Unavailable, reason))
            }
            Err(errno) => Err(fault::os("examine", &self.path)(errno)),
        }
    }

    /// Unlinks `file`; another user's file in a sticky directory stays. Tries twice, since nothing cleans up after a
    /// claim that has left.
    pub(super) fn unlink(&self, file: &str) {
        let unlink = || unlinkat(&self.handle, file, AtFlags::empty());
        if !matches!(unlink(), Ok(()) | Err(Errno::NOENT)) {
            let _ = unlink();
        }
    }
}

fn name_of(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        _ => "a device",
    }
}
