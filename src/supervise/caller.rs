//! The caller: the process that is started to leave the pair of front and keeper behind.
//!
//! It is the parent of the front, and ends when the lock is held and it has said so. Until then it stands for the pair
//! before the shell: what ends it ends the wait, and what stops it stops the wait. Its end of the channel closes with
//! it, whatever ends it, so that nothing is held for somebody who was never told.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, setsid, waitpid};

use tokio::io::unix::AsyncFd;

use super::channel::{Channel, frame, receive, send};
use super::exit_status::ExitStatus;
use super::inherited;
use super::signals::Signal;
use super::sys::{self, Fork, SignalSet};
use super::wait::{self, ChildChange};
use crate::fd;

/// From the caller to the keeper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FromCaller {
    /// The caller is there, and takes what is held.
    Take,
    /// It has said what it was told to say.
    Done,
}

/// How long the pair may take to leave the queue once the caller has been told to end: what a front gives its keeper,
/// and a little more.
const LEAVING: Duration = Duration::from_millis(6_500);

/// The caller.
#[derive(Debug)]
pub struct Caller {
    channel: OwnedFd,
    signals: OwnedFd,
    front: i32,
    /// Whether the keeper has asked for it.
    asked: bool,
    /// What was blocked when it was started.
    before: SignalSet,
}

/// What the wait for the lock came to.
#[derive(Debug)]
pub enum Answer {
    /// It is held; this is to be said.
    Held(String),
    /// It is held, and the system refused what is needed to hear what is to be said.
    Unheard(io::Error),
    /// It is not, and the front has ended so.
    Ended(ExitStatus),
    /// This signal has ended the wait.
    Signalled(Signal),
}

/// Which process this is after the fork.
#[derive(Debug)]
pub enum Side {
    /// The one that was started.
    Caller(Caller),
    /// The one that becomes the front, with the keeper's end of the channel.
    Front(OwnedFd),
}

impl Caller {
    /// Forks the process that becomes the front, in a session of its own and with /dev/null for standard input and
    /// output. Must be called while the process has one thread. All signals are blocked from then on.
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
        let (own, keepers) = Channel::pair()?;
        let before = sys::block(&taken);
        match sys::fork() {
            Ok(Fork::Parent(front)) => {
                Ok(Side::Caller(Self { channel: own.into(), signals, front, asked: false, before }))
            }
            Ok(Fork::Child) => {
                // The caller is told of what comes in between, not this process.
                sys::set_mask(&before);
                // A process that was just forked leads no group yet.
                setsid()?;
                inherited::let_go();
                Ok(Side::Front(keepers.into()))
            }
            Err(error) => {
                sys::set_mask(&before);
                Err(error)
            }
        }
    }

    /// Waits until the lock is held and may be spoken of, or will not be.
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

    /// Has signals do to this process what they did when it was started, from now on. Nobody may read what it is to say, and its
    /// end gives back what is held.
    pub fn unblock(&self) {
        unblock(&self.before);
    }

    /// Says that what was to be said has been said; the pair is on its own from then on. An error means that the pair is
    /// gone.
    pub fn done(&self) -> io::Result<()> {
        send(&self.channel, frame(2, 0, 0), &[])
    }

    /// Gives up what is held, which nobody has been told of: waits until the pair has released it, and unblocks signals.
    pub fn give_up(self) {
        let Self { channel, front, before, .. } = self;
        drop(channel);
        wait::end_within(front, LEAVING);
        unblock(&before);
    }

    /// Whether the lock was held for it: from then on the front may have nowhere to say why it ended.
    pub fn was_asked(&self) -> bool {
        self.asked
    }

    fn hear(&mut self) -> Option<Answer> {
        match receive(&self.channel) {
            Ok(Some(([1, ..], _))) => {
                self.asked = true;
                // If the keeper is gone, the next one says it again.
                let _ = send(&self.channel, frame(1, 0, 0), &[]);
                None
            }
            Ok(Some(([2, ..], descriptors))) => {
                let text = descriptors.into_iter().next().map(read_all);
                let told = self.take_signals();
                Some(match (told, text) {
                    // Whoever was told to end meanwhile does.
                    (Some(told), _) => told,
                    (None, Some(Ok(text))) => Answer::Held(text),
                    (None, Some(Err(error))) => Answer::Unheard(error),
                    (None, None) => Answer::Unheard(io::ErrorKind::OutOfMemory.into()),
                })
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            // SIGCHLD says what became of the front.
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
                    Some(ChildChange::Exited(status)) => {
                        return Some(Answer::Ended(ExitStatus::Exited(status)));
                    }
                    Some(ChildChange::Killed(signal)) => {
                        return Some(Answer::Ended(ExitStatus::Signaled(signal)));
                    }
                    // It has left the queue, since it was asked to stop; it joins again when the job goes on.
                    Some(ChildChange::Stopped(_)) => stopped = true,
                    Some(ChildChange::Continued) | None => {}
                },
                // The front may just be leaving the queue, and has not stopped yet.
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

/// Puts `text` where the caller can read it. Errors: the system has no memory or no descriptor for it.
pub fn keep_answer(text: &str) -> io::Result<OwnedFd> {
    let mut memory = File::from(memfd_create(c"dlock-answer", MemfdFlags::CLOEXEC)?);
    memory.write_all(text.as_bytes())?;
    Ok(memory.into())
}

/// How long to wait where the system refused what cannot be refused for long.
const AGAIN: Duration = Duration::from_millis(10);

/// What the keeper hears of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// It has said this.
    Said(FromCaller),
    /// It has gone, and has said nothing more.
    Gone,
}

/// The keeper's end of the channel to the caller; needs a running tokio runtime.
#[derive(Debug)]
pub struct KeepersEnd(AsyncFd<OwnedFd>);

impl KeepersEnd {
    /// Takes the descriptor that [`Side::Front`] came with, or a copy of it.
    pub fn new(end: OwnedFd) -> io::Result<Self> {
        fd::watch(end).map(Self)
    }

    /// Asks the caller whether it is there.
    pub fn tell_held(&self) {
        // If not, its end of the channel is closed, and that is heard.
        let _ = send(self.0.get_ref(), frame(1, 0, 0), &[]);
    }

    /// Has the caller say what `text` has, now that the lock is held for it.
    ///
    /// Errors: the caller is gone.
    pub fn tell_answer(&self, text: &OwnedFd) -> io::Result<()> {
        send(self.0.get_ref(), frame(2, 0, 0), &[text.as_fd()])
    }

    /// What the caller says next. A refusal of the system is asked again: it says nothing of the caller, which may just have
    /// passed the answer on. Cancel-safe.
    pub async fn hear(&self) -> Heard {
        loop {
            match self.0.async_io(tokio::io::Interest::READABLE, receive).await {
                Ok(Some(([1, ..], _))) => return Heard::Said(FromCaller::Take),
                Ok(Some(([2, ..], _))) => return Heard::Said(FromCaller::Done),
                Ok(_) => return Heard::Gone,
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }
}
