//! Writes the report and the metrics: a regular or new file by rename, any other file in place.

use std::fs::{self, Metadata, OpenOptions, Permissions};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Access, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::writer;

/// How long standard output may take nothing of a report: less than the front gives the keeper to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns whether `path` is an open descriptor, a pipe or a device, which is written to. A regular file, or one that does not exist
/// yet, is replaced by rename, so that a reader sees the old file or the new one.
pub fn is_stream(path: &Path) -> io::Result<bool> {
    if descriptor(path).is_some() {
        // Also a regular file: the redirection of a shell must not lose its file.
        return Ok(true);
    }
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_file() => Ok(false),
        Ok(meta) if meta.is_dir() => Err(ErrorKind::IsADirectory.into()),
        // Another user may have made the link, and would choose the file that dlock replaces.
        Ok(meta) if meta.is_symlink() => Err(io::Error::other("it is a symbolic link; name the file itself")),
        Ok(meta) if meta.file_type().is_socket() => Err(io::Error::other("it is a socket")),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound && path.file_name().is_some() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns whether the sticky bit of `folder` keeps this user from replacing the file at `path`.
fn is_kept(path: &Path, folder: &Metadata) -> bool {
    let own = geteuid();
    let is_another = |meta: &Metadata| meta.uid() != own.as_raw();
    let is_sticky = folder.mode() & Mode::SVTX.as_raw_mode() != 0;
    is_sticky
        && !own.is_root()
        && is_another(folder)
        && fs::symlink_metadata(path).is_ok_and(|m| is_another(&m))
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Returns the number of this process's descriptor, if `path` means one.
pub fn descriptor(path: &Path) -> Option<i32> {
    match path.to_str()? {
        "/dev/stdin" => Some(0),
        "/dev/stdout" => Some(1),
        "/dev/stderr" => Some(2),
        text => {
            let number = text.strip_prefix("/dev/fd/").or_else(|| text.strip_prefix("/proc/self/fd/"))?;
            number.parse().ok()
        }
    }
}

/// Checks that [`write()`] will probably succeed, before dlock asks for the lock. Changes nothing.
///
/// Errors: those of the system, for example `PermissionDenied` or `NotFound` of the directory.
pub fn check_writable(path: &Path) -> io::Result<()> {
    if is_stream(path)? {
        if path != Path::new("/dev/stdout") && path != Path::new("/dev/stderr") {
            rustix::fs::access(path, Access::WRITE_OK)?;
        }
        return Ok(());
    }
    let directory = parent(path);
    let folder = fs::metadata(directory)?;
    if !folder.is_dir() {
        return Err(ErrorKind::NotADirectory.into());
    }
    rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK)?;
    if is_kept(path, &folder) { Err(Errno::PERM.into()) } else { Ok(()) }
}

/// Writes `text` to `path`. If `exact` is true the file has `mode`. Else a new file has `mode` less the umask, and an old file keeps
/// its own mode.
///
/// Never blocks for long. Errors: also `ENXIO` for a pipe without a reader, `EAGAIN` for a full one, and `TimedOut` for a standard
/// output that takes nothing for `PATIENCE`. Standard error takes the text after the messages before it.
pub fn write(path: &Path, text: &str, mode: u32, exact: bool) -> io::Result<()> {
    if !is_stream(path)? {
        return replace(path, text, mode, exact);
    }
    match path.to_str() {
        Some("/dev/stdout") => {
            writer::output().last(text.to_owned());
            writer::output().finish(PATIENCE)
        }
        Some("/dev/stderr") => {
            writer::messages().last(text.to_owned());
            Ok(())
        }
        _ => {
            let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::APPEND;
            let flags = i32::try_from(flags.bits()).unwrap_or(0);
            let mut stream = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
            stream.write_all(text.as_bytes())
        }
    }
}

fn replace(path: &Path, text: &str, mode: u32, exact: bool) -> io::Result<()> {
    // A hidden file, so that a collector does not read it. The name is short, and other users cannot guess it.
    let name = format!(".dlock-{:016x}.tmp", RandomState::new().build_hasher().finish());
    let temporary = parent(path).join(name);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    let written = (|| {
        if exact {
            file.set_permissions(Permissions::from_mode(mode))?;
        } else if let Ok(old) = fs::metadata(path) {
            file.set_permissions(old.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        // The first error is the one to report.
        let _second = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read as _;
    use std::path::PathBuf;

    /// An empty directory that is removed with this value.
    pub(crate) struct Folder(pub(crate) PathBuf);

    impl Folder {
        pub(crate) fn new(test: &str) -> Self {
            let path = std::env::temp_dir().join(format!("dlock-{test}-{}", std::process::id()));
            let _absent = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).expect("a directory for the test");
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _gone = fs::remove_dir_all(&self.0);
        }
    }

    fn entries(folder: &Folder) -> usize {
        fs::read_dir(&folder.0).expect("readable").count()
    }

    #[test]
    fn a_regular_file_is_replaced_and_keeps_its_mode() {
        let folder = Folder::new("file-replace");
        let path = folder.0.join("r.json");
        fs::write(&path, "old").expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("set");
        let mut old = File::open(&path).expect("opened");
        check_writable(&path).expect("writable");
        write(&path, "new", 0o666, false).expect("written");
        assert_eq!(fs::read_to_string(&path).expect("read"), "new");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        let mut text = String::new();
        old.read_to_string(&mut text).expect("read");
        assert_eq!(text, "old", "a reader of the old file continues to read it");
        write(&path, "metrics", 0o644, true).expect("written");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o644);
        assert_eq!(entries(&folder), 1, "no temporary file is left");
    }

    #[test]
    fn a_pipe_is_written_to_and_never_waited_for() {
        let folder = Folder::new("file-pipe");
        let path = folder.0.join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
            .expect("a pipe");
        check_writable(&path).expect("writable");
        assert!(write(&path, "x", 0o666, false).is_err(), "no reader");
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("small");
        let mut reader = OpenOptions::new().read(true).custom_flags(flags).open(&path).expect("opened");
        write(&path, "hello", 0o666, false).expect("written");
        let mut text = [0; 5];
        reader.read_exact(&mut text).expect("read");
        assert_eq!(&text, b"hello");
        assert!(fs::metadata(&path).expect("there").file_type().is_fifo());
    }
}
