//! The front: the process that users see.
//!
//! It has no runtime, no threads and no network. It takes every signal from a descriptor, tells the keeper,
//! and guards: when the keeper dies, or lets the published instant pass, the front ends the command's tree
//! itself.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{getpid, getppid};
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

use super::chances::{CHANCES, Chances};
use super::channel::{Channel, ToFront, ToKeeper};
use super::failure::{KeeperFailure, WhyFailed};
use super::keeper::Seed;
use super::outcome::Outcome;
use super::shared::Shared;
use super::signals::{Signal, SignalInfo};
use super::start::Start;
use super::sys::{self, Fork, SignalSet};
use super::terminal::{self, Terminal};
use super::tree;
use super::wait::{self, ChildChange, Children};
use crate::clock::{now, set_timer};
use crate::lock::Moment;

/// How long a keeper may take to leave the line after an ending signal: the time a release may take and, with the
/// chances below, a second.
const LEAVING: Duration = Duration::from_millis(5_200);
/// How long nothing must have happened after the start for a command to be a longer one.
const SETTLED: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// How long a keeper that has closed its end may take to say why and end.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How long the front lets the keeper wait for the lock.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// When the keeper should have given up waiting.
    pub give_up_at: Moment,
    /// How long a stopped keeper may stay in line.
    pub stopped: Duration,
}

/// How supervision ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FrontEnd {
    /// As the keeper said.
    Done(Outcome),
    /// The keeper failed; the command's tree is ended.
    KeeperFailed(KeeperFailure),
}

/// The front.
#[derive(Debug)]
pub struct Front {
    start: Start,
    signals: OwnedFd,
    timer: OwnedFd,
    shared: Shared,
}

/// The state of one keeper's life.
struct Watch {
    keeper: i32,
    channel: Channel,
    /// The ending signal that came while waiting.
    ended_by: Option<Signal>,
    /// The keeper must have acted by then, but for its last chances.
    act_by: Moment,
    chances: u32,
    late: Chances,
    /// Why it would be at fault if not.
    fault: WhyFailed,
    /// The command whose stop was followed, until somebody resumes the job.
    followed: Option<i32>,
    /// It or the command has just started, and others need the processors more than this process does.
    settling: bool,
    /// Suspended with the job: stop, then begin again.
    suspending: bool,
    /// Descriptors that carry the hold until the tree is gone.
    anchors: Vec<OwnedFd>,
    died: Option<WhyFailed>,
}

enum Step {
    Continue,
    End(FrontEnd),
    Again,
}

impl Step {
    fn or_else(self, next: impl FnOnce() -> Self) -> Self {
        if let Self::Continue = self { next() } else { self }
    }
}

impl Front {
    /// Takes over the process: blocks signals, becomes a subreaper. Must be called before any thread exists.
    pub fn new() -> io::Result<Self> {
        let terminal = Terminal::controlling();
        let mut taken = SignalSet::empty();
        let mut restore_ignored = Vec::new();
        for signal in Signal::takeable() {
            if !sys::is_ignored(signal) {
                taken.add(signal);
            } else if signal == Signal::PIPE && !sys::sigpipe_was_ignored() {
                // Ignored by this program alone: one that somebody sends is the command's.
                sys::set_default(signal);
                taken.add(signal);
            } else if signal == Signal::CHLD {
                // Ignored, the kernel would reap the children and their status would be lost.
                sys::set_default(signal);
                taken.add(signal);
                restore_ignored.push(signal);
            }
        }
        let mask = sys::block(&taken);
        rustix::process::set_child_subreaper(Some(getpid()))?;
        Ok(Self {
            start: Start {
                front_pid: getpid().as_raw_nonzero().get(),
                parent: getppid().map(|pid| pid.as_raw_nonzero().get()),
                group: sys::group_of(0),
                terminal,
                mask,
                restore_ignored,
            },
            signals: sys::signal_descriptor(&taken)?,
            timer: timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?,
            shared: Shared::new()?,
        })
    }

    /// What dlock was started with.
    pub fn start(&self) -> &Start {
        &self.start
    }

    /// Forks a keeper that does `duty` and supervises it to its end, again after each suspension.
    pub fn supervise(&mut self, patience: Patience, mut duty: impl FnMut(Seed<'_>)) -> io::Result<FrontEnd> {
        loop {
            self.shared.reset();
            let (channel, keepers_end) = Channel::pair()?;
            let keeper = match sys::fork()? {
                Fork::Parent(pid) => pid,
                Fork::Child => {
                    drop(channel);
                    duty(Seed {
                        channel: keepers_end,
                        shared: self.shared,
                        timer: &self.timer,
                        start: &self.start,
                    });
                    sys::exit_now(0)
                }
            };
            drop(keepers_end);
            let mut watch = Watch {
                keeper,
                channel,
                ended_by: None,
                act_by: patience.give_up_at,
                chances: CHANCES.0,
                late: Chances::default(),
                fault: WhyFailed::Mute,
                followed: None,
                settling: true,
                suspending: false,
                anchors: Vec::new(),
                died: None,
            };
            if let Some(end) = self.watch(&mut watch, patience)? {
                return Ok(end);
            }
        }
    }

    /// Has a new process do `duty` with what the last keeper abandoned, if it did, and waits so long for it. Only
    /// after that keeper is gone. If the system has no process left for it, nothing is done.
    pub fn clean_up(&self, within: Duration, duty: impl FnOnce(u128)) {
        let Some(number) = self.shared.abandoned() else { return };
        match sys::fork() {
            Ok(Fork::Child) => {
                duty(number);
                sys::exit_now(0)
            }
            Ok(Fork::Parent(pid)) if wait::end_within(pid, within).is_none() => {
                drop(sys::kill(pid, Signal::KILL));
                let _ = wait::await_end(pid);
            }
            Ok(Fork::Parent(_)) | Err(_) => {}
        }
    }

    /// Watches one keeper; `None` asks for another one.
    fn watch(&self, watch: &mut Watch, patience: Patience) -> io::Result<Option<FrontEnd>> {
        loop {
            self.arm(watch)?;
            let mut sources = [
                PollFd::new(&self.signals, PollFlags::IN),
                PollFd::new(&watch.channel, PollFlags::IN),
                PollFd::new(&self.timer, PollFlags::IN),
            ];
            match poll(&mut sources, watch.settling.then_some(&SETTLED)) {
                Ok(0) if std::mem::take(&mut watch.settling) => sys::give_back_code(),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            // The channel first: a last word counts, whatever else has happened.
            let step =
                self.hear(watch).or_else(|| self.take_signals(watch, patience)).or_else(|| self.guard(watch));
            match step {
                Step::Continue => {}
                Step::End(end) => return Ok(Some(end)),
                Step::Again => return Ok(None),
            }
        }
    }

    fn arm(&self, watch: &Watch) -> io::Result<()> {
        loop {
            let passed = self.shared.has_passed();
            set_timer(&self.timer, if passed { self.shared.guard_until() } else { watch.act_by })?;
            // The keeper sets the same timer when it passes the gate; that must not be undone here.
            if self.shared.has_passed() == passed {
                return Ok(());
            }
        }
    }

    fn hear(&self, watch: &mut Watch) -> Step {
        loop {
            match watch.channel.heard_by_front() {
                Ok(Some((message, descriptors))) => match self.heard(watch, message, descriptors) {
                    Step::Continue => {}
                    step => return step,
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Step::Continue,
                Ok(None) | Err(_) => return self.keeper_failed(watch, None),
            }
        }
    }

    fn heard(&self, watch: &mut Watch, message: ToFront, descriptors: Vec<OwnedFd>) -> Step {
        match message {
            ToFront::Held => {
                if self.shared.pass() {
                    drop(watch.channel.tell_keeper(ToKeeper::Go));
                }
            }
            ToFront::Started => {
                watch.anchors = descriptors;
                terminal::let_go_of_streams();
                watch.settling = true;
            }
            // After Ctrl-Z and `fg` the news may be old: only a command that is still stopped counts.
            ToFront::Stopped { pid } if tree::is_stopped(pid) => {
                watch.followed = Some(pid);
                sys::stop_self();
            }
            ToFront::Stopped { .. } => {}
            ToFront::Done(outcome) => {
                // The next holder may be about to start its command here; ending takes longer than that.
                sys::step_aside();
                return Step::End(FrontEnd::Done(outcome));
            }
            ToFront::Suspended => {
                let _ = wait::await_end(watch.keeper);
                if watch.suspending {
                    sys::stop_self();
                }
                return Step::Again;
            }
        }
        Step::Continue
    }

    fn take_signals(&self, watch: &mut Watch, patience: Patience) -> Step {
        while let Some(info) = sys::read_signal(&self.signals) {
            if info.own {
                continue;
            }
            if info.signal == Signal::CHLD {
                self.take_children(watch, patience);
            } else {
                self.pass_on(watch, info);
            }
        }
        match watch.died {
            // It may have spoken before it died.
            Some(_) => self.hear(watch),
            None => Step::Continue,
        }
    }

    /// Notes what became of the keeper, and reaps orphans, which come here as process 1 of a container.
    fn take_children(&self, watch: &mut Watch, patience: Patience) {
        while let Children::Changed(pid, change) = wait::next_change() {
            if pid != watch.keeper {
                continue;
            }
            match change {
                ChildChange::Killed(_) | ChildChange::Exited(_) => watch.died = Some(WhyFailed::of(change)),
                ChildChange::Stopped(_) if !self.shared.has_passed() => {
                    watch.act_by = watch.act_by.min(now() + patience.stopped);
                    watch.fault = WhyFailed::Stalled;
                }
                ChildChange::Continued if !self.shared.has_passed() && watch.ended_by.is_none() => {
                    watch.act_by = patience.give_up_at;
                    watch.fault = WhyFailed::Mute;
                }
                ChildChange::Stopped(_) | ChildChange::Continued => {}
            }
        }
    }

    fn pass_on(&self, watch: &mut Watch, info: SignalInfo) {
        let SignalInfo { signal, from_kernel, .. } = info;
        let everybody = from_kernel && self.start.terminal.is_some();
        if signal == Signal::CONT
            && self.start.terminal.is_some()
            && watch.followed.take().is_some_and(|command| !tree::is_stopped(command))
        {
            // Who resumed the job resumed all of its group; passed on, it could undo the next Ctrl-Z.
            return;
        }
        if signal.is_terminal_stop() {
            let resumable = self.start.terminal.as_ref().is_none_or(|t| !t.nobody_resumes);
            if resumable && self.shared.shut() {
                watch.suspending = true;
                Self::leave_by(watch);
                drop(watch.channel.tell_keeper(ToKeeper::Suspend));
            }
            // The command stops itself or does not; its stop is followed, not the terminal's signal.
            if everybody || !self.shared.has_passed() {
                return;
            }
        } else if signal.is_ending() && self.shared.shut() {
            watch.ended_by = Some(signal);
            Self::leave_by(watch);
        }
        drop(watch.channel.tell_keeper(ToKeeper::Signal { signal, everybody }));
    }

    /// From now on the keeper has only so long to leave the line.
    fn leave_by(watch: &mut Watch) {
        watch.act_by = watch.act_by.min(now() + LEAVING);
        watch.fault = WhyFailed::Stalled;
    }

    /// Acts if the keeper let its time pass.
    fn guard(&self, watch: &mut Watch) -> Step {
        if self.shared.has_passed() {
            let late = now() >= self.shared.guard_until() && !watch.late.give(&self.shared);
            if late { self.keeper_failed(watch, Some(WhyFailed::Stalled)) } else { Step::Continue }
        } else if now() >= watch.act_by {
            // Nothing is held, and a keeper that is only late leaves the line itself.
            let Some(left) = watch.chances.checked_sub(1) else {
                return self.keeper_failed(watch, Some(watch.fault));
            };
            (watch.chances, watch.act_by) = (left, now() + CHANCES.1);
            Step::Continue
        } else {
            Step::Continue
        }
    }

    /// Ends what a failed keeper left. The keeper is killed first: its children become ours, and a keeper that
    /// is woken later must not act on an old state.
    fn keeper_failed(&self, watch: &mut Watch, why: Option<WhyFailed>) -> Step {
        if why.is_none() && watch.died.is_none() && !self.shared.has_passed() {
            // No command runs: a keeper that gives up may still say why.
            watch.died = wait::end_within(watch.keeper, LAST_WORDS).map(WhyFailed::of);
        }
        // Once it is reaped its pid may be somebody else's.
        if watch.died.is_none() {
            drop(sys::kill(watch.keeper, Signal::KILL));
        }
        let keeper = watch.keeper;
        let died = &mut watch.died;
        let left = tree::end(|pid, change| {
            if pid == keeper {
                died.get_or_insert(WhyFailed::of(change));
            }
        });
        watch.anchors.clear();
        let running = self.shared.has_passed();
        match watch.ended_by {
            Some(signal) if !running => Step::End(FrontEnd::Done(Outcome::Signaled(signal))),
            _ => {
                let why = why.or(watch.died).unwrap_or(WhyFailed::Died(None));
                let ended = self.shared.outcome();
                Step::End(FrontEnd::KeeperFailed(KeeperFailure { why, running, ended, left }))
            }
        }
    }
}
