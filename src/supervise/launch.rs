//! Executing the command: the steps between fork and exec.
#![expect(unsafe_code, reason = "no safe wrapper starts a child that dies with its parent")]

use std::ffi::CStr;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use super::gate::Gate;
use super::signals::Signal;
use super::sys::{self, SignalSet};
use super::wait;

/// Everything that the child needs before its exec. Prepared by the parent, since the child may not allocate.
pub struct Exec<'a> {
    /// The words of the command; the first one is looked up in PATH.
    pub argv: &'a [&'a CStr],
    /// The whole environment.
    pub envp: &'a [&'a CStr],
    /// The process group to join; 0 creates a new one, `None` stays in the present one.
    pub group: Option<i32>,
    /// The signal mask to restore.
    pub mask: &'a SignalSet,
    /// Signals to ignore again.
    pub ignore: &'a [Signal],
    /// Descriptors that the command inherits. They are close-on-exec in this process.
    pub inherit: &'a [BorrowedFd<'a>],
    /// Where the child sets its pid before it executes.
    pub gate: Gate,
    /// The stack of the child until it executes.
    pub stack: &'a LaunchStack,
    /// Names of variables that get the pid of the command as their value, in addition to `envp`.
    pub pid_variables: &'a [&'a str],
}

/// The data that the child reads while it shares this process's memory.
struct Launch<'a> {
    exec: &'a Exec<'a>,
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
    /// Room for the variables with the pid; `envp` points to them.
    pids: Vec<PidVariable<'a>>,
    parent: i32,
    errno: AtomicI32,
}

/// The stack that execvpe and the calls before it need: paths, but not the list of arguments.
const LAUNCH_STACK: usize = 64 << 10;
/// The inaccessible part below the stack: as large as the largest page.
const GUARD: usize = 64 << 10;

/// Memory for the stack of a child, with a guard below it. It stays mapped for the life of the process: a keeper starts
/// one command, and unmapping would interrupt the processor on which the command just starts.
#[derive(Debug)]
pub struct LaunchStack {
    top: *mut libc::c_void,
}

impl LaunchStack {
    /// Maps a stack for a command of `words` words. For a script without an interpreter line, execvpe copies the list
    /// of words to it.
    ///
    /// Errors: the system has no memory left.
    pub fn new(words: usize) -> io::Result<Self> {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK | libc::MAP_NORESERVE;
        let list = (words + 8) * size_of::<*const libc::c_char>();
        let length = GUARD + (LAUNCH_STACK + list).next_multiple_of(GUARD);
        // SAFETY: a new mapping, which no other code uses.
        unsafe {
            let stack = libc::mmap(ptr::null_mut(), length, libc::PROT_NONE, kind, -1, 0);
            if stack == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let access = libc::PROT_READ | libc::PROT_WRITE;
            if libc::mprotect(stack.byte_add(GUARD), length - GUARD, access) != 0 {
                let error = io::Error::last_os_error();
                libc::munmap(stack, length);
                return Err(error);
            }
            Ok(Self { top: stack.byte_add(length) })
        }
    }
}

/// A command that has been executed.
#[derive(Debug)]
pub struct Spawned {
    /// Its pid.
    pub pid: i32,
    /// A pidfd of it, if the kernel returns one (from Linux 5.2).
    pub handle: Option<OwnedFd>,
}

/// Starts a command, and returns once it is executed.
///
/// Until then the child shares this process's memory, as in `posix_spawn` of glibc, and the calling thread waits:
/// copying the page tables of a process with a runtime would take longer than everything else. The kernel kills the
/// child by SIGKILL if the calling thread ends before it.
///
/// Errors: those of the fork or the exec. No child is left then.
pub fn spawn(exec: &Exec<'_>) -> io::Result<Spawned> {
    let pids = exec.pid_variables.iter().map(|name| PidVariable { name, text: [0; 32] });
    let mut pids: Vec<_> = pids.collect();
    let mut envp: Vec<_> = exec.envp.iter().map(|s| s.as_ptr()).collect();
    envp.extend(pids.iter_mut().map(|variable| variable.text.as_mut_ptr().cast_const().cast()));
    envp.push(ptr::null());
    let mut launch = Launch {
        exec,
        argv: exec.argv.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect(),
        envp,
        pids,
        parent: sys::own_pid(),
        errno: AtomicI32::new(0),
    };
    let mut handle: RawFd = -1;
    let mut clone = |more: libc::c_int| {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD | more;
        let launch = (&raw mut launch).cast();
        // SAFETY: the stack grows downwards from its end, and no other code uses it. CLONE_VFORK makes clone return
        // after the child's exec or exit. Without CLONE_SIGHAND the child has its own dispositions. `launch` and
        // `handle` outlive the call.
        match unsafe { libc::clone(become_command, exec.stack.top, flags, launch, &raw mut handle) } {
            -1 => Err(io::Error::last_os_error()),
            pid => Ok(pid),
        }
    };
    let pid = match clone(libc::CLONE_PIDFD) {
        // Without pidfds the number serves: a child keeps its number until it is reaped.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EPERM | libc::ENOSYS)) => {
            clone(0)
        }
        started => started,
    }?;
    // SAFETY: the kernel has created the descriptor for this process, close-on-exec. Older kernels leave `handle`
    // unchanged.
    let handle = (handle != -1).then(|| unsafe { OwnedFd::from_raw_fd(handle) });
    match launch.errno.load(Ordering::Relaxed) {
        0 => Ok(Spawned { pid, handle }),
        errno => {
            exec.gate.clear_command();
            wait::await_end(pid);
            Err(io::Error::from_raw_os_error(errno))
        }
    }
}

/// A variable whose value is a pid.
#[derive(Debug)]
struct PidVariable<'a> {
    /// The name, at most 20 bytes.
    name: &'a str,
    /// Room for the variable, with a NUL after it.
    text: [u8; 32],
}

impl PidVariable<'_> {
    /// Writes the variable with the value `pid`. Does not allocate.
    fn set(&mut self, pid: i32) {
        // There is room for the ten digits of any pid.
        let _ = write!(&mut self.text[..31], "{}={pid}", self.name);
    }
}

extern "C" fn become_command(launch: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the parent passes a valid Launch and waits. This process only makes async-signal-safe calls (execvpe is
    // one in glibc and musl: it uses the stack). Of the parent's memory it writes only the errno, the digits of its
    // pid, and the gate.
    unsafe {
        let launch = &mut *launch.cast::<Launch<'_>>();
        let exec = launch.exec;
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        if libc::getppid() != launch.parent {
            libc::_exit(127);
        }
        let joined = exec.group.is_none_or(|group| libc::setpgid(0, group) == 0);
        for signal in exec.ignore {
            libc::signal(signal.number(), libc::SIG_IGN);
        }
        if !sys::sigpipe_was_ignored() {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        }
        for fd in exec.inherit {
            libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, 0);
        }
        for fd in (0..3).filter(|fd| sys::stream_was_closed(*fd)) {
            libc::close(fd);
        }
        let pid = libc::getpid();
        for variable in &mut launch.pids {
            variable.set(pid);
        }
        sys::set_mask(exec.mask);
        exec.gate.set_command(pid, joined);
        libc::execvpe(launch.argv[0], launch.argv.as_ptr(), launch.envp.as_ptr());
        launch.errno.store(*libc::__errno_location(), Ordering::Relaxed);
        libc::_exit(127)
    }
}
