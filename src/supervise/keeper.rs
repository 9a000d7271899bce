//! The keeper's side: being a keeper, hearing the front, noticing children.

use std::cell::{RefCell, RefMut};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open, setpgid};
use tokio::io::unix::AsyncFd;

use super::channel::{Channel, ToFront, ToKeeper};
use super::ender::Ender;
use super::limits;
use super::shared::Shared;
use super::signals::Signal;
use super::start::Start;
use super::sys::{self, SignalSet};
use crate::fd;

/// How long to wait where the system refused what cannot be refused for long.
const AGAIN: Duration = Duration::from_millis(10);

/// What a freshly forked keeper gets from the front.
#[derive(Debug)]
pub struct KeeperSetup<'a> {
    /// Its end of the channel.
    pub channel: Channel,
    /// What it shares with the front.
    pub shared: Shared,
    /// Its ender, made of the front's.
    pub ender: io::Result<Ender>,
    /// What dlock was started with.
    pub start: &'a Start,
}

/// The keeper's view of its surroundings; needs a running tokio runtime.
#[derive(Debug)]
pub struct Keeper<'a> {
    channel: AsyncFd<OwnedFd>,
    children: AsyncFd<OwnedFd>,
    /// The shell of a job on a terminal.
    shell: Option<AsyncFd<OwnedFd>>,
    shared: Shared,
    ender: RefCell<Ender>,
    /// What dlock was started with.
    pub start: &'a Start,
}

impl<'a> Keeper<'a> {
    /// Makes the calling process, just forked by the front, a keeper: a process group of its own, so that the
    /// terminal's signals do not reach it; a subreaper, so that every orphan of the command comes to it; and a
    /// name that does not contain the front's, so that a `pkill` of that leaves somebody to clean up. The
    /// front has blocked every signal that can be.
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
            channel: fd::watch(setup.channel.into())?,
            children,
            shared: setup.shared,
            ender: RefCell::new(setup.ender?),
            start: setup.start,
        })
    }

    /// What the front says next; `None` when it is gone. Cancel-safe.
    pub async fn hear(&self) -> Option<ToKeeper> {
        // Asked twice whether nothing is there: who was told so wrongly would not be woken.
        let hear = |end: &OwnedFd| match Channel::heard_by_keeper(end) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Channel::heard_by_keeper(end),
            heard => heard,
        };
        loop {
            match self.channel.async_io(tokio::io::Interest::READABLE, hear).await {
                Ok(heard) => return heard,
                // Not known is not gone: a process whose parent is another now has lost it.
                Err(_) if self.has_its_front() => tokio::time::sleep(AGAIN).await,
                Err(_) => return None,
            }
        }
    }

    fn has_its_front(&self) -> bool {
        getppid().is_some_and(|pid| pid.as_raw_nonzero().get() == self.start.front_pid)
    }

    /// Tells the front; that it is gone is heard, not told.
    pub fn tell(&self, message: ToFront, descriptors: &[BorrowedFd<'_>]) {
        drop(Channel::tell_front(self.channel.get_ref(), message, descriptors));
    }

    /// What ends the command's tree.
    pub fn ender(&self) -> RefMut<'_, Ender> {
        self.ender.borrow_mut()
    }

    /// What this process shares with the front.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Passes the gate, unless the front has shut it; whether it is passed. The front guards from then on, also a keeper that hangs
    /// while it starts the command.
    pub fn pass_gate(&self) -> bool {
        let passed = self.shared.gate.pass();
        if passed {
            self.tell(ToFront::Guard, &[]);
        }
        passed
    }

    /// Completes when a child may have changed; take the changes with [`super::wait::next_change`] until it says
    /// that all is quiet. Cancel-safe.
    pub async fn children_changed(&self) {
        let read = |descriptor: &OwnedFd| sys::read_signal(descriptor).map(|_| ());
        if self.children.async_io(tokio::io::Interest::READABLE, read).await.is_err() {
            // What cannot be read may be a change.
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Completes when the shell of this job on a terminal is gone, so that nobody could resume it; never without
    /// a terminal. Cancel-safe.
    pub async fn shell_gone(&self) {
        match &self.shell {
            Some(shell) => drop(shell.readable().await),
            None => std::future::pending().await,
        }
    }

    /// Hangs up on a stopped front, as the kernel does to a stopped job that is orphaned. It does not do it to
    /// this one, since the keeper, of the same session, is the parent of a member.
    pub fn hang_up(&self) {
        if self.ender().is_stopped(self.start.front_pid) == Some(true) {
            self.signal_front(Signal::HUP);
            self.signal_front(Signal::CONT);
        }
    }

    /// Stops the front as its command has stopped. Any later message makes it go on.
    pub fn stop_front(&self) {
        self.shared.count_stop();
        self.signal_front(Signal::STOP);
    }

    /// Lets a front go on that was stopped with its command.
    pub fn resume_front(&self) {
        self.signal_front(Signal::CONT);
    }

    /// As long as the front is the parent of this process, its number is its own.
    fn signal_front(&self, signal: Signal) {
        if self.has_its_front() {
            drop(sys::kill(self.start.front_pid, signal));
        }
    }
}
