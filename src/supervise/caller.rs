//! The caller: the process that a shell started, and that leaves front and keeper behind.
//!
//! It is the parent of the front. It exits once the lock is held and it has printed that. Until then it represents
//! front and keeper to the shell: a signal that ends it ends the wait, and one that stops it stops the wait. Its end of
//! the channel closes with it, so that dlock never holds a lock for a caller that did not learn of it.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, setsid, waitpid};

use tokio::io::unix::AsyncFd;

use super::channel::{frame, pair, receive, send};
use super::exit_status::ExitStatus;
use super::inherited;
use super::signals::Signal;
use super::sys::{self, SignalSet};
use super::wait::{self, ChildChange};
use crate::fd;

/// How long front and keeper may take to leave the queue after the caller's end: as long as a front gives its keeper,
/// and half a second more.
const LEAVING: Duration = Duration::from_millis(6_500);

/// The process that the shell waits for.
#[derive(Debug)]
pub struct Caller {
    channel: OwnedFd,
    signals: OwnedFd,
    front: i32,
    /// Whether the keeper has held the lock for this caller. From then on the front may have no stream to print to when it
    /// ends.
    pub was_asked: bool,
    /// The signal mask that it was started with.
    before: SignalSet,
}

/// The result of the wait for the lock.
#[derive(Debug)]
pub enum Answer {
    /// The lock is held; print this.
    Held(String),
    /// The lock is held, but the system refused a resource to receive the output.
    Unheard(io::Error),
    /// The lock is not held; the front ended like this.
    Ended(ExitStatus),
    /// This signal ended the wait.
    Signalled(Signal),
}

/// Which process this is after the fork.
#[derive(Debug)]
pub enum Side {
    /// The process that the shell started.
    Caller(Caller),
    /// The process that becomes the front, with the keeper's end of the channel.
    Front(OwnedFd),
}

impl Caller {
    /// Forks the process that becomes the front, in a session of its own and with /dev/null as standard input and
    /// output. Blocks all signals in the caller. Must be called while the process has one thread.
    ///
    /// Errors: the system has no process, descriptor or memory left.
    pub fn fork() -> io::Result<Side> {
        let mut taken = SignalSet::empty();
        for signal in Signal::takeable() {
            if signal == Signal::CHLD {
                sys::set_default(signal);
            }
            if signal == Signal::CHLD || !sys::is_ignored(signal) {
                taken.add(signal);
            }
        }
        let signals = sys::signal_descriptor(&taken)?;
        let (channel, keepers) = pair()?;
        let before = sys::block(&taken);
        match sys::fork() {
            Ok(Some(front)) => Ok(Side::Caller(Self { channel, signals, front, was_asked: false, before })),
            Ok(None) => {
                // Signals are for the caller from here on, not for this process.
                sys::set_mask(&before);
                // A freshly forked process leads no group yet, so this succeeds.
                setsid()?;
                inherited::let_go();
                Ok(Side::Front(keepers))
            }
            Err(error) => {
                sys::set_mask(&before);
                Err(error)
            }
        }
    }

    /// Waits until the lock is held and the output has come, or the wait has ended.
    pub fn await_answer(&mut self) -> Answer {
        loop {
            let mut sources =
                [PollFd::new(&self.signals, PollFlags::IN), PollFd::new(&self.channel, PollFlags::IN)];
            match poll(&mut sources, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => wait::pause(Duration::from_millis(1)),
            }
            if let Some(answer) = self.take_signals().or_else(|| self.hear()) {
                return answer;
            }
        }
    }

    /// Restores the signal mask that this process was started with. Its output may block for want of a reader, so
    /// signals must be able to end it; its end releases the hold.
    pub fn unblock(&self) {
        unblock(&self.before);
    }

    /// Confirms to the keeper that the output has been printed. Front and keeper continue alone from then on.
    ///
    /// Errors: the keeper is gone.
    pub fn done(&self) -> io::Result<()> {
        send(&self.channel, frame(2, 0, 0), &[])
    }

    /// Gives up a hold that has not been printed: waits until the front has ended, at most 6.5 s, and restores
    /// the signal mask.
    pub fn give_up(self) {
        let Self { channel, front, before, .. } = self;
        drop(channel);
        wait::end_within(front, LEAVING);
        unblock(&before);
    }

    fn hear(&mut self) -> Option<Answer> {
        match receive(&self.channel) {
            Ok(Some(([1, ..], _))) => {
                self.was_asked = true;
                // If the keeper is gone, the next one asks again.
                let _ = send(&self.channel, frame(1, 0, 0), &[]);
                None
            }
            Ok(Some(([2, ..], descriptors))) => {
                let text = descriptors.into_iter().next().map(read_all);
                let told = self.take_signals();
                Some(match (told, text) {
                    // A caller that was signalled meanwhile ends.
                    (Some(told), _) => told,
                    (None, Some(Ok(text))) => Answer::Held(text),
                    (None, Some(Err(error))) => Answer::Unheard(error),
                    (None, None) => Answer::Unheard(io::ErrorKind::OutOfMemory.into()),
                })
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            // SIGCHLD will show what happened to the front.
            Ok(_) | Err(_) => {
                wait::pause(Duration::from_millis(1));
                None
            }
        }
    }

    fn take_signals(&mut self) -> Option<Answer> {
        let mut stopped = false;
        loop {
            match sys::read_signal(&self.signals) {
                Ok(info) if info.signal == Signal::CHLD => match self.front_change() {
                    // The front has left the queue, since it was stopped. It joins again when the job continues.
                    Some(ChildChange::Stopped(_)) => stopped = true,
                    Some(ChildChange::Ended(end)) => return Some(Answer::Ended(end)),
                    Some(ChildChange::Continued) | None => {}
                },
                // The front may be leaving the queue and not have stopped yet.
                Ok(info) if info.signal == Signal::CONT => {
                    stopped = false;
                    self.resume_front();
                }
                Ok(info) if info.signal.is_ending() => return Some(Answer::Signalled(info.signal)),
                Ok(info) if info.signal.is_terminal_stop() => drop(sys::kill(self.front, info.signal)),
                Ok(_) => {}
                Err(_) if stopped => {
                    sys::stop_self();
                    self.resume_front();
                    return None;
                }
                Err(_) => return None,
            }
        }
    }

    fn front_change(&self) -> Option<ChildChange> {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        let changed = waitpid(Pid::from_raw(self.front), options).ok().flatten();
        changed.map(|(_, status)| wait::change(status))
    }

    fn resume_front(&self) {
        drop(sys::kill(self.front, Signal::CONT));
    }
}

fn unblock(before: &SignalSet) {
    sys::leave_no_core();
    sys::set_mask(before);
}

fn read_all(memory: OwnedFd) -> io::Result<String> {
    let mut file = File::from(memory);
    file.seek(SeekFrom::Start(0))?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Writes `text` to memory that the caller can read.
///
/// Errors: the system has no memory or descriptor left.
pub fn keep_answer(text: &str) -> io::Result<OwnedFd> {
    let mut memory = File::from(memfd_create(c"dlock-answer", MemfdFlags::CLOEXEC)?);
    memory.write_all(text.as_bytes())?;
    Ok(memory.into())
}

/// The pause after a refusal of the system that cannot last long.
const AGAIN: Duration = Duration::from_millis(10);

/// A message from the caller to the keeper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// The caller is alive, and takes the hold.
    Take,
    /// The caller has printed its output.
    Done,
    /// The end of the channel: the caller is gone.
    Gone,
}

/// The keeper's end of the channel to the caller. Needs a running tokio runtime.
#[derive(Debug)]
pub struct KeepersEnd(AsyncFd<OwnedFd>);

impl KeepersEnd {
    /// Takes the descriptor of [`Side::Front`], or a copy of it.
    ///
    /// Errors: the runtime has no descriptor or memory left.
    pub fn new(end: OwnedFd) -> io::Result<Self> {
        fd::watch(end).map(Self)
    }

    /// Asks the caller whether it is alive.
    pub fn tell_held(&self) {
        // If it is not, its end of the channel is closed, and [`KeepersEnd::hear`] returns that.
        let _ = send(self.0.get_ref(), frame(1, 0, 0), &[]);
    }

    /// Sends `text` to the caller, which prints it. The lock is held for it.
    ///
    /// Errors: the caller is gone.
    pub fn tell_answer(&self, text: &OwnedFd) -> io::Result<()> {
        send(self.0.get_ref(), frame(2, 0, 0), &[text.as_fd()])
    }

    /// Waits for the caller's next message. Tries again after an error of the system, which proves nothing about the
    /// caller: it may just have printed its output. Cancel-safe.
    pub async fn hear(&self) -> Heard {
        loop {
            match self.0.async_io(tokio::io::Interest::READABLE, receive).await {
                Ok(Some(([1, ..], _))) => return Heard::Take,
                Ok(Some(([2, ..], _))) => return Heard::Done,
                Ok(_) => return Heard::Gone,
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }
}
