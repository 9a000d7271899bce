//! Carries out what the machine decides: one loop over every source of events.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use super::adopting::{self, Adopting};
use super::context::Context;
use super::entry::Joining;
use super::environment;
use super::event::{Event, Phase};
use super::following::Following;
use super::health::{Health, tell_risks};
use super::job::{HoldEnd, Job, Progress};
use super::machine::Machine;
use super::marks::{Marks, RETRY};
use super::process::Process;
use super::renewal::Renewal;
use super::replacing::Replacing;
use super::verdict::Verdict;
use super::waits::taken;
use crate::clock::{Alarm, Clock};
use crate::lock::Moment;
use crate::supervise::channel::ToKeeper;
use crate::supervise::command::Command;
use crate::supervise::keeper::Keeper;

/// One hold while it lasts. Each part knows one aspect of it; the driver does what concerns several of them.
pub(super) struct Driver<'a> {
    pub(super) context: Context<'a>,
    pub(super) entry: Joining,
    pub(super) following: Following,
    pub(super) renewal: Renewal,
    pub(super) replacing: Replacing,
    pub(super) health: Health,
    pub(super) marks: Marks<'a>,
    /// Descriptors that carry the hold in the kernel, between the hold and the start of the command.
    pub(super) anchors: Vec<OwnedFd>,
    /// The command that has not started yet.
    pub(super) command: Option<Command<'a>>,
    pub(super) process: Process,
    front_gone: bool,
    /// When the verdict was reached.
    decided_at: Moment,
    alarm: Alarm,
}

/// Holds the lock for the command, from entering the queue until the claim has left it. Runs in the keeper.
///
/// Errors: the system refuses memory, or a descriptor to watch the adopted process or the caller.
pub async fn hold(job: &Job, keeper: &Keeper<'_>, progress: &mut dyn Progress) -> io::Result<HoldEnd> {
    let adopting = job.adoption.as_ref().map(|adoption| Adopting::of(adoption, keeper)).transpose()?;
    let command = || Command::prepare(&job.argv, &environment::NAMES, keeper.start);
    let command = job.adoption.is_none().then(command).transpose()?;
    let (clock, machine) = (Clock::Boot, Machine::new(job.plan));
    let again = keeper.shared.number().is_some();
    let mut driver = Driver {
        context: Context { job, keeper, progress, clock, machine, events: VecDeque::new() },
        entry: Joining::new(job, keeper.shared.take_number()),
        following: Following::default(),
        renewal: Renewal::default(),
        replacing: Replacing::default(),
        health: Health::new(job.plan.started.max(clock.now())),
        marks: Marks::on(keeper.board),
        anchors: Vec::new(),
        command,
        process: Process::not_started(adopting),
        front_gone: false,
        decided_at: Moment::NEVER,
        alarm: Alarm::default(),
    };
    driver.run(again).await;
    let machine = driver.context.machine;
    let (now, held_at) = (clock.now(), machine.held_at);
    Ok(HoldEnd {
        claim: driver.entry.claim(),
        grant: machine.grant().cloned(),
        waited: held_at.unwrap_or(now).since(job.plan.started),
        held: held_at.map(|at| now.min(driver.decided_at).since(at)),
        told_to_end: machine.told_to_end,
        cut_short: machine.cut_short,
        verdict: machine.verdict.unwrap_or(Verdict::Abandoned),
    })
}

impl Driver<'_> {
    async fn run(&mut self, again: bool) {
        let now = self.context.now();
        let mut actions = self.context.machine.begin(again, now);
        loop {
            for action in actions {
                self.perform(action).await;
            }
            if self.context.machine.phase == Phase::Over {
                return;
            }
            let event = match self.context.events.pop_front() {
                Some(event) => event,
                None => self.next_event().await,
            };
            let now = self.context.now();
            let machine = &mut self.context.machine;
            let asked = machine.depends_on_marks(&event, now) && self.marks.are_gone();
            actions = if asked { machine.on(Event::MarksGone, now) } else { Vec::new() };
            actions.extend(machine.on(event, now));
            if machine.verdict.is_some() {
                self.decided_at = self.decided_at.min(now);
            }
            if self.context.machine.ends_the_command() || self.context.job.plan.whole_tree {
                self.context.keeper.shared.set_stopping();
            }
            if self.context.machine.has_lost() {
                self.context.keeper.end_nested();
            }
        }
    }

    async fn next_event(&mut self) -> Event {
        let (keeper, clock) = (self.context.keeper, self.context.clock);
        loop {
            // Reap on every turn: should a SIGCHLD be missed, the next wake-up makes up for it.
            self.process.reap(&mut self.context, &self.marks);
            // The command's end before the deadline: a command that has ended is not stopped.
            if let Some(event) = self.context.events.pop_front() {
                return event;
            }
            // The deadline before anything else that has happened.
            if self.context.machine.act_by() <= clock.now() {
                return Event::Tick;
            }
            let wake_at = self.begin_what_is_due();
            tokio::select! {
                biased;
                // Before signals: the last word of the caller counts even if it is read late.
                news = adopting::news(self.process.adopting.as_ref()) => if let Some(event) = self.adopting_heard(news) {
                    return event;
                },
                heard = keeper.hear(), if !self.front_gone => return self.heard(heard),
                result = taken(&mut self.entry.entering) => return self.entered(result),
                () = keeper.children_changed(), if self.process.has_begun() => {}
                state = self.following.changed() => match state {
                    Ok(state) => return self.state(state),
                    Err(error) => return self.state_failed(error),
                },
                answer = taken(&mut self.renewal.under_way) => if let Some(event) = self.renewed(answer) {
                    return event;
                },
                recent = taken(&mut self.entry.looking) => match recent {
                    Some(ago) => return Event::Unneeded(ago),
                    None => self.pass_gate(),
                },
                found = taken(&mut self.health.examining) => tell_risks(&mut self.context, found),
                looked = taken(&mut self.replacing.looking) => self.looked(looked),
                cleared = taken(&mut self.marks.clearing) => match cleared {
                    Ok(()) => return Event::MarksGone,
                    Err(_) => self.marks.await_last(clock, RETRY),
                },
                () = keeper.shell_gone(), if !self.process.shell_gone => {
                    self.process.shell_gone = true;
                    keeper.hang_up();
                }
                () = self.alarm.sleep_until(clock, wake_at) => {
                    if let Some(event) = self.time_has_come(wake_at) {
                        return event;
                    }
                }
            }
        }
    }

    /// Begins a renewal, the wait for nested runs and a look at holders to replace, if they are due. Returns when
    /// something is due next.
    fn begin_what_is_due(&mut self) -> Moment {
        let renew_at = self.renewal.begin_if_due(self.context.now());
        self.marks.await_if_needed(&mut self.context);
        let look_at = self.replacing.begin_if_due(&self.context, &self.entry.request);
        let others = [
            look_at,
            self.process.wake_at(),
            self.context.machine.wake_at(),
            self.context.progress.wake_at(),
            self.health.wake_at(),
            self.following.retry_at,
        ];
        others.into_iter().fold(renew_at, Moment::min)
    }

    fn time_has_come(&mut self, then: Moment) -> Option<Event> {
        if self.following.retry_at <= then {
            self.following.retry_at = Moment::NEVER;
        }
        let context = &mut self.context;
        if context.progress.wake_at() <= then {
            context.progress.tick();
        }
        self.health.time_has_come(then, context);
        self.process.time_has_come(then, context, &self.marks);
        (context.machine.wake_at() <= then).then_some(Event::Tick)
    }

    fn heard(&mut self, heard: Option<ToKeeper>) -> Event {
        match heard {
            Some(ToKeeper { signal, stops, .. })
                if self.process.is_overtaken(signal, stops, &mut self.context, &self.marks) =>
            {
                Event::Tick
            }
            Some(ToKeeper { signal, .. }) if self.process.follows_stop(signal, &self.context) => Event::Tick,
            Some(ToKeeper { signal, everybody, .. }) => Event::Signal { signal, everybody },
            None => {
                self.front_gone = true;
                Event::FrontGone
            }
        }
    }
}
