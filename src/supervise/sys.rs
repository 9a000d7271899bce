//! System calls that need `unsafe`, and nothing else.
#![expect(unsafe_code, reason = "the one place for system calls that have no safe wrapper")]

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering};

use super::signals::{Signal, SignalInfo};

/// A set of signals.
#[derive(Clone, Copy, Debug)]
pub struct SignalSet(libc::sigset_t);

impl SignalSet {
    /// No signal.
    pub fn empty() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set that it is given.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            Self(set.assume_init())
        }
    }

    /// Puts `signal` into the set. Not by `sigaddset`, which refuses what the C library might use for its threads: with
    /// musl that is also 34, the first real-time signal of everybody else.
    pub fn add(&mut self, signal: Signal) {
        const BITS: usize = libc::c_ulong::BITS as usize;
        // Numbers begin with 1.
        let at = usize::try_from(signal.number() - 1).unwrap_or(0);
        // SAFETY: the set is initialised, and is words of bits in the kernel's order with a bit for each number that a
        // Signal may have.
        unsafe { *(&raw mut self.0).cast::<libc::c_ulong>().add(at / BITS) |= 1 << (at % BITS) };
    }
}

/// What the process was started with, before [`take_over`] changed it.
static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static CLOSED_STREAMS: AtomicU8 = AtomicU8::new(0);

/// Makes the process fit for what follows, as the standard library's start-up code would, but remembers how it
/// was: ignores SIGPIPE, so that writing to a closed pipe is an error and not the end, and opens /dev/null for
/// closed standard streams, so that no other descriptor gets their numbers. Comes first in the program.
pub fn take_over() {
    SIGPIPE_IGNORED.store(is_ignored(Signal::PIPE), Ordering::Relaxed);
    set_disposition(Signal::PIPE, libc::SIG_IGN);
    for fd in 0..3 {
        // SAFETY: F_GETFD only reads the flags of a number that may or may not be a descriptor; open gives the
        // lowest free number, which is this one, since those below are open.
        unsafe {
            if libc::fcntl(fd, libc::F_GETFD) == -1 && libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) == fd {
                CLOSED_STREAMS.fetch_or(1 << fd, Ordering::Relaxed);
            }
        }
    }
}

/// Whether SIGPIPE was ignored when the process started.
pub fn sigpipe_was_ignored() -> bool {
    SIGPIPE_IGNORED.load(Ordering::Relaxed)
}

/// Whether the standard stream `fd` (0 to 2) was closed when the process started.
pub fn stream_was_closed(fd: RawFd) -> bool {
    CLOSED_STREAMS.load(Ordering::Relaxed) & (1 << fd) != 0
}

/// Whether the process ignores `signal`.
pub fn is_ignored(signal: Signal) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action only reads the present one into `action`, which zeroes initialise as well.
    unsafe {
        libc::sigaction(signal.number(), ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

fn set_disposition(signal: Signal, handler: libc::sighandler_t) {
    // SAFETY: only SIG_DFL and SIG_IGN are passed, so no code of ours runs in a handler.
    unsafe { libc::signal(signal.number(), handler) };
}

/// Gives `signal` its default action.
pub fn set_default(signal: Signal) {
    set_disposition(signal, libc::SIG_DFL);
}

/// Blocks the signals of `set` besides those already blocked, and returns the mask from before.
pub fn block(set: &SignalSet) -> SignalSet {
    let mut old = SignalSet::empty();
    // SAFETY: both sets are initialised.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set.0, &raw mut old.0) };
    old
}

fn set_mask(set: &SignalSet) {
    // SAFETY: the set is initialised.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const set.0, ptr::null_mut()) };
}

/// A descriptor from which the blocked signals of `set` are read.
pub fn signal_descriptor(set: &SignalSet) -> io::Result<OwnedFd> {
    // SAFETY: -1 asks for a new descriptor, which nobody else owns.
    unsafe {
        let fd = libc::signalfd(-1, &raw const set.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd == -1 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// The next pending signal of a [`signal_descriptor`], if any.
pub fn read_signal(descriptor: &OwnedFd) -> Option<SignalInfo> {
    let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: the buffer is as large as announced, and any bytes make a valid signalfd_siginfo.
    let info = unsafe {
        let got = libc::read(descriptor.as_raw_fd(), info.as_mut_ptr().cast(), size);
        if usize::try_from(got) != Ok(size) {
            return None;
        }
        info.assume_init()
    };
    let signal = i32::try_from(info.ssi_signo).ok().and_then(Signal::new)?;
    let own = info.ssi_pid == std::process::id() && signal == Signal::PIPE;
    Some(SignalInfo { signal, from_kernel: info.ssi_code == libc::SI_KERNEL, own })
}

/// Ends the process by `signal` without a core of its own; returns only if the signal cannot end it, as for
/// process 1 of a PID namespace.
pub fn die_of(signal: Signal) {
    let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls with valid arguments.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core) };
    set_default(signal);
    let mut only = SignalSet::empty();
    only.add(signal);
    // SAFETY: plain system calls with valid arguments; the signal is pending when it is unblocked.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::raise(signal.number());
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const only.0, ptr::null_mut());
    }
}

/// Ends the process at once, without the standard library's or libc's clean-up, which belongs to the process
/// that this one was forked from.
pub fn exit_now(status: u8) -> ! {
    // SAFETY: _exit takes any status and does not return.
    unsafe { libc::_exit(i32::from(status)) }
}

/// Which side of a fork this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fork {
    /// The parent, with the child's pid.
    Parent(i32),
    /// The child.
    Child,
}

/// Forks. Must be called while the process has one thread, so that the child may run any code.
pub fn fork() -> io::Result<Fork> {
    // SAFETY: the caller has no other thread, so no lock can be left taken in the child.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid)),
    }
}

/// Five words in memory that a process shares with those that it forks, zero at first; mapped for the life of
/// each process.
pub fn shared_words() -> io::Result<&'static [AtomicU64; 6]> {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new anonymous mapping, page-aligned and zeroed, which makes valid atomics; it is never unmapped,
    // and only reached as atomics.
    unsafe {
        let at = libc::mmap(ptr::null_mut(), size_of::<[AtomicU64; 6]>(), access, flags, -1, 0);
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(&*at.cast()) }
    }
}

/// Everything that the child needs before its exec, made beforehand: it may not allocate.
pub struct Exec<'a> {
    /// The words of the command; the first is looked up in PATH.
    pub argv: &'a [&'a CStr],
    /// The whole environment.
    pub envp: &'a [&'a CStr],
    /// The process group to join; 0 makes one of its own, `None` stays in that of this process.
    pub group: Option<i32>,
    /// The signal mask to restore.
    pub mask: &'a SignalSet,
    /// Signals to ignore that this process no longer ignores.
    pub ignore: &'a [Signal],
    /// Descriptors to hand to the command; they are close-on-exec here.
    pub inherit: &'a [BorrowedFd<'a>],
    /// What the child stands on until then.
    pub stack: &'a LaunchStack,
}

/// What the child reads while it still shares this process's memory.
struct Launch<'a> {
    exec: &'a Exec<'a>,
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
    parent: i32,
    errno: AtomicI32,
}

/// The stack of a child until it executes: execvpe puts paths and, for a script without an interpreter line,
/// the argument list on it.
const LAUNCH_STACK: usize = 256 << 10;

/// Memory for the stack of a child. It stays for the life of the process: a keeper starts one command, and giving
/// back the few pages touched would interrupt the processor on which that just begins.
#[derive(Debug)]
pub struct LaunchStack {
    top: *mut libc::c_void,
}

impl LaunchStack {
    /// A stack of which the first page is at hand.
    pub fn new() -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK | libc::MAP_NORESERVE;
        // SAFETY: a new mapping that nobody else knows; the word written is its last.
        unsafe {
            let stack = libc::mmap(ptr::null_mut(), LAUNCH_STACK, access, kind, -1, 0);
            if stack == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let top = stack.byte_add(LAUNCH_STACK);
            top.cast::<u64>().sub(1).write_volatile(0);
            Ok(Self { top })
        }
    }
}

/// Starts a command, and returns its pid once it is executed; else the error is that of the fork or the exec.
///
/// The child shares this process's memory until it executes, as in `posix_spawn` of glibc, and the calling
/// thread waits meanwhile: copying the page tables of a process with a runtime would take longer than all the
/// rest. It dies by SIGKILL if the calling thread dies before it.
pub fn spawn(exec: &Exec<'_>) -> io::Result<i32> {
    let mut launch = Launch {
        exec,
        argv: null_terminated(exec.argv),
        envp: null_terminated(exec.envp),
        parent: rustix::process::getpid().as_raw_nonzero().get(),
        errno: AtomicI32::new(0),
    };
    // SAFETY: the stack grows downwards from its end, and nobody else uses it. CLONE_VFORK returns after the child's exec or exit. Without
    // CLONE_SIGHAND the child's dispositions are its own. `launch` outlives the child's use of it.
    let pid = unsafe {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let pid = libc::clone(become_command, exec.stack.top, flags, (&raw mut launch).cast());
        let error = io::Error::last_os_error();
        if pid == -1 { Err(error) } else { Ok(pid) }
    }?;
    // The child wakes this process in the middle of its exec, which would wait for what is done here next.
    step_aside();
    match launch.errno.load(Ordering::Relaxed) {
        0 => Ok(pid),
        errno => {
            super::wait::await_end(pid);
            Err(io::Error::from_raw_os_error(errno))
        }
    }
}

fn null_terminated(strings: &[&CStr]) -> Vec<*const libc::c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
}

extern "C" fn become_command(launch: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the parent passes a valid Launch and waits; this process only makes async-signal-safe calls
    // (execvpe of glibc and musl is: it uses the stack) and writes nothing of the parent's but the errno.
    unsafe {
        let launch = &*launch.cast::<Launch<'_>>();
        let exec = launch.exec;
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        if libc::getppid() != launch.parent {
            libc::_exit(127);
        }
        if let Some(group) = exec.group {
            libc::setpgid(0, group);
        }
        for signal in exec.ignore {
            libc::signal(signal.number(), libc::SIG_IGN);
        }
        if !SIGPIPE_IGNORED.load(Ordering::Relaxed) {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        }
        for fd in exec.inherit {
            libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, 0);
        }
        let closed = CLOSED_STREAMS.load(Ordering::Relaxed);
        for fd in (0..3).filter(|fd| closed & (1 << fd) != 0) {
            libc::close(fd);
        }
        set_mask(exec.mask);
        libc::execvpe(launch.argv[0], launch.argv.as_ptr(), launch.envp.as_ptr());
        launch.errno.store(*libc::__errno_location(), Ordering::Relaxed);
        libc::_exit(127)
    }
}

unsafe extern "C" {
    /// The first byte of the program in memory; the linker defines it.
    static __executable_start: u8;
    /// The end of its code; the linker defines it.
    static etext: u8;
}

/// Gives back the mapped pages of the program's code; those still needed come back from the page cache. A process that
/// only waits does it beforehand, so that it takes less memory and its end, for which somebody waits, has less to undo.
pub fn give_back_code() {
    const PAGE: usize = 4096;
    let from = (&raw const __executable_start).expose_provenance() / PAGE * PAGE;
    let to = (&raw const etext).expose_provenance() / PAGE * PAGE;
    // SAFETY: code and constants are a file's, never written, and have, unlike data that the loader relocates, no
    // contents of their own to lose: only what has to be read from the page cache again changes.
    unsafe { libc::madvise(ptr::with_exposed_provenance_mut(from), to - from, libc::MADV_DONTNEED) };
}

/// Lets whoever is ready to run on this processor go first, once.
pub fn step_aside() {
    // SAFETY: a plain system call.
    unsafe { libc::sched_yield() };
}

/// From now on this thread runs only when no other wants to: for work that nobody waits for.
pub fn yield_to_others() {
    let priority: libc::c_int = 0;
    // SAFETY: a plain system call with a valid argument; that it is refused does not matter. Not by way of the C
    // library, since not every one has it.
    unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_IDLE, &raw const priority);
    }
    step_aside();
}

/// Bytes that nobody can guess or repeat.
pub fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes)
}

/// The process group of `pid` (0: this process); 0 if it lies outside of this PID namespace, -1 if there is no
/// such process.
pub fn group_of(pid: i32) -> i32 {
    // SAFETY: a plain system call.
    unsafe { libc::getpgid(pid) }
}

/// The session of `pid` (0: this process); 0 if it lies outside of this PID namespace, `None` if there is no
/// such process to be seen.
pub fn session_of(pid: i32) -> Option<i32> {
    // SAFETY: a plain system call.
    Some(unsafe { libc::getsid(pid) }).filter(|session| *session != -1)
}

/// Sends `signal` to `pid` (a group if negative).
pub fn kill(pid: i32, signal: Signal) -> io::Result<()> {
    // SAFETY: a plain system call.
    if unsafe { libc::kill(pid, signal.number()) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Stops this process as its command has stopped, until somebody lets it go on.
pub fn stop_self() {
    drop(kill(rustix::process::getpid().as_raw_nonzero().get(), Signal::STOP));
}
