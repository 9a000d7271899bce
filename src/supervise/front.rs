//! The front: the process that users see.
//!
//! It has no runtime, no threads and no network. It takes every signal from a descriptor, passes it to the keeper, and
//! guards. If the keeper dies, or lets the guard instant pass, the front kills the command's tree itself.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getppid;
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

use super::channel::{self, ToFront, ToKeeper};
use super::ender::Ender;
use super::failure::WhyFailed;
use super::inherited;
use super::keeper::KeeperSetup;
use super::limits;
use super::mark::MarkBoard;
use super::notify::Notifier;
use super::shared::Shared;
use super::signals::{Signal, SignalInfo};
use super::start::Start;
use super::sys::{self, SignalSet};
use super::terminal::Terminal;
use super::wait::{self, ChildChange, Children};
use super::watch::{REAPING, Step, Watch};
use crate::clock::{now, set_timer};
use crate::lock::Moment;

pub use super::watch::FrontEnd;

/// How many signals to take before checking the deadline again.
const SIGNALS_AT_ONCE: usize = 64;
/// How long to wait if the system refuses a timer.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// How long the front lets the keeper wait for the lock.
#[derive(Clone, Copy, Debug)]
pub struct WaitLimits {
    /// When a keeper that has waited in vain should have left the queue.
    pub gone_by: Moment,
    /// How long a stopped keeper may stay in the queue.
    pub stopped: Duration,
}

/// The process that users see.
#[derive(Debug)]
pub struct Front {
    pub(super) start: Start,
    pub(super) signals: OwnedFd,
    pub(super) timer: OwnedFd,
    pub(super) shared: Shared,
    /// The means to kill the tree.
    pub ender: Ender,
    /// The command may be started again, with everything that this process was started with: it keeps the inherited streams and
    /// descriptors.
    pub starts_again: bool,
    /// This process outlives the caller, and closes all streams when the hold begins.
    pub stays_behind: bool,
    /// Notifies the service manager.
    pub notifier: Option<Notifier>,
    /// Where nested runs set marks; `None` if the system has no pipe to give.
    pub(super) board: Option<MarkBoard>,
    /// Descriptors that carry the hold in the kernel, kept while a process may run under it.
    pub(super) anchors: Vec<OwnedFd>,
}

impl Front {
    /// Takes over the process: blocks signals and becomes a subreaper. Must be called while the process has one thread.
    ///
    /// Errors: the system has no descriptors or memory left; or this is user-mode emulation
    /// ([`limits::become_subreaper`]).
    pub fn new() -> io::Result<Self> {
        sys::settle_threads();
        inherited::look();
        let terminal = Terminal::controlling();
        let mut taken = SignalSet::empty();
        let mut restore_ignored = Vec::new();
        for signal in Signal::takeable() {
            if !sys::is_ignored(signal) {
                taken.add(signal);
            } else if signal == Signal::PIPE && !sys::sigpipe_was_ignored() {
                // Only this program ignores it: a SIGPIPE from another process is for the command.
                sys::set_default(signal);
                taken.add(signal);
            } else if signal == Signal::CHLD {
                // While it is ignored, the kernel reaps the children and their status is lost.
                sys::set_default(signal);
                taken.add(signal);
                restore_ignored.push(signal);
            }
        }
        let mask = sys::block(&taken);
        limits::become_subreaper()?;
        let front_pid = sys::own_pid();
        let start = Start {
            front_pid,
            parent: getppid().map(|pid| pid.as_raw_nonzero().get()),
            group: sys::group_of(0),
            leads_session: sys::session_of(0) == Some(front_pid),
            terminal,
            mask,
            restore_ignored,
        };
        let shared = Shared::new()?;
        Ok(Self {
            ender: Ender::new(shared, start.command_group() == Some(0))?,
            start,
            signals: sys::signal_descriptor(&taken)?,
            timer: timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?,
            shared,
            starts_again: false,
            stays_behind: false,
            notifier: None,
            board: None,
            anchors: Vec::new(),
        })
    }

    /// Prepares for another command. Processes that the last one left on purpose do not belong to its tree.
    ///
    /// Errors: as for [`Front::new`].
    pub fn begin_again(&mut self) -> io::Result<()> {
        self.ender = Ender::new(self.shared, self.start.command_group() == Some(0))?;
        Ok(())
    }

    /// Forks a keeper that runs `duty`, and supervises it until it ends. Does so again after each suspension.
    ///
    /// Errors: the system has no process or descriptor left.
    pub fn supervise(
        &mut self,
        patience: WaitLimits,
        mut duty: impl FnMut(KeeperSetup<'_>),
    ) -> io::Result<FrontEnd> {
        loop {
            self.shared.reset();
            self.anchors.clear();
            let writing_end;
            (self.board, writing_end) = MarkBoard::new().ok().unzip();
            let (channel, keepers_end) = channel::pair()?;
            // The end of the channel wakes this process if it is stopped when its keeper dies. If the system refuses that,
            // this process acts when it is continued.
            let _ = sys::wake_on_message(channel.as_fd());
            let Some(keeper) = sys::fork()? else {
                drop(channel);
                duty(KeeperSetup {
                    channel: keepers_end,
                    shared: self.shared,
                    timer: &self.timer,
                    board: self.board.as_ref(),
                    writing_end,
                    ender: self.ender.hand_over(),
                    start: &self.start,
                });
                sys::exit_now(0)
            };
            drop((keepers_end, writing_end));
            let mut watch = Watch::new(keeper, channel, patience.gone_by);
            if let Some(end) = self.watch(&mut watch, patience) {
                return Ok(end);
            }
        }
    }

    /// Runs `duty` in a new process, with the number that the last keeper took, if it took one. Waits at most `within`,
    /// then kills that process. Must be called after that keeper is gone. Does nothing if the system has no process
    /// left.
    pub fn clean_up(&self, within: Duration, duty: impl FnOnce(u128)) {
        let Some(number) = self.shared.number() else { return };
        match sys::fork() {
            Ok(None) => {
                duty(number);
                sys::exit_now(0)
            }
            Ok(Some(pid)) if wait::end_within(pid, within).is_none() => {
                drop(sys::kill(pid, Signal::KILL));
                wait::end_within(pid, REAPING[1]);
            }
            Ok(Some(_)) | Err(_) => {}
        }
    }

    /// Watches one keeper. Returns `None` if another one should follow.
    fn watch(&mut self, watch: &mut Watch, patience: WaitLimits) -> Option<FrontEnd> {
        loop {
            self.await_something(watch);
            // The deadline comes before everything else. But a last message counts, even if it is late.
            let late = self.is_late(watch);
            let mut step = self.hear(watch);
            if late && self.is_late(watch) {
                step = step.or_else(|| self.act(watch));
            }
            match step.or_else(|| self.take_signals(watch, patience)) {
                None => {}
                Some(Step::End(end)) => return Some(end),
                Some(Step::Again) => return None,
            }
        }
    }

    /// Waits for a signal, a message or the deadline. May return too early.
    fn await_something(&self, watch: &Watch) {
        let deadline = self.deadline(watch);
        let mut armed = set_timer(&self.timer, deadline).is_ok();
        if self.deadline(watch) != deadline {
            // The keeper has passed the gate meanwhile, and may have set the timer before.
            armed = set_timer(&self.timer, self.deadline(watch)).is_ok();
        }
        let mut sources = [
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.timer, PollFlags::IN),
            PollFd::new(&watch.channel, PollFlags::IN),
        ];
        // A closed channel would be reported again and again.
        let open = if watch.closed { 2 } else { 3 };
        match poll(&mut sources[..open], (!armed).then_some(&LOOK_AGAIN)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => wait::pause(Duration::from_millis(1)),
        }
    }

    fn deadline(&self, watch: &Watch) -> Moment {
        let guards = self.shared.gate.has_passed() && watch.last_word.is_none();
        if guards { self.shared.guard_until() } else { watch.act_by }
    }

    fn is_late(&self, watch: &Watch) -> bool {
        now() >= self.deadline(watch)
    }

    pub(super) fn hear(&mut self, watch: &mut Watch) -> Option<Step> {
        loop {
            match channel::heard_by_front(&watch.channel) {
                Ok(Some((message, descriptors))) => self.heard(watch, message, descriptors),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                // The keeper is exiting. SIGCHLD will show when it has.
                Ok(None) if watch.last_word.is_some() => {
                    watch.closed = true;
                    return None;
                }
                Ok(None) => return Some(self.keeper_failed(watch, None)),
                // Not known is not gone: if the keeper is dead, the end of the channel or SIGCHLD will show it.
                Err(_) => {
                    wait::pause(Duration::from_millis(1));
                    return None;
                }
            }
        }
    }

    fn heard(&mut self, watch: &mut Watch, message: ToFront, descriptors: Vec<OwnedFd>) {
        match message {
            ToFront::Started { handle } => self.command_started(watch, handle, descriptors),
            ToFront::Waiting { ahead } => self.notifier.iter_mut().for_each(|n| n.waiting(ahead)),
            ToFront::Done(_) | ToFront::Again(_) | ToFront::Suspended => Self::last_word(watch, message),
        }
    }

    fn command_started(&mut self, watch: &mut Watch, handle: bool, descriptors: Vec<OwnedFd>) {
        let mut descriptors = descriptors.into_iter();
        if handle {
            self.ender.command = descriptors.next();
        }
        self.anchors = descriptors.collect();
        watch.started = true;
        self.notifier.iter().for_each(Notifier::started);
        if !self.starts_again {
            inherited::let_go();
        }
        if self.stays_behind {
            inherited::let_go_of_errors();
            inherited::leave_directory();
        }
    }

    fn take_signals(&mut self, watch: &mut Watch, patience: WaitLimits) -> Option<Step> {
        for _ in 0..SIGNALS_AT_ONCE {
            let before = self.shared.stops();
            match sys::read_signal(&self.signals) {
                Ok(info) if info.own => {}
                Ok(info) if info.signal == Signal::CHLD => self.take_children(watch, patience),
                Ok(info) if info.signal == Signal::CONT => {
                    // A resumed process does not stop when the keeper has left the queue.
                    watch.suspending = false;
                    // If this process was stopped meanwhile, this SIGCONT or another one has resumed it.
                    self.pass_on(watch, info, self.shared.stops());
                }
                Ok(info) => self.pass_on(watch, info, before),
                Err(error) => {
                    if error.kind() != io::ErrorKind::WouldBlock {
                        wait::pause(Duration::from_millis(1));
                    }
                    // Signals that come from here on come after the command has joined the group.
                    watch.in_group = watch.started && self.shared.gate.command_is_in_group();
                    break;
                }
            }
        }
        watch.died?;
        self.hear_last(watch).or_else(|| Some(self.keeper_failed(watch, None)))
    }

    /// Notes how the keeper changed, and reaps orphans; process 1 of a container gets those.
    fn take_children(&mut self, watch: &mut Watch, patience: WaitLimits) {
        while let Children::Changed(pid, change) = wait::next_change() {
            if pid != watch.keeper {
                if let ChildChange::Ended(end) = change {
                    self.ender.forget(pid);
                    if self.shared.gate.command() == Some(pid) {
                        watch.command_ended = Some(end);
                    }
                }
                continue;
            }
            match change {
                ChildChange::Ended(end) => watch.died = Some(WhyFailed::of(end)),
                ChildChange::Stopped(_) if !self.shared.gate.has_passed() => {
                    watch.act_by = watch.act_by.min(now() + patience.stopped);
                    watch.fault = WhyFailed::Stalled;
                }
                ChildChange::Continued if !self.shared.gate.has_passed() && watch.told_to_end.is_none() => {
                    watch.act_by = patience.gone_by;
                    watch.fault = WhyFailed::Mute;
                }
                ChildChange::Stopped(_) | ChildChange::Continued => {}
            }
        }
    }

    fn pass_on(&self, watch: &mut Watch, info: SignalInfo, stops: u8) {
        let signal = info.signal;
        let everybody = watch.in_group && self.start.reaches_the_group(info);
        watch.told_to_end = Some(signal).filter(|signal| signal.is_ending()).or(watch.told_to_end);
        if signal == Signal::CONT && self.is_resumed(watch, info, stops) {
            return;
        }
        if signal.is_terminal_stop() {
            let resumable = self.start.terminal.as_ref().is_none_or(|t| !t.nobody_resumes);
            // A running command stops by itself or does not, and the keeper follows its stop. After its end the keeper
            // follows the terminal's signal: it stops this process, and resumes it with its next message.
            if resumable && self.shared.gate.shut() {
                watch.suspending = true;
                Self::leave_by(watch);
            } else if !self.shared.gate.has_passed() || (everybody && !self.ender.command_has_ended()) {
                return;
            }
        } else if signal.is_ending() && self.shared.gate.shut() {
            Self::leave_by(watch);
        }
        drop(channel::tell_keeper(&watch.channel, ToKeeper { signal, everybody, stops }));
    }

    /// Returns whether the command needs no SIGCONT: the keeper undid a stop that it had followed, or the whole job was
    /// resumed. If this one were passed on, the command would get two.
    fn is_resumed(&self, watch: &mut Watch, info: SignalInfo, stops: u8) -> bool {
        let followed = std::mem::replace(&mut watch.resumed_after, stops) != stops;
        if info.sender == Some(watch.keeper) {
            return true;
        }
        let command = self.shared.gate.command().filter(|_| followed && self.start.terminal.is_some());
        command.is_some_and(|command| self.ender.is_stopped(command) == Some(false))
    }
}
