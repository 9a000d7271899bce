//! Carries out what the machine decides: one loop over everything that can happen.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::adopting::{self, Adopting};
use super::environment::{self, HeldRecord};
use super::event::{Action, Event, Phase};
use super::job::{Audience, Ended, Job};
use super::machine::Machine;
use super::nested::{self, Entered};
use super::replace::Replacing;
use super::verdict::Verdict;
use super::waits::{changed, others_had_their_turn, taken};
use super::{new_id, service};

use crate::backend::{Claim, Examination};
use crate::clock::{Alarm, Clock};
use crate::lease::{Attempt, LeaseKeeper};
use crate::lock::{ClaimId, ClaimState, LockName, Moment, Request, Result};
use crate::supervise::channel::ToKeeper;
use crate::supervise::command::Prepared;
use crate::supervise::ender::TreeState;
use crate::supervise::keeper::Keeper;
use crate::supervise::mark::MarkBoard;

/// The wait for the last mark.
pub(super) type Clearing = Pin<Box<dyn Future<Output = io::Result<()>>>>;
/// The question whether a run that succeeded makes this one needless.
pub(super) type Looking = Pin<Box<dyn Future<Output = Option<Duration>>>>;
/// A look at the service itself.
pub(super) type Examining = Pin<Box<dyn Future<Output = Result<Examination>>>>;
/// What an attempt to enter came to.
pub(super) enum Attempted {
    /// The claim is in line.
    Entered(Entered),
    /// A run that acquired so long ago succeeded; nothing was entered.
    Unneeded(Duration),
}
/// An attempt to enter the line.
pub(super) type Entering = Pin<Box<dyn Future<Output = Result<Attempted>>>>;

/// Everything that one hold needs while it lasts.
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact")]
pub(super) struct Driver<'a> {
    pub(super) job: &'a Job,
    pub(super) keeper: &'a Keeper<'a>,
    pub(super) audience: &'a mut dyn Audience,
    pub(super) clock: Clock,
    alarm: Alarm,
    pub(super) machine: Machine,
    pub(super) outer: Vec<HeldRecord>,
    pub(super) request: Request,
    pub(super) entering: Option<Entering>,
    /// When the attempt to enter began.
    pub(super) entering_since: Moment,
    /// When people are told that nobody has answered.
    pub(super) tell_silence_at: Moment,
    /// The second look of `--once-per`.
    pub(super) looking: Option<Looking>,
    /// When holders are asked to make way, and that under way.
    pub(super) replace_at: Moment,
    pub(super) replacing: Option<Replacing>,
    /// Those that were.
    pub(super) replaced: Vec<ClaimId>,
    /// When the service is looked at.
    pub(super) examine_at: Moment,
    pub(super) settled: bool,
    pub(super) examining: Option<Examining>,
    pub(super) claim: Option<Arc<dyn Claim>>,
    /// The names in whose lines the own claim stands.
    pub(super) own: Vec<LockName>,
    /// The outer claim under which the first name is held, if it is.
    pub(super) under: Option<ClaimId>,
    pub(super) seen: Option<ClaimState>,
    pub(super) retry_state_at: Moment,
    pub(super) lease: Option<LeaseKeeper>,
    /// A renewal on its way.
    pub(super) renewing: Option<Attempt>,
    pub(super) board: Option<MarkBoard>,
    /// The wait for the last nested run.
    pub(super) clearing: Option<Clearing>,
    pub(super) prepared: Option<Prepared>,
    pub(super) rehearsed: bool,
    /// What carries the hold in the kernel, between the hold and the start.
    pub(super) anchors: Vec<OwnedFd>,
    /// The command's pid, once it has started.
    pub(super) command: Option<i32>,
    /// The front was stopped with the command.
    pub(super) front_stopped: bool,
    /// The command has ended; what is left of the tree is on its own.
    pub(super) command_over: bool,
    pub(super) next_round: Moment,
    pub(super) killing_since: Option<Moment>,
    /// The last rounds in a row in which not every process could be seen.
    pub(super) blind_rounds: u32,
    /// When a command that nobody else can resume is resumed.
    pub(super) resume_at: Moment,
    pub(super) resumed_at: Option<Moment>,
    /// What is left of the tree and cannot be ended, as last told.
    pub(super) remains: Option<TreeState>,
    /// Nobody has answered since this was told.
    pub(super) doubtful: bool,
    pub(super) front_gone: bool,
    /// Nobody is left who could resume a stopped job.
    pub(super) shell_gone: bool,
    /// What stands in the place of a command, if something does.
    pub(super) adopting: Option<Adopting>,
    pub(super) events: VecDeque<Event>,
}

/// Holds the lock for the command, from entering the line to having left it. Runs in the keeper.
///
/// Errors: the system has no randomness to make a claim id from.
pub async fn hold(job: &Job, keeper: &Keeper<'_>, audience: &mut dyn Audience) -> io::Result<Ended> {
    let outer = job.adoption.as_ref().map_or_else(environment::held, |adoption| adoption.outer.clone());
    let ancestors = nested::ancestors(&outer, &job.backend.identity());
    let request = Request {
        names: job.names.clone(),
        id: new_id()?,
        mode: job.mode,
        ttl: job.plan.ttl,
        holder: job.holder.clone(),
        ancestors,
        supersede: job.supersede || job.replace,
    };
    let mut driver = Driver {
        job,
        keeper,
        audience,
        clock: Clock::Boot,
        alarm: Alarm::default(),
        machine: Machine::new(job.plan),
        outer,
        request,
        entering: None,
        entering_since: Moment::NEVER,
        tell_silence_at: job.plan.started.max(Clock::Boot.now()) + service::SILENCE,
        looking: None,
        replace_at: Moment::NEVER,
        replacing: None,
        replaced: Vec::new(),
        examine_at: Moment::NEVER,
        settled: false,
        examining: None,
        claim: None,
        own: Vec::new(),
        under: None,
        seen: None,
        retry_state_at: Moment::NEVER,
        lease: None,
        renewing: None,
        board: None,
        clearing: None,
        prepared: None,
        rehearsed: false,
        anchors: Vec::new(),
        command: None,
        front_stopped: false,
        command_over: false,
        next_round: Moment::NEVER,
        killing_since: None,
        blind_rounds: 0,
        resume_at: Moment::NEVER,
        resumed_at: None,
        remains: None,
        doubtful: false,
        front_gone: false,
        shell_gone: false,
        adopting: job.adoption.as_ref().map(|adoption| Adopting::of(adoption, keeper)).transpose()?,
        events: VecDeque::new(),
    };
    driver.run().await;
    let now = driver.clock.now();
    let held_at = driver.machine.held_at();
    Ok(Ended {
        claim: driver.under.unwrap_or(driver.request.id),
        grant: driver.machine.grant().cloned(),
        waited: held_at.unwrap_or(now).since(job.plan.started),
        held: held_at.map(|at| now.since(at)),
        told_to_end: driver.machine.told_to_end(),
        verdict: driver.machine.into_verdict().unwrap_or(Verdict::Abandoned),
    })
}

impl Driver<'_> {
    async fn run(&mut self) {
        let begins_at = self.job.plan.started;
        let later = begins_at > self.clock.now();
        let mut actions = if later { self.machine.begin_at(begins_at) } else { vec![Action::Enter] };
        loop {
            for action in actions {
                self.perform(action).await;
            }
            if *self.machine.phase() == Phase::Over {
                return;
            }
            let event = match self.events.pop_front() {
                Some(event) => event,
                None => self.next_event().await,
            };
            actions = self.machine.on(event, self.clock.now());
            if self.machine.ends_the_command() {
                self.keeper.shared().set_stopping();
            }
        }
    }

    async fn next_event(&mut self) -> Event {
        loop {
            // The deadline before anything else, whatever else has happened.
            if self.machine.act_by() <= self.clock.now() {
                return Event::Tick;
            }
            // Each time round, whatever woke this process: should a signal be missed, a renewal makes up for it.
            self.reap();
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            let wake_at = self.begin_what_is_due();
            tokio::select! {
                biased;
                heard = self.keeper.hear(), if !self.front_gone => return self.heard(heard),
                result = taken(&mut self.entering) => return self.entered(result),
                () = self.keeper.children_changed(), if self.command.is_some() => {}
                news = adopting::news(self.adopting.as_ref()) => if let Some(event) = self.adopting_heard(news) {
                    return event;
                },
                state = changed(self.claim.as_ref(), self.seen.as_ref()), if self.retry_state_at.is_never() => match state {
                    Ok(state) => {
                        self.doubtful = false;
                        return self.state(state);
                    }
                    Err(error) => if let Some(event) = self.state_failed(error) {
                        return event;
                    },
                },
                answer = taken(&mut self.renewing) => if let Some(event) = self.renewed(answer) {
                    return event;
                },
                recent = taken(&mut self.looking) => match recent {
                    Some(ago) => return Event::Unneeded(ago),
                    None => self.pass_gate(),
                },
                found = taken(&mut self.examining) => self.examined(found),
                asked = taken(&mut self.replacing) => self.asked_to_make_way(asked),
                cleared = taken(&mut self.clearing) => match cleared {
                    Ok(()) => return Event::MarksGone,
                    Err(_) => self.await_marks_later(),
                },
                () = self.keeper.shell_gone(), if !self.shell_gone => {
                    self.shell_gone = true;
                    self.keeper.hang_up();
                }
                () = others_had_their_turn(), if self.entering.is_some() && !self.rehearsed => self.rehearse(),
                () = self.alarm.sleep_until(self.clock, wake_at) => {
                    if let Some(event) = self.time_has_come(wake_at) {
                        return event;
                    }
                }
            }
        }
    }

    /// Begins a renewal and the wait for nested runs when it is time, and says when something is due next.
    fn begin_what_is_due(&mut self) -> Moment {
        let mut renewal = Moment::NEVER;
        if let (Some(lease), None) = (&self.lease, &self.renewing) {
            renewal = lease.due();
            if renewal <= self.clock.now() {
                self.renewing = Some(lease.attempt());
                renewal = Moment::NEVER;
            }
        }
        if self.machine.waits_for_marks() && self.clearing.is_none() {
            self.await_marks(Duration::ZERO);
        }
        let replace_at = self.ask_to_make_way_when_due();
        let own = [
            self.next_round,
            replace_at,
            self.machine.wake_at(),
            self.audience.wake_at(),
            self.tell_silence_at,
            self.examine_at,
            self.retry_state_at,
            self.resume_at,
            self.adopting.as_ref().map_or(Moment::NEVER, Adopting::look_again_at),
        ];
        own.into_iter().fold(renewal, Moment::min)
    }

    /// Does what was due at `then`.
    fn time_has_come(&mut self, then: Moment) -> Option<Event> {
        if self.retry_state_at <= then {
            self.retry_state_at = Moment::NEVER;
        }
        if self.audience.wake_at() <= then {
            self.audience.tick();
        }
        if self.tell_silence_at <= then {
            self.tell_silence();
        }
        if self.examine_at <= then {
            self.examine(then);
        }
        if self.next_round <= then {
            self.kill_round();
        }
        if self.resume_at <= then {
            self.resume_command();
        }
        (self.machine.wake_at() <= then).then_some(Event::Tick)
    }

    fn heard(&mut self, heard: Option<ToKeeper>) -> Event {
        match heard {
            Some(ToKeeper::Go) => Event::Go,
            Some(ToKeeper::Signal { signal, stops, .. }) if self.is_undone(signal, stops) => Event::Tick,
            Some(ToKeeper::Signal { signal, everybody, .. }) => Event::Signal { signal, everybody },
            Some(ToKeeper::Suspend) => Event::Suspend,
            None => {
                self.front_gone = true;
                Event::FrontGone
            }
        }
    }
}
