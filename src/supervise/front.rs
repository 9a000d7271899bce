//! The front: the process that users see.
//!
//! It has no runtime, no threads and no network. It takes every signal from a descriptor, tells the keeper,
//! and guards: when the keeper dies, or lets the published instant pass, the front ends the command's tree
//! itself.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getppid;
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

use super::adopted::Adopted;
use super::channel::{Channel, ToFront, ToKeeper};
use super::ender::Ender;
use super::failure::WhyFailed;
use super::inherited;
use super::keeper::KeeperSetup;
use super::limits;
use super::notify::Notifier;
use super::shared::Shared;
use super::signals::{Signal, SignalInfo};
use super::start::Start;
use super::sys::{self, Fork, SignalSet};
use super::terminal::Terminal;
use super::wait::{self, ChildChange, Children};
use super::watch::{LastWord, REAPING, Step, Watch};
use crate::clock::{now, set_timer};
use crate::lock::Moment;

pub use super::watch::FrontEnd;

/// How many signals are taken before the deadline is looked at again.
const SIGNALS_AT_ONCE: usize = 64;
/// How long to wait where the system refuses a timer, or to wait.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// How long the front lets the keeper wait for the lock.
#[derive(Clone, Copy, Debug)]
pub struct WaitLimits {
    /// When a keeper that has waited in vain should have left the queue.
    pub gone_by: Moment,
    /// How long a stopped keeper may stay in the queue.
    pub stopped: Duration,
}

/// The front.
#[derive(Debug)]
pub struct Front {
    pub(super) start: Start,
    pub(super) signals: OwnedFd,
    pub(super) timer: OwnedFd,
    pub(super) shared: Shared,
    pub(super) ender: Ender,
    /// The command may be started again, with all that this process was started with.
    starts_again: bool,
    /// This process goes on when the one that was started has ended.
    pub(super) stays_behind: bool,
    /// Who is told how it goes.
    notifier: Option<Notifier>,
}

impl Front {
    /// Takes over the process: blocks signals, becomes a subreaper. Must be called while there is no other thread.
    pub fn new() -> io::Result<Self> {
        sys::settle_threads();
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
        })
    }

    /// Keeps what dlock was started with for a command that is started later.
    pub fn keep_for_another(&mut self) {
        self.starts_again = true;
    }

    /// Has `notifier` told how it goes.
    pub fn notify(&mut self, notifier: Option<Notifier>) {
        self.notifier = notifier;
    }

    /// Makes ready for another command. What the last one left on purpose is nobody's tree any more.
    ///
    /// Errors: as for [`Front::new`].
    pub fn begin_again(&mut self) -> io::Result<()> {
        self.ender = Ender::new(self.shared, self.start.command_group() == Some(0))?;
        Ok(())
    }

    /// Has `process` stand in the place of a command: it is there already, and is ended as a command would be.
    pub fn adopt(&mut self, process: Adopted) {
        self.ender.adopt(process);
    }

    /// Has this process go on when the one that was started has ended: it keeps nothing of that one's.
    pub fn stay_behind(&mut self) {
        self.stays_behind = true;
    }

    /// Forks a keeper that does `duty` and supervises it to its end, again after each suspension.
    pub fn supervise(
        &mut self,
        patience: WaitLimits,
        mut duty: impl FnMut(KeeperSetup<'_>),
    ) -> io::Result<FrontEnd> {
        loop {
            self.shared.reset();
            let (channel, keepers_end) = Channel::pair()?;
            let keeper = match sys::fork()? {
                Fork::Parent(pid) => pid,
                Fork::Child => {
                    drop(channel);
                    duty(KeeperSetup {
                        channel: keepers_end,
                        shared: self.shared,
                        ender: self.ender.hand_over(),
                        start: &self.start,
                    });
                    sys::exit_now(0)
                }
            };
            drop(keepers_end);
            let mut watch = Watch::new(keeper, channel, patience.gone_by);
            if let Some(end) = self.watch(&mut watch, patience) {
                return Ok(end);
            }
        }
    }

    /// Has a new process do `duty` with the number that the last keeper took, if it did, and waits so long for it. Only
    /// after that keeper is gone. If the system has no process left for it, nothing is done.
    pub fn clean_up(&self, within: Duration, duty: impl FnOnce(u128)) {
        let Some(number) = self.shared.number() else { return };
        match sys::fork() {
            Ok(Fork::Child) => {
                duty(number);
                sys::exit_now(0)
            }
            Ok(Fork::Parent(pid)) if wait::end_within(pid, within).is_none() => {
                drop(sys::kill(pid, Signal::KILL));
                wait::end_within(pid, REAPING[1]);
            }
            Ok(Fork::Parent(_)) | Err(_) => {}
        }
    }

    /// Watches one keeper; `None` asks for another one.
    fn watch(&mut self, watch: &mut Watch, patience: WaitLimits) -> Option<FrontEnd> {
        loop {
            self.await_something(watch);
            // The deadline before anything else; but a last word counts, whatever else has happened.
            let late = self.is_late(watch);
            let mut step = self.hear(watch);
            if late && self.is_late(watch) {
                step = step.or_else(|| self.act(watch));
            }
            match step.or_else(|| self.take_signals(watch, patience)) {
                Step::Continue => {}
                Step::End(end) => return Some(end),
                Step::Again => return None,
            }
        }
    }

    /// Returns when there is something to hear, to take or to do, or a little later.
    fn await_something(&self, watch: &Watch) {
        let armed = self.arm(watch).is_ok();
        let mut sources = [
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.timer, PollFlags::IN),
            PollFd::new(&watch.channel, PollFlags::IN),
        ];
        // The end of the channel would be reported again and again.
        let open = if watch.closed { 2 } else { 3 };
        match poll(&mut sources[..open], (!armed).then_some(&LOOK_AGAIN)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => wait::pause(Duration::from_millis(1)),
        }
    }

    fn arm(&self, watch: &Watch) -> Result<(), rustix::io::Errno> {
        set_timer(&self.timer, self.deadline(watch))
    }

    fn deadline(&self, watch: &Watch) -> Moment {
        let guards = self.shared.gate.has_passed() && watch.last_word.is_none();
        if guards { self.shared.guard_until() } else { watch.act_by }
    }

    fn is_late(&self, watch: &Watch) -> bool {
        now() >= self.deadline(watch)
    }

    pub(super) fn hear(&mut self, watch: &mut Watch) -> Step {
        loop {
            match watch.channel.heard_by_front() {
                Ok(Some((message, descriptors))) => self.heard(watch, message, descriptors),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Step::Continue,
                // It is on its way out; SIGCHLD says when it has gone.
                Ok(None) if watch.last_word.is_some() => {
                    watch.closed = true;
                    return Step::Continue;
                }
                Ok(None) => return self.keeper_failed(watch, None),
                // Not known is not gone: if the keeper is dead, the end of the channel or SIGCHLD will say so.
                Err(_) => {
                    wait::pause(Duration::from_millis(1));
                    return Step::Continue;
                }
            }
        }
    }

    fn heard(&mut self, watch: &mut Watch, message: ToFront, descriptors: Vec<OwnedFd>) {
        match message {
            // What woke this process: the timer is set again before it waits.
            ToFront::Guard => {}
            ToFront::Started { handle } => self.command_started(watch, handle, descriptors),
            ToFront::Done(outcome) => Self::last_word(watch, LastWord::Done(outcome)),
            ToFront::Waiting { ahead } => self.notifier.iter_mut().for_each(|n| n.waiting(ahead)),
            ToFront::Again { pause_ms } => {
                let pause = Duration::from_millis(u64::try_from(pause_ms).unwrap_or(0));
                Self::last_word(watch, LastWord::Again(pause));
            }
            ToFront::Suspended => Self::last_word(watch, LastWord::Suspended),
        }
    }

    fn command_started(&mut self, watch: &mut Watch, handle: bool, descriptors: Vec<OwnedFd>) {
        let mut descriptors = descriptors.into_iter();
        if handle {
            self.ender.started(descriptors.next());
        }
        watch.anchors = descriptors.collect();
        watch.started = true;
        self.notifier.iter().for_each(Notifier::started);
        if !self.starts_again {
            inherited::let_go();
        }
        if self.stays_behind {
            inherited::let_go_of_errors();
            inherited::leave_directory();
        }
        // Should this process be stopped when its keeper dies. Where that cannot be, it acts when it goes on.
        let _ = sys::wake_on_message(watch.channel.as_fd());
    }

    fn take_signals(&mut self, watch: &mut Watch, patience: WaitLimits) -> Step {
        for _ in 0..SIGNALS_AT_ONCE {
            let before = self.shared.stops();
            match sys::read_signal(&self.signals) {
                Ok(info) if info.own => {}
                Ok(info) if info.signal == Signal::CHLD => self.take_children(watch, patience),
                Ok(info) if info.signal == Signal::CONT => {
                    // Who is resumed does not stop when the keeper has left the queue.
                    watch.suspending = false;
                    // If this process was stopped meanwhile, this or another one has resumed it.
                    self.pass_on(watch, info, self.shared.stops());
                }
                Ok(info) => self.pass_on(watch, info, before),
                Err(error) => {
                    if error.kind() != io::ErrorKind::WouldBlock {
                        wait::pause(Duration::from_millis(1));
                    }
                    // Whatever comes from now on comes after the command has joined the group.
                    watch.in_group = watch.started && self.shared.gate.command_is_in_group();
                    break;
                }
            }
        }
        match (watch.died, watch.last_word) {
            (Some(_), Some(_)) => self.keeper_ended(watch),
            // It may have spoken before it died.
            (Some(_), None) => match self.hear(watch) {
                Step::Continue if watch.last_word.is_some() => self.keeper_ended(watch),
                Step::Continue => self.keeper_failed(watch, None),
                step => step,
            },
            (None, _) => Step::Continue,
        }
    }

    /// Notes what became of the keeper, and reaps orphans, which come here as process 1 of a container.
    fn take_children(&mut self, watch: &mut Watch, patience: WaitLimits) {
        while let Children::Changed(pid, change) = wait::next_change() {
            if pid != watch.keeper {
                if change.is_end() {
                    self.ender.forget(pid);
                    if self.shared.gate.command() == Some(pid) {
                        watch.command_ended = Some(change);
                    }
                }
                continue;
            }
            match change {
                ChildChange::Killed(_) | ChildChange::Exited(_) => watch.died = Some(WhyFailed::of(change)),
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
            // The command stops itself or does not; its stop is followed, not the terminal's signal. When it has ended the keeper
            // stops this process, so that what it says later lets it go on.
            if resumable && self.shared.gate.shut() {
                watch.suspending = true;
                Self::leave_by(watch);
            } else if !self.shared.gate.has_passed() || (everybody && !self.ender.command_has_ended()) {
                return;
            }
        } else if signal.is_ending() && self.shared.gate.shut() {
            Self::leave_by(watch);
        }
        drop(watch.channel.tell_keeper(ToKeeper { signal, everybody, stops }));
    }

    /// Whether this SIGCONT is not for the command: the keeper undoes a stop that was followed, or somebody has
    /// resumed all of the job; passed on, the command would get it twice.
    fn is_resumed(&self, watch: &mut Watch, info: SignalInfo, stops: u8) -> bool {
        let followed = std::mem::replace(&mut watch.resumed_after, stops) != stops;
        if info.sender == Some(watch.keeper) {
            return true;
        }
        let command = self.shared.gate.command().filter(|_| followed && self.start.terminal.is_some());
        command.is_some_and(|command| self.ender.is_stopped(command) == Some(false))
    }
}
