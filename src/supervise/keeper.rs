//! The keeper's side: becoming a keeper, receiving from the front, noticing children.

use std::cell::{RefCell, RefMut};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open, setpgid};
use tokio::io::unix::AsyncFd;

use super::channel::{self, ToFront, ToKeeper};
use super::ender::Ender;
use super::limits;
use super::mark::MarkBoard;
use super::shared::Shared;
use super::signals::Signal;
use super::start::Start;
use super::sys::{self, SignalSet};
use crate::clock::set_timer;
use crate::fd;
use crate::lock::Moment;

/// The pause after a refusal of the system that cannot last long.
const AGAIN: Duration = Duration::from_millis(10);

/// The values that the front passes to a freshly forked keeper.
#[derive(Debug)]
pub struct KeeperSetup<'a> {
    /// The keeper's end of the channel.
    pub channel: OwnedFd,
    /// The memory that it shares with the front.
    pub shared: Shared,
    /// The front's timer.
    pub timer: &'a OwnedFd,
    /// Where nested runs set marks.
    pub board: Option<&'a MarkBoard>,
    /// The writing end of the board.
    pub writing_end: Option<OwnedFd>,
    /// The keeper's ender, made from the front's.
    pub ender: io::Result<Ender>,
    /// How dlock was started.
    pub start: &'a Start,
}

/// The keeper's view of its surroundings. Needs a running tokio runtime.
#[derive(Debug)]
pub struct Keeper<'a> {
    channel: AsyncFd<OwnedFd>,
    children: AsyncFd<OwnedFd>,
    /// The shell of a job on a terminal.
    shell: Option<AsyncFd<OwnedFd>>,
    /// The memory that this process shares with the front.
    pub shared: Shared,
    /// The front's timer.
    timer: &'a OwnedFd,
    /// Where nested runs set marks. Without it they queue for themselves.
    pub board: Option<&'a MarkBoard>,
    writing_end: RefCell<Option<OwnedFd>>,
    ender: RefCell<Ender>,
    /// How dlock was started.
    pub start: &'a Start,
}

impl<'a> Keeper<'a> {
    /// Makes the calling process, just forked by the front, a keeper. It gets a process group of its own, so that the
    /// terminal's signals do not reach it, unless the job's group is outside of this PID namespace. It becomes a
    /// subreaper, so that it adopts every orphan of the command. Its name does not contain the front's, so that
    /// `pkill dlock` leaves a process to clean up. The front has already blocked all signals that can be blocked.
    ///
    /// Errors: the system has no descriptors or memory left; or this is user-mode emulation
    /// ([`limits::become_subreaper`]).
    pub fn settle(setup: KeeperSetup<'a>) -> io::Result<Self> {
        if setup.start.command_group().is_some() {
            setpgid(None, None)?;
        }
        limits::become_subreaper()?;
        rustix::thread::set_name(c"lease-keeper")?;
        let mut children = SignalSet::empty();
        children.add(Signal::CHLD);
        let children = fd::watch(sys::signal_descriptor(&children)?)?;
        let shell = setup.start.terminal.as_ref().and(setup.start.parent).and_then(Pid::from_raw);
        let shell = shell.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Ok(Self {
            shell: shell.and_then(|pidfd| fd::watch(pidfd).ok()),
            channel: fd::watch(setup.channel)?,
            children,
            shared: setup.shared,
            timer: setup.timer,
            board: setup.board,
            writing_end: RefCell::new(setup.writing_end),
            ender: RefCell::new(setup.ender?),
            start: setup.start,
        })
    }

    /// Returns the front's next message, or `None` if the front is gone. Cancel-safe.
    pub async fn hear(&self) -> Option<ToKeeper> {
        // Read again after WouldBlock: a spurious one would clear readiness, and nothing would wake this task.
        let hear = |end: &OwnedFd| match channel::heard_by_keeper(end) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => channel::heard_by_keeper(end),
            heard => heard,
        };
        loop {
            match self.channel.async_io(tokio::io::Interest::READABLE, hear).await {
                Ok(heard) => return heard,
                // Not known is not gone: the front is dead if the parent of this process has changed.
                Err(_) if self.has_its_front() => tokio::time::sleep(AGAIN).await,
                Err(_) => return None,
            }
        }
    }

    fn has_its_front(&self) -> bool {
        getppid().is_some_and(|pid| pid.as_raw_nonzero().get() == self.start.front_pid)
    }

    /// Sends `message` to the front. If the front is gone, [`Keeper::hear`] shows that.
    pub fn tell(&self, message: ToFront, descriptors: &[BorrowedFd<'_>]) {
        drop(channel::tell_front(self.channel.get_ref(), message, descriptors));
    }

    /// Returns the ender of the command's tree.
    pub fn ender(&self) -> RefMut<'_, Ender> {
        self.ender.borrow_mut()
    }

    /// Has every nested run end at once, wherever it runs: the lock is lost.
    pub fn end_nested(&self) {
        drop(self.writing_end.take());
    }

    /// Moves the guard instant, also to an earlier moment. If the system refuses the timer, the front notices it late.
    pub fn guard_until(&self, when: Moment) {
        self.shared.set_guard_until(when);
        let _ = set_timer(self.timer, when);
    }

    /// Passes the gate, unless the front has shut it. Returns whether it is passed. The front guards from then on, even
    /// against a keeper that hangs while it starts the command.
    pub fn pass_gate(&self) -> bool {
        let passed = self.shared.gate.pass();
        if passed {
            // If the system refuses that, the front sets it at the message that the command runs.
            let _ = set_timer(self.timer, self.shared.guard_until());
        }
        passed
    }

    /// Completes when a child may have changed. Then call [`super::wait::next_change`] until it returns `Quiet` or
    /// `None`. Cancel-safe.
    pub async fn children_changed(&self) {
        let read = |descriptor: &OwnedFd| sys::read_signal(descriptor).map(|_| ());
        if self.children.async_io(tokio::io::Interest::READABLE, read).await.is_err() {
            // An error may hide a change.
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Completes when the shell of this job on a terminal is gone, so that no process could resume the job. Never
    /// completes without a terminal. Cancel-safe.
    pub async fn shell_gone(&self) {
        match &self.shell {
            Some(shell) => drop(shell.readable().await),
            None => std::future::pending().await,
        }
    }

    /// Sends SIGHUP and SIGCONT to a stopped front, as the kernel does to an orphaned stopped job. The kernel does not
    /// do it here: the keeper, in the same session, is the parent of a member of the job.
    pub fn hang_up(&self) {
        if self.ender().is_stopped(self.start.front_pid) == Some(true) {
            self.signal_front(Signal::HUP);
            self.signal_front(Signal::CONT);
        }
    }

    /// Stops the front after its command has stopped. Any later message resumes it. Returns whether that was possible.
    pub fn stop_front(&self) -> bool {
        self.shared.count_stop();
        self.signal_front(Signal::STOP)
    }

    /// Resumes a front that was stopped with its command.
    pub fn resume_front(&self) {
        let _ = self.signal_front(Signal::CONT);
    }

    /// Returns whether `signal` was sent. While the front is the parent of this process, its number belongs to it.
    fn signal_front(&self, signal: Signal) -> bool {
        self.has_its_front() && sys::kill(self.start.front_pid, signal).is_ok()
    }
}
