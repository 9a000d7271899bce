//! The lock directory and the files in it.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fchmod, mknodat, openat, statat, unlinkat};
use rustix::io::Errno;

use super::fault::{Fault, Outcome};
use super::names::Naming;

/// Which file: device and inode.
pub(super) type Identity = (u64, u64);

/// The lock directory, opened.
#[derive(Debug)]
pub(super) struct Directory {
    handle: OwnedFd,
    path: PathBuf,
    identity: Identity,
    /// The mode of the files made in it: its read and write bits.
    mode: Mode,
    pub(super) naming: Naming,
    boot: OnceLock<String>,
}

pub(super) fn identity_of(stat: &Stat) -> Identity {
    (stat.st_dev, stat.st_ino)
}

impl Directory {
    pub(super) fn new(handle: OwnedFd, path: PathBuf, stat: &Stat, naming: Naming) -> Self {
        let mode = Mode::from_raw_mode((stat.st_mode & 0o666) | 0o600);
        Self { handle, path, identity: identity_of(stat), mode, naming, boot: OnceLock::new() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn identity(&self) -> Identity {
        self.identity
    }

    /// The path of `file`, for people and for checks that must notice a replaced directory.
    pub(super) fn path_of(&self, file: &str) -> PathBuf {
        self.path.join(file)
    }

    /// The id of this boot of the host. Where it cannot be read every process counts as another boot, which
    /// costs an fsync each.
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

    /// Opens `file` if it exists.
    pub(super) fn open(&self, file: &str, flags: OFlags) -> Outcome<Option<OwnedFd>> {
        match openat(&self.handle, file, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Fault::os("open", self.path_of(file))(errno)),
        }
    }

    /// Opens `file` for reading and writing, makes it if it is missing.
    ///
    /// Never `O_CREAT` on a file that exists: `fs.protected_regular` refuses that for somebody else's file in
    /// a sticky directory.
    pub(super) fn open_or_make(&self, file: &str) -> Outcome<OwnedFd> {
        loop {
            if let Some(fd) = self.open(file, OFlags::RDWR)? {
                return Ok(fd);
            }
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            match openat(&self.handle, file, flags, self.mode) {
                Ok(fd) => {
                    fchmod(&fd, self.mode).map_err(Fault::os("set the mode of", self.path_of(file)))?;
                    return Ok(fd);
                }
                Err(Errno::EXIST) => {}
                // Without the directory there would be no end to this.
                Err(errno) => return Err(Fault::os("make", self.path_of(file))(errno)),
            }
        }
    }

    /// Opens a lock file, whose owner may let others only read it: flock(2) asks for no more.
    pub(super) fn open_lock(&self, file: &str) -> Outcome<OwnedFd> {
        match self.open_or_make(file) {
            Err(Fault::System { errno: Errno::ACCESS | Errno::ROFS, what, path }) => {
                let readable = self.open(file, OFlags::RDONLY)?;
                readable.ok_or(Fault::System { errno: Errno::ACCESS, what, path })
            }
            other => other,
        }
    }

    /// Makes and opens the FIFO `file`.
    pub(super) fn make_fifo(&self, file: &str) -> Outcome<OwnedFd> {
        let at = || self.path_of(file);
        mknodat(&self.handle, file, FileType::Fifo, self.mode, 0).map_err(Fault::os("make", at()))?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = match openat(&self.handle, file, flags, Mode::empty()) {
            // A umask that takes the owner's rights.
            Err(Errno::ACCESS) => {
                rustix::fs::chmodat(&self.handle, file, self.mode, AtFlags::empty())
                    .map_err(Fault::os("set the mode of", at()))?;
                openat(&self.handle, file, flags, Mode::empty())
            }
            other => other,
        }
        .map_err(Fault::os("open", at()))?;
        // A directory for the owner only needs no more than the umask leaves.
        if self.mode.as_raw_mode() & 0o077 != 0 {
            fchmod(&fd, self.mode).map_err(Fault::os("set the mode of", at()))?;
        }
        Ok(fd)
    }

    /// Which file stands at the path of `file` now; looks the whole path up again.
    pub(super) fn present(&self, file: &str) -> Outcome<Option<Identity>> {
        match statat(CWD, self.path_of(file), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(identity_of(&stat))),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(Fault::os("examine", self.path_of(file))(errno)),
        }
    }

    /// Unlinks `file`; somebody else's in a sticky directory stays.
    pub(super) fn unlink(&self, file: &str) {
        let _ = unlinkat(&self.handle, file, AtFlags::empty());
    }
}
