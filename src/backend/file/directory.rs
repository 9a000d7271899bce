//! The lock directory and the files in it.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, chmodat, fchmod, fstat, linkat, mknodat, openat, statat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

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
    identity: Identity,
    /// The mode of the files created in it: its read and write bits.
    mode: Mode,
    pub(super) naming: Naming,
    boot: OnceLock<String>,
    /// Keeps programs that remove old files away, where there are any, for as long as it is open.
    _in_use: Option<OwnedFd>,
    #[cfg(test)]
    pub(super) faults: super::testing::Faults,
}

/// An open file and its `stat`.
pub(super) type Opened = (OwnedFd, Stat);

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
        Self {
            handle,
            path,
            identity: identity_of(stat),
            mode,
            naming,
            boot: OnceLock::new(),
            _in_use: in_use,
            #[cfg(test)]
            faults: super::testing::Faults::default(),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn identity(&self) -> Identity {
        self.identity
    }

    /// Returns the path of `file`, for display and for checks that must notice a replaced directory.
    pub(super) fn path_of(&self, file: &str) -> PathBuf {
        self.path.join(file)
    }

    /// Returns the id of this boot of the host. If it cannot be read, every process counts as another boot, which costs
    /// an fsync each.
    pub(super) fn boot(&self) -> &str {
        self.boot.get_or_init(|| {
            let mut buffer = [0; 64];
            let file = openat(CWD, "/proc/sys/kernel/random/boot_id", OFlags::CLOEXEC, Mode::empty());
            let got = file.and_then(|f| rustix::io::read(f, &mut buffer)).unwrap_or(0);
            let text = std::str::from_utf8(&buffer[..got]).unwrap_or_default().trim();
            if text.len() == 36 && text.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit()) {
                return text.to_owned();
            }
            format!("process-{}-{}", std::process::id(), super::token::wall())
        })
    }

    /// Opens the regular file `file` if it exists.
    pub(super) fn open(&self, file: &str, flags: OFlags) -> FaultResult<Option<Opened>> {
        self.open_as(FileType::RegularFile, file, flags)
    }

    /// Opens the FIFO `file` if it exists.
    pub(super) fn open_fifo(&self, file: &str, flags: OFlags) -> FaultResult<Option<OwnedFd>> {
        Ok(self.open_as(FileType::Fifo, file, flags)?.map(|(fd, _)| fd))
    }

    /// Opens the directory itself, for listing. Returns `None` if it was removed.
    pub(super) fn open_listing(&self) -> FaultResult<Option<OwnedFd>> {
        Ok(self.open_as(FileType::Directory, ".", OFlags::RDONLY)?.map(|(fd, _)| fd))
    }

    fn open_as(&self, kind: FileType, file: &str, flags: OFlags) -> FaultResult<Option<Opened>> {
        let fd = match openat(&self.handle, file, flags | CAREFUL, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            // For a FIFO opened for writing `ENXIO` means that it has no reader.
            Err(Errno::NXIO) if !flags.contains(OFlags::WRONLY) => {
                let (found, wanted) = (name_of(FileType::Socket), name_of(kind));
                return Err(fault::planted(&self.path_of(file), found, wanted));
            }
            Err(errno) => return Err(fault::os("open", self.path_of(file))(errno)),
        };
        let stat = fstat(&fd).map_err(fault::os("examine", self.path_of(file)))?;
        let found = FileType::from_raw_mode(stat.st_mode);
        if found != kind {
            let (found, wanted) = (name_of(found), name_of(kind));
            return Err(fault::planted(&self.path_of(file), found, wanted));
        }
        Ok(Some((fd, stat)))
    }

    /// Opens `file` for reading and writing, and creates it if it is missing.
    ///
    /// Never uses `O_CREAT` on a file that exists: `fs.protected_regular` refuses that for another user's file in a
    /// sticky directory.
    pub(super) fn open_or_make(&self, file: &str) -> FaultResult<Opened> {
        loop {
            if let Some(opened) = self.open(file, OFlags::RDWR)? {
                return Ok(opened);
            }
            // An error ends the loop, which a removed directory would otherwise keep going for ever.
            self.make(file)?;
        }
    }

    /// Creates the empty file `file`, unless the name is taken. The file gets its mode before its name. Otherwise the
    /// umask would keep other users out until the mode is set, and for ever after a kill.
    fn make(&self, file: &str) -> FaultResult<()> {
        match self.make_unnamed(file) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            // The file system has no unnamed files, or there is no /proc. Any other error occurs there again.
            Err(_) => self.make_under_another_name(file),
        }
    }

    fn make_unnamed(&self, file: &str) -> Result<(), Errno> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let made = openat(&self.handle, ".", flags, self.mode)?;
        fchmod(&made, self.mode)?;
        linkat(CWD, path_to(&made), &self.handle, file, AtFlags::SYMLINK_FOLLOW)
    }

    /// Does the same as [`Self::make`], where a file cannot be without a name.
    pub(super) fn make_under_another_name(&self, file: &str) -> FaultResult<()> {
        let at = || self.path_of(file);
        let other = self.another_name(file)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | CAREFUL;
        let made = openat(&self.handle, &other, flags, self.mode).map_err(fault::os("make", at()))?;
        let ready = fchmod(&made, self.mode).map_err(fault::os("set the mode of", at()));
        let named =
            ready.and_then(|()| match linkat(&self.handle, &other, &self.handle, file, AtFlags::empty()) {
                Ok(()) | Err(Errno::EXIST) => Ok(()),
                Err(errno) => Err(fault::os("make", at())(errno)),
            });
        self.unlink(&other);
        named
    }

    /// Returns an unused name for a file that becomes `file` when it is ready. After a kill the file stays.
    fn another_name(&self, file: &str) -> FaultResult<String> {
        let mut bytes = [0; 16];
        let random = getrandom(&mut bytes, GetRandomFlags::empty());
        random.map_err(fault::os("make", self.path_of(file)))?;
        Ok(format!(".dlock-new-{:032x}", u128::from_ne_bytes(bytes)))
    }

    /// Opens a lock file. Its owner may let others only read it, which is enough for flock(2).
    pub(super) fn open_lock(&self, file: &str) -> FaultResult<Opened> {
        match self.open_or_make(file) {
            Err(fault) if is_one_of(&fault, &[Errno::ACCESS, Errno::ROFS]) => {
                self.open(file, OFlags::RDONLY)?.ok_or(fault)
            }
            other => other,
        }
    }

    /// Creates and opens the FIFO `file`, which must not exist. It gets its mode before its name, as in [`Self::make`].
    ///
    /// Until then it is called `unready`, a name that no other process uses under the guard. In a directory for the
    /// owner only the mode that the umask leaves is enough.
    pub(super) fn make_fifo(&self, file: &str, unready: &str) -> FaultResult<OwnedFd> {
        let shared = self.mode.as_raw_mode() & 0o077 != 0;
        if !shared {
            return Ok(self.make_fifo_as(file)?.0);
        }
        let at = || self.path_of(file);
        // The file is left by a kill. Another user's file may not be removable; then another name is used.
        let other = match unlinkat(&self.handle, unready, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => unready.to_owned(),
            Err(_) => self.another_name(file)?,
        };
        let made = self.make_fifo_as(&other).and_then(|(fifo, stat)| {
            // Another user that may write in the directory may have put another FIFO there meanwhile. A FIFO with a
            // second name keeps its mode, since it could be one from elsewhere.
            if stat.st_nlink == 1 {
                fchmod(&fifo, self.mode).map_err(fault::os("set the mode of", at()))?;
            }
            linkat(&self.handle, &other, &self.handle, file, AtFlags::empty())
                .map_err(fault::os("make", at()))?;
            Ok(fifo)
        });
        self.unlink(&other);
        made
    }

    fn make_fifo_as(&self, file: &str) -> FaultResult<Opened> {
        let at = || self.path_of(file);
        mknodat(&self.handle, file, FileType::Fifo, self.mode, 0).map_err(fault::os("make", at()))?;
        self.open_as(FileType::Fifo, file, OFlags::RDWR)?.ok_or(Errno::NOENT).map_err(fault::os("open", at()))
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

    /// The error for a path that leads to another directory than the one that was opened.
    pub(super) fn replaced(&self) -> Fault {
        let path = self.path.display();
        let reason =
            format!("the lock directory {path} was replaced by another since dlock started; start it again");
        Fault::new(ErrorKind::Unwritable, reason)
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

/// Sets the mode of `file`, which was opened with `O_PATH`.
pub(super) fn set_mode(file: &OwnedFd, mode: Mode) -> Result<(), Errno> {
    chmodat(CWD, path_to(file), mode, AtFlags::empty())
}

/// Returns a path that leads to the open `file`.
fn path_to(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn name_of(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "something unknown",
    }
}
