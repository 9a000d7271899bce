//! The keeper's side: being a keeper, hearing the front, noticing children.

use std::cell::OnceCell;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open, setpgid};
use tokio::io::unix::AsyncFd;

use super::channel::{Channel, ToFront, ToKeeper};
use super::outcome::Outcome;
use super::shared::Shared;
use super::signals::Signal;
use super::start::Start;
use super::sys::{self, SignalSet};
use super::tree::Glance;
use crate::clock::set_timer;
use crate::lock::Moment;
use crate::readiness;

/// What a freshly forked keeper gets from the front.
#[derive(Debug)]
pub struct Seed<'a> {
    /// Its end of the channel.
    pub channel: Channel,
    /// What it shares with the front.
    pub shared: Shared,
    /// The front's timer.
    pub timer: &'a OwnedFd,
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
    timer: &'a OwnedFd,
    /// The front, to be looked at before the command starts.
    front: OnceCell<Option<Glance>>,
    /// What dlock was started with.
    pub start: &'a Start,
}

impl<'a> Keeper<'a> {
    /// Makes the calling process, just forked by the front, a keeper: a process group of its own, so that the
    /// terminal's signals do not reach it; a subreaper, so that every orphan of the command comes to it; and a
    /// name that does not contain the front's, so that a `pkill` of that leaves somebody to clean up. The
    /// front has blocked every signal that can be.
    pub fn settle(seed: Seed<'a>) -> io::Result<Self> {
        if seed.start.command_group().is_some() {
            setpgid(None, None)?;
        }
        rustix::process::set_child_subreaper(Some(getpid()))?;
        rustix::thread::set_name(c"lease-keeper")?;
        let mut children = SignalSet::empty();
        children.add(Signal::CHLD);
        let children = readiness::watch(sys::signal_descriptor(&children)?)?;
        let shell = seed.start.terminal.as_ref().and(seed.start.parent).and_then(Pid::from_raw);
        let shell = shell.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Ok(Self {
            shell: shell.and_then(|pidfd| readiness::watch(pidfd).ok()),
            channel: readiness::watch(seed.channel.into())?,
            children,
            shared: seed.shared,
            timer: seed.timer,
            front: OnceCell::new(),
            start: seed.start,
        })
    }

    /// What the front says next; `None` when it is gone. Cancel-safe.
    pub async fn hear(&self) -> Option<ToKeeper> {
        let heard = self.channel.async_io(tokio::io::Interest::READABLE, Channel::heard_by_keeper).await;
        heard.unwrap_or(None)
    }

    /// Tells the front; that it is gone is heard, not told.
    pub fn tell(&self, message: ToFront, descriptors: &[BorrowedFd<'_>]) {
        drop(Channel::tell_front(self.channel.get_ref(), message, descriptors));
    }

    /// Publishes the instant at which the front ends the command unless a later one is published before.
    pub fn guard_until(&self, when: Moment) {
        self.shared.set_guard_until(when);
    }

    /// Publishes how long this process may take on each of its chances when that instant has passed; zero where the
    /// lock would be lost then. See [`super::chances`].
    pub fn guard_in_steps_of(&self, length: Duration) {
        self.shared.set_guard_step(length);
    }

    /// Publishes how the command ended, should this process not live to tell it.
    pub fn publish_outcome(&self, outcome: Outcome) {
        self.shared.set_outcome(outcome);
    }

    /// Says by what number this process is known where it leaves something that outlives it.
    pub fn would_abandon(&self, number: u128) {
        self.shared.would_abandon(number);
    }

    /// Makes ready, while there is time, for [`Keeper::may_start`].
    pub fn prepare_start(&self) {
        self.front.get_or_init(|| Glance::at(self.start.front_pid));
    }

    /// Whether the command may start now: the front is not stopped and has not been told to end. If not, the
    /// front says what is to be done, once it can.
    pub fn may_start(&self) -> bool {
        self.prepare_start();
        let stopped = self.front.get().is_some_and(|front| front.as_ref().is_some_and(Glance::is_stopped));
        let passed = !stopped && self.shared.pass();
        if passed {
            // The front need not wake for this: its timer is the same object here. It looks at the gate again
            // after setting it itself, so that it does not undo this. Should it fail, the front sets it when
            // it hears that the command has started.
            let _ = set_timer(self.timer, self.shared.guard_until());
        }
        passed
    }

    /// Completes when a child may have changed; take the changes with [`super::wait::next_change`] until it says
    /// that all is quiet. Cancel-safe.
    pub async fn children_changed(&self) {
        let taken = self.children.async_io(tokio::io::Interest::READABLE, |descriptor| {
            sys::read_signal(descriptor).ok_or_else(|| io::Error::from(io::ErrorKind::WouldBlock))
        });
        drop(taken.await);
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
        if super::tree::is_stopped(self.start.front_pid) {
            drop(sys::kill(self.start.front_pid, Signal::HUP));
            drop(sys::kill(self.start.front_pid, Signal::CONT));
        }
    }

    /// Lets a stopped front go on, after its command was resumed by somebody.
    pub fn resume_front(&self) {
        if super::tree::is_stopped(self.start.front_pid) {
            drop(sys::kill(self.start.front_pid, Signal::CONT));
        }
    }
}
