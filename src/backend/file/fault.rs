//! What goes wrong below the trait, and how it becomes a fault of any service.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::lock::reason::About;
use crate::lock::{ErrorKind, Reason};
use crate::net::{cause, fault};

/// The backend's name.
pub(super) const BACKEND: &str = "file";

/// A failure before it is known on behalf of which operation it happened.
#[derive(Debug)]
pub(super) enum Fault {
    /// A system call failed on `path`; `what` is a verb phrase.
    System { what: &'static str, path: PathBuf, errno: Errno },
    /// `path` is not what it has to be: `found`, and not `wanted`, both with their articles.
    Planted { path: PathBuf, found: &'static str, wanted: &'static str },
    /// Everything else.
    Said { kind: ErrorKind, reason: Reason },
}

/// The result of everything below the trait.
pub(super) type FaultResult<T> = Result<T, Fault>;

impl Fault {
    /// `errno` from doing `what` to `path`; made for `map_err`.
    pub(super) fn os(what: &'static str, path: impl AsRef<Path>) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::System { what, path: path.as_ref().to_owned(), errno }
    }

    pub(super) fn said(kind: ErrorKind, reason: impl Into<Reason>) -> Self {
        Self::Said { kind, reason: reason.into() }
    }

    /// What is written to `path` takes too long.
    pub(super) fn silent_disk(path: &Path) -> Self {
        let silent = format!("the disk of {} does not answer", path.display());
        Self::said(ErrorKind::Unavailable, Reason::from(silent.as_str()).about(About::Service))
    }

    /// Whether a path leads to something that cannot be this user's queue: somebody else put it there.
    pub(super) fn is_of_others(&self) -> bool {
        match self {
            Self::Planted { .. } => true,
            // A link, a directory, a file that is shut.
            Self::System { errno, .. } => {
                matches!(*errno, Errno::LOOP | Errno::ISDIR | Errno::ACCESS | Errno::PERM)
            }
            Self::Said { .. } => false,
        }
    }

    /// What has not worked for now, as a failure that will be tried again.
    pub(super) fn transient(self) -> Self {
        let fault = fault::Fault::from(self);
        if fault.kind.is_transient() {
            return Self::said(fault.kind, fault.reason);
        }
        Self::said(ErrorKind::Unavailable, fault.reason.advising("trying again"))
    }
}

impl From<Fault> for fault::Fault {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Said { kind, reason } => Self::new(kind, reason),
            Fault::Planted { path, found, wanted } => {
                let reason = format!("{} is {found} and not {wanted}; remove it", path.display());
                Self::new(ErrorKind::Unwritable, reason)
            }
            Fault::System { what, path, errno } => Self::new(kind_of(errno), explain(what, &path, errno)),
        }
    }
}

fn kind_of(errno: Errno) -> ErrorKind {
    match errno {
        Errno::NOSPC
        | Errno::DQUOT
        | Errno::ROFS
        | Errno::ACCESS
        | Errno::PERM
        | Errno::NAMETOOLONG
        | Errno::NOENT
        | Errno::LOOP
        | Errno::ISDIR
        | Errno::NOTDIR
        | Errno::FBIG
        | Errno::TXTBSY
        | Errno::IO => ErrorKind::Unwritable,
        _ => ErrorKind::System,
    }
}

fn explain(what: &str, path: &Path, errno: Errno) -> String {
    let advice = match errno {
        Errno::NOSPC => "; make room on its file system",
        Errno::DQUOT => "; the disk quota is used up",
        Errno::ROFS => "; choose a directory on a writable file system with --endpoint",
        Errno::ACCESS | Errno::PERM => {
            "; ask for access to it (users share a lock directory made by mkdir -m 1777), or choose another with --endpoint"
        }
        Errno::MFILE => "; raise the limit of open files (ulimit -n)",
        Errno::LOOP => "; a lock file must not be a symbolic link",
        _ => "",
    };
    format!("cannot {what} {}: {}{advice}", path.display(), cause::said(&errno.into()))
}
