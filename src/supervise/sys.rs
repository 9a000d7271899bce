//! System calls that need `unsafe`, and nothing else.
#![expect(unsafe_code, reason = "the one place for system calls that have no safe wrapper")]

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use super::signals::{Signal, SignalInfo};

/// A set of signals.
#[derive(Clone, Copy, Debug)]
pub struct SignalSet(libc::sigset_t);

impl SignalSet {
    /// Creates an empty set.
    pub fn empty() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            Self(set.assume_init())
        }
    }

    /// Puts `signal` into the set. Does not use `sigaddset`, which refuses signals that the C library may use for its
    /// threads: with musl also 34, elsewhere the first real-time signal.
    pub fn add(&mut self, signal: Signal) {
        const BITS: usize = libc::c_ulong::BITS as usize;
        // Numbers begin with 1.
        let at = usize::try_from(signal.number() - 1).unwrap_or(0);
        // SAFETY: the set is initialised. It consists of words of bits in the kernel's order, with a bit for each
        // number that a Signal may have.
        unsafe { *(&raw mut self.0).cast::<libc::c_ulong>().add(at / BITS) |= 1 << (at % BITS) };
    }
}

/// How the process was started, before [`take_over`] changed it.
static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static CLOSED_STREAMS: AtomicU8 = AtomicU8::new(0);

/// Prepares the process as the standard library's start-up code would, but remembers what it changes. Ignores SIGPIPE,
/// so that a write to a closed pipe is an error and does not kill dlock. Opens /dev/null for closed standard streams,
/// so that no other descriptor gets their numbers. Must be called first in the program.
pub fn take_over() {
    SIGPIPE_IGNORED.store(is_ignored(Signal::PIPE), Ordering::Relaxed);
    set_disposition(Signal::PIPE, libc::SIG_IGN);
    for fd in 0..3 {
        // SAFETY: F_GETFD only reads the flags of `fd`, which need not be open. open returns the lowest free number, which
        // is this one, since those below are open.
        let is_opened = unsafe {
            libc::fcntl(fd, libc::F_GETFD) == -1 && libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) == fd
        };
        if is_opened {
            CLOSED_STREAMS.fetch_or(1 << fd, Ordering::Relaxed);
        }
    }
}

/// Returns whether SIGPIPE was ignored when the process started.
pub fn sigpipe_was_ignored() -> bool {
    SIGPIPE_IGNORED.load(Ordering::Relaxed)
}

/// Returns whether the standard stream `fd` (0 to 2) was closed when the process started.
pub fn stream_was_closed(fd: RawFd) -> bool {
    CLOSED_STREAMS.load(Ordering::Relaxed) & (1 << fd) != 0
}

/// Returns whether the process ignores `signal`.
pub fn is_ignored(signal: Signal) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with a null new action the call only reads the present one into `action`, which is initialised by zeroes
    // too.
    unsafe {
        libc::sigaction(signal.number(), ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

fn set_disposition(signal: Signal, handler: libc::sighandler_t) {
    // SAFETY: callers pass only SIG_DFL and SIG_IGN, so no code runs in a handler.
    unsafe { libc::signal(signal.number(), handler) };
}

/// Gives `signal` its default action.
pub fn set_default(signal: Signal) {
    set_disposition(signal, libc::SIG_DFL);
}

/// Blocks the signals of `set` in addition to those already blocked. Returns the mask from before.
pub fn block(set: &SignalSet) -> SignalSet {
    let mut old = SignalSet::empty();
    // SAFETY: both sets are initialised.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set.0, &raw mut old.0) };
    old
}

pub(super) fn set_mask(set: &SignalSet) {
    // SAFETY: the set is initialised.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const set.0, ptr::null_mut()) };
}

/// Keeps the signals of [`block`] blocked when this process, or one that it forks, starts its first thread. musl then
/// unblocks the signals 33 and 34, once in the life of a process, and a pending one would kill it. This function makes
/// musl do so now, by a call that starts no thread: its stack is larger than the address space, which musl notices only
/// afterwards.
pub fn settle_threads() {
    if cfg!(target_env = "musl") {
        drop(std::thread::Builder::new().stack_size(usize::MAX / 8).spawn(|| {}));
    }
}

/// Creates a descriptor to read the blocked signals of `set` from. Fails if no descriptor is left.
pub fn signal_descriptor(set: &SignalSet) -> io::Result<OwnedFd> {
    // SAFETY: -1 asks for a new descriptor, which no other code owns.
    unsafe {
        let fd = libc::signalfd(-1, &raw const set.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd == -1 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Reads the next pending signal of a [`signal_descriptor`].
///
/// Errors: `WouldBlock` without any; others of read(2).
pub fn read_signal(descriptor: &OwnedFd) -> io::Result<SignalInfo> {
    let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
    let size = size_of::<libc::signalfd_siginfo>();
    let info = loop {
        // SAFETY: the buffer is as large as announced.
        let got = unsafe { libc::read(descriptor.as_raw_fd(), info.as_mut_ptr().cast(), size) };
        if usize::try_from(got) == Ok(size) {
            // SAFETY: any bytes make a valid signalfd_siginfo.
            break unsafe { info.assume_init() };
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => {}
            error => return Err(error),
        }
    };
    let number = i32::try_from(info.ssi_signo).unwrap_or(0);
    let signal = Signal::new(number).ok_or(io::ErrorKind::InvalidData)?;
    let code = info.ssi_code;
    Ok(SignalInfo {
        signal,
        from_kernel: code == libc::SI_KERNEL,
        sender: i32::try_from(info.ssi_pid).ok().filter(|_| code <= 0),
        // A write to a closed pipe, or a message that woke this process: see `wake_on_message`.
        own: (signal == Signal::PIPE && info.ssi_pid == std::process::id())
            || (signal == Signal::CONT && (1..=POLL_CODES).contains(&code)),
    })
}

/// The kernel's codes for events on a descriptor are 1 to 6.
const POLL_CODES: i32 = 6;

/// Some C libraries lack it in their headers.
const F_SETSIG: libc::c_int = 10;

/// Returns the pid of this process.
pub fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Makes the kernel send SIGCONT to this process whenever a message arrives on `socket`, or it closes: the only way for
/// a stopped process to notice a death.
pub fn wake_on_message(socket: BorrowedFd<'_>) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    let pid = own_pid();
    // SAFETY: plain system calls on an open descriptor.
    let done = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        flags != -1
            && libc::fcntl(fd, F_SETSIG, libc::SIGCONT) != -1
            && libc::fcntl(fd, libc::F_SETOWN, pid) != -1
            && libc::fcntl(fd, libc::F_SETFL, flags | libc::O_ASYNC) != -1
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends `signal`, which may be a real-time one unlike in rustix, to the process behind `handle`, or with `to_group` to
/// the process group with its number, even if the process has ended.
///
/// Errors: also for a group that is empty, or on a kernel older than 6.9.
pub fn signal_by_handle(handle: BorrowedFd<'_>, signal: Signal, to_group: bool) -> io::Result<()> {
    const TO_GROUP: libc::c_uint = 1 << 2;
    let flags = if to_group { TO_GROUP } else { 0 };
    let info = ptr::null::<libc::siginfo_t>();
    // SAFETY: a plain system call. Without a siginfo the kernel builds one as for kill(2).
    let sent = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, handle.as_raw_fd(), signal.number(), info, flags)
    };
    if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Kills this process by `signal`, without a core dump. Returns only if the signal cannot kill it, as for process 1 of
/// a PID namespace.
pub fn die_of(signal: Signal) {
    leave_no_core();
    set_default(signal);
    let mut only = SignalSet::empty();
    only.add(signal);
    // SAFETY: plain system calls with valid arguments. The signal is pending when it is unblocked.
    unsafe {
        libc::raise(signal.number());
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const only.0, ptr::null_mut());
    }
}

/// Prevents core dumps of this process from now on.
pub(super) fn leave_no_core() {
    let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls with valid arguments.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
}

/// Exits at once, without the clean-up of the standard library and the C library, which belongs to the process that
/// this one was forked from.
pub fn exit_now(status: u8) -> ! {
    // SAFETY: _exit takes any status and does not return.
    unsafe { libc::_exit(i32::from(status)) }
}

/// Blanks the value of the variable `name` in the environment that this process was started with, as others see it in
/// /proc. Must be called while the process has one thread. Copies that were read before stay.
pub fn blank_variable(name: &CStr) {
    // SAFETY: the value is in the memory of this process's environment, which is writable, and ends with NUL. No other
    // code reads it meanwhile.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        if !value.is_null() {
            value.write_bytes(0, libc::strlen(value));
        }
    }
}

/// Forks, and returns the pid of the child; `None` in the child. Must be called while the process has one thread, so that
/// the child may run any code.
///
/// Errors: the system has no process left.
pub fn fork() -> io::Result<Option<i32>> {
    // SAFETY: the caller has no other thread, so no lock is left taken in the child.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some(pid)),
    }
}

/// The number of words that [`shared_words`] returns.
pub const SHARED_WORDS: usize = 5;

/// Maps words in memory that a process shares with those that it forks. They are zero at first, and stay mapped for the
/// life of each process.
///
/// Errors: the system has no memory left.
pub fn shared_words() -> io::Result<&'static [AtomicU64; SHARED_WORDS]> {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new anonymous mapping, page-aligned and zeroed, makes valid atomics. It is never unmapped, and only
    // accessed as atomics.
    unsafe {
        let at = libc::mmap(ptr::null_mut(), size_of::<[AtomicU64; SHARED_WORDS]>(), access, flags, -1, 0);
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(&*at.cast()) }
    }
}

/// Closes `fd` if it was inherited through the exec of this program. dlock opens all its descriptors close-on-exec, and
/// those that came through an exec are not.
pub fn close_if_inherited(fd: RawFd) {
    // SAFETY: only the standard streams are owned by this program and not close-on-exec, and the caller leaves those
    // out.
    unsafe {
        if libc::fcntl(fd, libc::F_GETFD) == 0 {
            libc::close(fd);
        }
    }
}

/// Returns bytes that cannot be guessed and do not repeat.
pub fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes)
}

/// Returns the process group of `pid` (0: this process); 0 if it is outside of this PID namespace, -1 if there is no
/// such process.
pub fn group_of(pid: i32) -> i32 {
    // SAFETY: a plain system call.
    unsafe { libc::getpgid(pid) }
}

/// Returns the session of `pid` (0: this process); 0 if it is outside of this PID namespace, `None` if no such process
/// is visible.
pub fn session_of(pid: i32) -> Option<i32> {
    // SAFETY: a plain system call.
    Some(unsafe { libc::getsid(pid) }).filter(|session| *session != -1)
}

/// Returns the parent of the process behind `handle`, a pidfd, even if /proc hides both. Returns `None` before Linux 6.13,
/// if the process has ended, or if its parent is outside of this PID namespace.
pub(super) fn parent_of(handle: BorrowedFd<'_>) -> Option<i32> {
    // SAFETY: the structure has only numbers, and the kernel writes no more than its size, which is part of the request.
    let (answer, info) = unsafe {
        let mut info: libc::pidfd_info = std::mem::zeroed();
        info.mask = libc::PIDFD_INFO_PID.into();
        (libc::ioctl(handle.as_raw_fd(), libc::PIDFD_GET_INFO, &raw mut info), info)
    };
    i32::try_from(info.ppid).ok().filter(|parent| answer == 0 && *parent > 0)
}

/// Returns a copy of the standard stream that is the controlling terminal of this process, if one is.
pub fn terminal_among_streams() -> Option<OwnedFd> {
    // SAFETY: plain system calls. They refuse descriptors that are not a terminal, or another session's.
    let stream = unsafe { (0..3).find(|fd| libc::tcgetsid(*fd) == libc::getsid(0)) }?;
    // SAFETY: a new descriptor, which no other code owns.
    unsafe {
        let fd = libc::fcntl(stream, libc::F_DUPFD_CLOEXEC, 3);
        (fd != -1).then(|| OwnedFd::from_raw_fd(fd))
    }
}

/// Sends `signal` to `pid` (a group if negative).
pub fn kill(pid: i32, signal: Signal) -> io::Result<()> {
    // SAFETY: a plain system call.
    if unsafe { libc::kill(pid, signal.number()) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Stops this process until it is continued.
pub fn stop_self() {
    drop(kill(own_pid(), Signal::STOP));
}

/// Stops this process until it is continued or its parent, the process `parent`, ends: no other process would then
/// continue it. Returns whether the parent is still there.
pub fn stop_self_under(parent: i32) -> bool {
    let on_death = |signal| rustix::process::set_parent_process_death_signal(signal).is_ok();
    let is_there = || rustix::process::getppid().is_some_and(|pid| pid.as_raw_nonzero().get() == parent);
    on_death(Some(rustix::process::Signal::CONT));
    if is_there() {
        stop_self();
    }
    on_death(None);
    is_there()
}
