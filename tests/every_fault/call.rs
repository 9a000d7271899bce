//! One system call: its name, its object, and the errors that it can fail with.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

use crate::sys::CallInfo;

/// The files in which the kernel's headers keep the numbers of its calls. The compiler of dlock's C code needs them.
const HEADERS: [&str; 2] = ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"];

/// The names of the calls by their numbers.
static NAMES: LazyLock<BTreeMap<u64, &'static str>> = LazyLock::new(|| {
    let text = HEADERS.iter().find_map(|path| fs::read_to_string(path).ok());
    let named = |line: &'static str| {
        let (name, number) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
        Some((number.trim().parse().ok()?, name))
    };
    text.expect("the kernel's headers").leak().lines().filter_map(named).collect()
});

/// An error by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno {
    pub(crate) name: &'static str,
    pub(crate) number: i32,
}

macro_rules! errnos {
    ($($name:ident)*) => { $(const $name: Errno = Errno { name: stringify!($name), number: libc::$name };)*
        const ERRNOS: &[Errno] = &[$($name),*]; };
}
errnos! { EACCES EAGAIN EINTR EIO EMFILE ENFILE ENOBUFS ENOENT ENOLCK ENOMEM ENOSPC ENOSYS EPERM }

impl Errno {
    pub(crate) fn named(name: &str) -> Option<Self> {
        ERRNOS.iter().copied().find(|errno| errno.name == name)
    }
}

/// A class of calls that fail together when a fault lasts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Class {
    /// Calls that name a path under /proc.
    Proc,
    /// Calls that create a descriptor.
    Descriptors,
    /// Calls that ask for memory or a process.
    Memory,
    /// Calls that change a file or a directory.
    Writing,
    /// Calls that read a file.
    Reading,
    /// Calls that send a signal.
    Signals,
    /// Calls that Linux 4.18 does not have.
    Newer,
}

impl Class {
    const ALL: [(Self, &'static str, &'static [Errno]); 7] = [
        (Self::Proc, "proc", &[EACCES, ENOENT]),
        (Self::Descriptors, "descriptors", &[EMFILE]),
        (Self::Memory, "memory", &[ENOMEM]),
        (Self::Writing, "writing", &[EIO, ENOSPC]),
        (Self::Reading, "reading", &[EIO]),
        (Self::Signals, "signals", &[EPERM]),
        (Self::Newer, "newer", &[ENOSYS, EPERM]),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(class, ..)| *class == self).map_or("", |(_, name, _)| name)
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, its, _)| *its == name).map(|(class, ..)| *class)
    }

    pub(crate) fn errors(self) -> &'static [Errno] {
        Self::ALL.iter().find(|(class, ..)| *class == self).map_or(&[], |(.., errors)| errors)
    }
}

/// A call that a thread enters.
pub(crate) struct Call {
    tid: i32,
    pub(crate) name: &'static str,
    arguments: [u64; 6],
}

impl Call {
    pub(crate) fn of(tid: i32, info: &CallInfo) -> Self {
        let name = NAMES.get(&info.number).copied().unwrap_or("other");
        Self { tid, name, arguments: info.arguments }
    }

    /// Returns whether a series of such calls counts as one.
    pub(crate) fn is_setting(&self) -> bool {
        // Calls that only ask, and calls that have no possible error.
        let is_setting = matches!(
            self.name,
            "rt_sigaction"
                | "getpid"
                | "getppid"
                | "fcntl"
                | "prlimit64"
                | "sched_yield"
                | "geteuid"
                | "getuid"
                | "gettid"
        );
        is_setting && self.errors().is_empty()
    }

    fn low(&self, at: usize) -> i32 {
        #[expect(clippy::cast_possible_truncation, reason = "the kernel takes the lower half")]
        let low = self.arguments[at] as i32;
        low
    }

    fn has(&self, at: usize, flag: i32) -> bool {
        self.low(at) & flag == flag
    }

    /// Returns the path that the call names.
    pub(crate) fn path(&self) -> Option<String> {
        let (at, folder) = match self.name {
            "open" | "stat" | "lstat" | "readlink" | "access" | "chdir" | "mkdir" | "unlink" | "rename" => {
                (0, None)
            }
            "openat" | "newfstatat" | "statx" | "readlinkat" | "faccessat" | "faccessat2" | "mkdirat"
            | "mknodat" | "unlinkat" | "renameat" | "renameat2" | "linkat" | "openat2" => {
                (1, Some(self.low(0)).filter(|fd| *fd != libc::AT_FDCWD))
            }
            _ => return None,
        };
        let mut bytes = [0; 256];
        let memory = fs::File::open(format!("/proc/{}/mem", self.tid)).ok()?;
        // The path may lie at the end of the mapped memory.
        let step = usize::try_from(4096 - self.arguments[at] % 4096).expect("small").min(bytes.len());
        let mut got = memory.read_at(&mut bytes[..step], self.arguments[at]).ok()?;
        if !bytes[..got].contains(&0) {
            got += memory.read_at(&mut bytes[got..], self.arguments[at] + got as u64).unwrap_or(0);
        }
        let path = bytes[..got].split(|b| *b == 0).next()?;
        let path = String::from_utf8_lossy(path).into_owned();
        match folder {
            Some(fd) if !path.starts_with('/') => Some(format!("{}/{path}", self.descriptor(fd))),
            _ => Some(path),
        }
    }

    /// Returns the process that the call inspects through /proc.
    pub(crate) fn about(&self) -> Option<i32> {
        let object = match self.name {
            "read" | "pread64" | "close" | "fcntl" | "fstat" => self.descriptor(self.low(0)),
            _ => self.path()?,
        };
        object.strip_prefix("/proc/")?.split('/').next()?.parse().ok()
    }

    /// Returns what a descriptor of the calling process refers to.
    fn descriptor(&self, fd: i32) -> String {
        let link = fs::read_link(format!("/proc/{}/fd/{fd}", self.tid));
        link.map(|link| link.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Returns the name and the object, for display.
    pub(crate) fn describe(&self) -> String {
        let object = match self.name {
            "read" | "write" | "pread64" | "pwrite64" | "close" | "flock" | "ftruncate" | "fchmod"
            | "fsync" | "fdatasync" | "sendmsg" | "recvmsg" | "sendto" | "recvfrom" | "getdents64" => {
                Some(self.descriptor(self.low(0)))
            }
            _ => self.path(),
        };
        object.map_or_else(|| self.name.to_owned(), |object| format!("{} {object}", self.name))
    }

    /// Returns whether the call writes to standard error. The content of standard error is not judged after such a
    /// fault.
    pub(crate) fn writes_errors(&self) -> bool {
        self.name == "write" && self.low(0) == 2
    }

    /// Returns whether the call acts although it fails.
    pub(crate) fn acts(&self) -> bool {
        self.name == "close"
    }

    /// Returns the errors with which the call can fail once.
    pub(crate) fn errors(&self) -> Vec<Errno> {
        let device = |fd| {
            let link = self.descriptor(fd);
            ["socket:", "pipe:", "anon_inode:"].iter().any(|kind| link.starts_with(kind))
        };
        let errors: &[Errno] = match self.name {
            "open" | "openat" | "openat2" => match self.path() {
                Some(path) if path.starts_with("/proc") => &[EACCES, EMFILE, ENFILE, ENOMEM],
                _ if self.has(if self.name == "open" { 1 } else { 2 }, libc::O_CREAT) => {
                    &[EACCES, EINTR, EIO, EMFILE, ENFILE, ENOMEM, ENOSPC]
                }
                _ => &[EACCES, EINTR, EIO, EMFILE, ENFILE, ENOMEM],
            },
            // The kernel reports no other error for a nonblocking descriptor, and tokio treats any other as a defect.
            "write" if self.descriptor(self.low(0)) == "anon_inode:[eventfd]" => &[EAGAIN],
            "read" | "pread64" | "write" | "pwrite64" if device(self.low(0)) => &[EAGAIN, EINTR, EIO],
            "read" | "pread64" | "getdents64" | "fstat" | "fstatfs" => &[EIO, ENOMEM],
            "write" | "pwrite64" => &[EINTR, EIO, ENOSPC],
            "mknodat" | "mkdir" | "mkdirat" | "rename" | "renameat" | "renameat2" | "linkat" => {
                &[EACCES, EIO, ENOSPC, EPERM]
            }
            "ftruncate" | "fsync" | "fdatasync" | "fchmod" | "unlink" | "unlinkat" => &[EINTR, EIO, EPERM],
            "flock" if self.has(1, libc::LOCK_NB) => &[ENOLCK],
            "flock" => &[EINTR, ENOLCK],
            "stat" | "lstat" | "newfstatat" | "statx" | "readlink" | "readlinkat" | "access" | "chdir" => {
                &[EACCES, EIO, ENOMEM]
            }
            // Not brk(2): it has no error, and fails by changing nothing.
            "mmap" | "mremap" | "mprotect" | "madvise" => &[ENOMEM],
            "clone" | "fork" | "vfork" => &[EAGAIN, ENOMEM],
            "clone3" => &[EAGAIN, ENOMEM, ENOSYS],
            "execve" => &[EACCES, EIO, ENOMEM],
            "pidfd_open" => &[EMFILE, ENFILE, ENOMEM, ENOSYS, EPERM],
            "pidfd_send_signal" | "close_range" => &[ENOSYS, EPERM],
            "kill" | "setpgid" => &[EPERM],
            "fcntl" if matches!(self.low(1), libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) => &[EMFILE],
            "dup" | "pipe2" => &[EMFILE, ENFILE],
            "epoll_create1" | "eventfd2" | "signalfd4" | "timerfd_create" | "memfd_create"
            | "inotify_init1" | "socket" | "socketpair" => &[EMFILE, ENFILE, ENOMEM],
            "epoll_ctl" | "inotify_add_watch" => &[ENOMEM, ENOSPC],
            "poll" | "ppoll" => &[EINTR, ENOMEM],
            "sendmsg" | "sendto" => &[EAGAIN, ENOBUFS, ENOMEM],
            "recvmsg" | "recvfrom" => &[EAGAIN, EINTR, ENOMEM],
            "connect" => &[EINTR, EAGAIN],
            "epoll_wait" | "epoll_pwait" => &[EINTR],
            "wait4" if !self.has(2, libc::WNOHANG) => &[EINTR],
            "close" => &[EINTR, EIO],
            _ => &[],
        };
        errors.to_vec()
    }

    /// Returns the classes of the call, each with its error, for a fault that lasts.
    pub(crate) fn classes(&self) -> Vec<Class> {
        let path = self.path();
        let in_proc = path.as_ref().is_some_and(|path| path.starts_with("/proc"));
        let mut classes = Vec::new();
        if in_proc {
            classes.push(Class::Proc);
        }
        let makes_one = match self.name {
            "dup" | "epoll_create1" | "eventfd2" | "inotify_init1" | "memfd_create" | "open" | "openat"
            | "openat2" | "pidfd_open" | "pipe2" | "signalfd4" | "socket" | "socketpair"
            | "timerfd_create" => true,
            "fcntl" => self.errors().contains(&EMFILE),
            _ => false,
        };
        if makes_one {
            classes.push(Class::Descriptors);
        }
        if matches!(self.name, "mmap" | "mremap" | "clone" | "clone3" | "fork" | "vfork") {
            classes.push(Class::Memory);
        }
        let file = || self.descriptor(self.low(0)).starts_with('/');
        let writes = match self.name {
            "mknodat" | "mkdir" | "mkdirat" | "rename" | "renameat" | "renameat2" | "linkat" => true,
            "write" | "pwrite64" | "ftruncate" | "fsync" | "fdatasync" => file(),
            "open" | "openat" => self.errors().contains(&ENOSPC),
            _ => false,
        };
        if writes {
            classes.push(Class::Writing);
        }
        if matches!(self.name, "read" | "pread64") && file() {
            classes.push(Class::Reading);
        }
        if matches!(self.name, "kill" | "pidfd_send_signal") {
            classes.push(Class::Signals);
        }
        // Without older calls, such as `getrandom`. The C library falls back for `statx` and `clone3` itself.
        if matches!(
            self.name,
            "clone3"
                | "close_range"
                | "faccessat2"
                | "openat2"
                | "pidfd_getfd"
                | "pidfd_open"
                | "pidfd_send_signal"
                | "epoll_pwait2"
        ) {
            classes.push(Class::Newer);
        }
        classes
    }
}
