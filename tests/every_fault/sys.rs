//! The system calls of a tracer: the only unsafe code of the tests.

#![allow(unsafe_code, reason = "ptrace(2), fork(2) and the signal mask have no safe form")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use libc::{c_int, c_long};

/// Whether the registers of this machine are known here.
pub(crate) const KNOWS_THIS_MACHINE: bool = cfg!(target_arch = "x86_64");

/// The places of the number of the call and of its result in the saved registers of a process on `x86_64`.
const ORIG_RAX: usize = 15 * 8;
const RAX: usize = 10 * 8;

const OPTIONS: c_int = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_EXITKILL;
const GET_SYSCALL_INFO: c_long = 0x420e;
const EVENT_STOP: c_int = 128;

/// An event of a child or a traced thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Exited(i32),
    Killed(i32),
    /// It enters or leaves a system call.
    Call,
    /// It has forked, in any way; the new one begins traced.
    Forked,
    /// It has executed a program.
    Executed,
    /// It begins, or continues after a stop.
    Begins,
    /// It is stopped as by a SIGSTOP.
    Stopped,
    /// It is about to take this signal.
    Signal(i32),
}

/// A system call that a thread enters or has left.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct CallInfo {
    /// 1: enters, 2: leaves.
    pub(crate) op: u8,
    pad: [u8; 3],
    arch: u32,
    pub(crate) instruction: u64,
    stack: u64,
    pub(crate) number: u64,
    pub(crate) arguments: [u64; 6],
    rest: [u64; 2],
}

/// A program to be started in a session of its own.
pub(crate) struct Program {
    pub(crate) words: Vec<CString>,
    pub(crate) environment: Vec<CString>,
    pub(crate) folder: CString,
    pub(crate) streams: [OwnedFd; 3],
}

fn ptrace(request: c_long, pid: i32, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: each caller passes what the request asks for; nothing here outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_ptrace, request, c_long::from(pid), address, data) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Starts a program, traced by this thread if `traced`. This process has one thread.
pub(crate) fn start(program: &Program, traced: bool) -> io::Result<i32> {
    let (gate, opener) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
    };
    let (argv, envp) = (pointers(&program.words), pointers(&program.environment));
    // SAFETY: the child calls only async-signal-safe functions, with memory that was allocated before.
    let pid = unsafe { libc::fork() };
    if pid == -1 {
        return Err(io::Error::last_os_error());
    }
    if pid == 0 {
        // SAFETY: as above; the pointers are valid and end with a null.
        unsafe {
            libc::setsid();
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
            let [input, output, errors] = &program.streams;
            libc::dup2(input.as_raw_fd(), 0);
            libc::dup2(output.as_raw_fd(), 1);
            libc::dup2(errors.as_raw_fd(), 2);
            // Fails unless the input is a terminal.
            libc::ioctl(0, libc::TIOCSCTTY, 0);
            libc::chdir(program.folder.as_ptr());
            let mut byte = 0_u8;
            libc::read(gate.as_raw_fd(), (&raw mut byte).cast(), 1);
            libc::execve(argv[0], argv.as_ptr(), envp.as_ptr());
            libc::_exit(125)
        }
    }
    if traced {
        let options = usize::try_from(OPTIONS).expect("bits");
        ptrace(c_long::from(libc::PTRACE_SEIZE), pid, 0, options)?;
    }
    rustix::io::write(&opener, b"!")?;
    Ok(pid)
}

/// Returns the next event, if there is one.
pub(crate) fn next_change() -> Option<(i32, Change)> {
    let mut status = 0;
    // SAFETY: the status is valid for writing.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::WNOHANG) };
    if pid <= 0 {
        return None;
    }
    let change = if libc::WIFEXITED(status) {
        Change::Exited(libc::WEXITSTATUS(status))
    } else if libc::WIFSIGNALED(status) {
        Change::Killed(libc::WTERMSIG(status))
    } else {
        stop(libc::WSTOPSIG(status), status >> 16)
    };
    Some((pid, change))
}

fn stop(signal: c_int, event: c_int) -> Change {
    match event {
        libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => Change::Forked,
        libc::PTRACE_EVENT_EXEC => Change::Executed,
        EVENT_STOP if signal == libc::SIGTRAP => Change::Begins,
        EVENT_STOP => Change::Stopped,
        _ if signal == libc::SIGTRAP | 0x80 => Change::Call,
        _ => Change::Signal(signal),
    }
}

// A thread can be killed at any moment, and then these calls fail; `next_change` reports its end.

/// Lets a thread continue to its next call, with a signal if not 0.
pub(crate) fn go_on(tid: i32, signal: i32) {
    let _ = ptrace(c_long::from(libc::PTRACE_SYSCALL), tid, 0, usize::try_from(signal).expect("a signal"));
}

/// Lets a thread continue, whatever it calls.
pub(crate) fn run_on(tid: i32) {
    let _ = ptrace(c_long::from(libc::PTRACE_CONT), tid, 0, 0);
}

/// Leaves a thread stopped until it is continued.
pub(crate) fn leave_stopped(tid: i32) {
    let _ = ptrace(c_long::from(libc::PTRACE_LISTEN), tid, 0, 0);
}

/// Stops tracing a thread.
pub(crate) fn let_go(tid: i32) {
    let _ = ptrace(c_long::from(libc::PTRACE_DETACH), tid, 0, 0);
}

/// Returns the new thread of one that has forked.
pub(crate) fn forked(tid: i32) -> Option<i32> {
    let mut message: libc::c_ulong = 0;
    let to = (&raw mut message).expose_provenance();
    ptrace(c_long::from(libc::PTRACE_GETEVENTMSG), tid, 0, to).ok()?;
    i32::try_from(message).ok()
}

/// Returns the call that a thread enters or leaves.
pub(crate) fn call_info(tid: i32) -> Option<CallInfo> {
    let mut info = CallInfo::default();
    let to = (&raw mut info).expose_provenance();
    ptrace(GET_SYSCALL_INFO, tid, size_of::<CallInfo>(), to).ok()?;
    Some(info)
}

/// Skips the call that is entered.
pub(crate) fn skip_call(tid: i32) {
    let _ = ptrace(c_long::from(libc::PTRACE_POKEUSER), tid, ORIG_RAX, usize::MAX);
}

/// Makes the call that is left fail.
pub(crate) fn fail_call(tid: i32, errno: i32) {
    let result = 0_usize.wrapping_sub(usize::try_from(errno).expect("positive"));
    let _ = ptrace(c_long::from(libc::PTRACE_POKEUSER), tid, RAX, result);
}

fn child_signal() -> libc::sigset_t {
    // SAFETY: an all-zero set is valid, and is emptied besides.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        set
    }
}

/// From now on, changes of children wait for [`await_change`].
pub(crate) fn hold_child_signals() {
    let set = child_signal();
    // SAFETY: a valid set.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) };
}

/// Waits until the state of a child may have changed, at most for `limit`.
pub(crate) fn await_change(limit: Duration) {
    let set = child_signal();
    // SAFETY: every field is set.
    let mut limit_of_c: libc::timespec = unsafe { std::mem::zeroed() };
    limit_of_c.tv_sec = libc::time_t::try_from(limit.as_secs()).expect("short");
    limit_of_c.tv_nsec = limit.subsec_nanos().into();
    // SAFETY: valid pointers; the sender is not asked for.
    unsafe { libc::sigtimedwait(&raw const set, ptr::null_mut(), &raw const limit_of_c) };
}

/// Ignores a signal from now on.
pub(crate) fn ignore(signal: i32) {
    // SAFETY: no handler is installed.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}
