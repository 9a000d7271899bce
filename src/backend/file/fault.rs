//! The meaning of system errors.

use std::path::Path;

use rustix::io::Errno;

use crate::lock::ErrorKind;
use crate::net::cause;
use crate::net::fault::Fault;

/// The backend's name.
pub(super) const BACKEND: &str = "file";

/// The code of a failure because another process put something of the wrong kind at a path. Other failures have the
/// system's error number.
pub(super) const PLANTED: i32 = -1;

/// Turns `errno` from doing `what`, a verb phrase, to `path` into a fault; for `map_err`.
pub(super) fn os(what: &'static str, path: impl AsRef<Path>) -> impl FnOnce(Errno) -> Fault {
    move |errno| Fault::new(kind_of(errno), explain(what, path.as_ref(), errno)).coded(errno.raw_os_error())
}

/// The fault for a `path` that is `found` and not `wanted`, both with their articles.
pub(super) fn planted(path: &Path, found: &str, wanted: &str) -> Fault {
    let reason = format!("{} is {found} and not {wanted}; remove it", path.display());
    Fault::new(ErrorKind::Unwritable, reason).coded(PLANTED)
}

/// Returns whether the fault has one of these error numbers.
pub(super) fn is_one_of(fault: &Fault, errnos: &[Errno]) -> bool {
    errnos.iter().any(|errno| errno.raw_os_error() == fault.code)
}

/// Returns whether a path leads to something that cannot be this user's queue. Another user may have put it there: a
/// link, a directory, or a file that this user may not open.
pub(super) fn is_of_others(fault: &Fault) -> bool {
    let shut = [Errno::LOOP, Errno::ISDIR, Errno::ACCESS, Errno::PERM];
    fault.code == PLANTED || is_one_of(fault, &shut)
}

fn kind_of(errno: Errno) -> ErrorKind {
    match errno {
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::NOLCK => ErrorKind::System,
        _ => ErrorKind::Unwritable,
    }
}

fn explain(what: &str, path: &Path, errno: Errno) -> String {
    let advice = match errno {
        Errno::NOSPC => "; make room on its file system",
        Errno::DQUOT => "; the disk quota is used up",
        Errno::ROFS => {
            // A service manager may have mounted it so (`ProtectSystem=`). A missing directory is created in the one above it.
            let above = path.parent().unwrap_or(path).display();
            return format!(
                "cannot {what} {}: it is on a read-only file system; in a systemd unit set ReadWritePaths={above} (for \
                 /var/lib/dlock StateDirectory=dlock), or choose a directory on a writable file system with --endpoint",
                path.display()
            );
        }
        Errno::ACCESS | Errno::PERM => {
            "; ask for access to it (users share a lock directory made by mkdir -m 1777), or choose another with --endpoint"
        }
        Errno::NOENT if what.starts_with("create") => "; create the directory above it first (mkdir -p)",
        Errno::MFILE => "; raise the limit of open files (ulimit -n)",
        Errno::LOOP => "; a lock file must not be a symbolic link",
        _ => "",
    };
    format!("cannot {what} {}: {}{advice}", path.display(), cause::said(&errno.into()))
}
