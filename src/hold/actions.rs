//! What each action of the machine does.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use super::driver::{Attempted, Driver};
use super::environment::{self, HeldRecord};
use super::event::{Action, Event};
use super::job::Notice;
use super::{nested, new_id};
use crate::backend::{Backend, Evict};
use crate::lock::{FencingToken, Grant, Granted, LockName, LossReason, Moment};
use crate::supervise::channel::{MAX_DESCRIPTORS, ToFront};
use crate::supervise::command::Prepared;
use crate::supervise::inherited;
use crate::supervise::launch::Spawned;
use crate::supervise::mark::MarkBoard;
use crate::supervise::signals::Signal;

/// How long leaving the line may take without having held the lock: nobody waits long to give up.
const WITHDRAWAL: Duration = Duration::from_millis(500);
/// How long a release may take to be confirmed.
const RELEASE: Duration = Duration::from_secs(5);
/// How much later than that a keeper that leaves is taken for one that hangs.
const SLACK: Duration = Duration::from_millis(500);

impl Driver<'_> {
    pub(super) async fn perform(&mut self, action: Action) {
        match action {
            Action::Enter => self.enter(),
            Action::EnterAgain(reason) => self.enter_again(&reason),
            Action::Ask => self.ask(),
            Action::Spawn => self.spawn(),
            Action::Pass(signal) => self.keeper.ender().signal_command(signal),
            Action::PassToGroup(signal) => self.keeper.ender().signal_group(signal),
            Action::TerminateTree => {
                self.keeper.ender().signal_tree(Signal::TERM);
                self.reap();
            }
            Action::KillTree => self.kill_round(),
            Action::Leave { succeeded } => self.leave(succeeded).await,
        }
    }

    /// Makes ready what the command will need, so that nothing of it comes between the hold and its start.
    pub(super) fn prepare(&mut self) {
        if self.prepared.is_none() && self.adopting.is_none() {
            self.prepared = Prepared::new(&self.job.argv, &environment::NAMES).ok();
        }
        if self.board.is_none() {
            self.board = MarkBoard::new().ok();
        }
    }

    /// Prepares, and makes the command's variables once with any token, while there is time: what that takes of
    /// code and memory is then at hand when it counts.
    pub(super) fn rehearse(&mut self) {
        if std::mem::replace(&mut self.rehearsed, true) {
            return;
        }
        self.prepare();
        let granted = FencingToken::new(1).map(|token| Granted { token, slot: None });
        let names = granted.into_iter().cycle().take(self.job.names.len()).collect();
        drop(self.variables(&Grant { names, counts_from: self.clock.now() }));
    }

    fn enter(&mut self) {
        self.entering_since = self.clock.now();
        self.keeper.would_abandon(self.request.id.to_number());
        let backend = self.job.backend.clone();
        let request = self.request.clone();
        let outer = if self.job.no_nest { Vec::new() } else { self.outer.clone() };
        let patience = (self.job.plan.ttl / 3).max(Duration::from_secs(2));
        let deadline = self.machine.give_up_at().min(self.entering_since + patience);
        let once_per = self.job.once_per;
        self.entering = Some(Box::pin(async move {
            if let Some(ago) = recent_success(&*backend, &request.names, once_per, deadline).await {
                return Ok(Attempted::Unneeded(ago));
            }
            nested::enter(&backend, &request, &outer, deadline).await.map(Attempted::Entered)
        }));
    }

    fn enter_again(&mut self, reason: &LossReason) {
        self.audience.notice(Notice::EnteringAgain(reason));
        self.claim = None;
        self.seen = None;
        self.looking = None;
        self.replacing = None;
        self.replace_at = Moment::NEVER;
        self.lease = None;
        self.renewing = None;
        // A new claim: the old id may still be on its way out. Without randomness the old one has to do.
        self.request.id = new_id().unwrap_or(self.request.id);
        self.enter();
    }

    /// The lock is held, and the front guards: passes the gate, or asks the front if that cannot be; unless the run turns
    /// out not to be needed.
    fn ask(&mut self) {
        if let Some(lease) = &self.lease {
            self.keeper.guard_in_steps_of(lease.window().guard_step);
            self.keeper.guard_until(lease.window().guard_at);
        }
        if let (Some(grant), Some(at)) = (self.machine.grant(), self.machine.held_at()) {
            self.audience.notice(Notice::Held { waited: at.since(self.job.plan.started), grant });
        }
        let Some(period) = self.job.once_per else { return self.pass_gate() };
        let deadline = self.clock.now() + (self.job.plan.ttl / 6).min(RELEASE);
        let (backend, names) = (self.job.backend.clone(), self.job.names.clone());
        self.looking =
            Some(Box::pin(async move { recent_success(&*backend, &names, Some(period), deadline).await }));
    }

    pub(super) fn pass_gate(&mut self) {
        match self.claim.as_ref().map_or_else(|| Ok(Vec::new()), |claim| claim.anchors()) {
            Ok(anchors) => {
                self.anchors = anchors;
                if self.adopting.is_some() { self.ask_caller() } else { self.enter_gate() }
            }
            Err(error) => self.events.push_back(Event::Refused(error)),
        }
    }

    /// Passes the gate, or asks the front if that cannot be.
    pub(super) fn enter_gate(&mut self) {
        if self.keeper.may_start() {
            self.events.push_back(Event::Go);
        } else {
            self.keeper.tell(ToFront::Held, &[]);
        }
    }

    fn spawn(&mut self) {
        if let Some(adoption) = &self.job.adoption {
            return self.adopt(adoption);
        }
        match self.try_spawn() {
            Ok(spawned) => {
                let pid = spawned.pid;
                self.command = Some(pid);
                self.command_started(spawned);
                self.audience.notice(Notice::Started(pid));
                self.examine_later();
            }
            Err(error) => self.events.push_back(Event::NotExecuted(error)),
        }
    }

    /// The front guards since the gate was passed; this gives it what carries the hold. Only now, so that its waking
    /// does not come between the hold and the start.
    fn command_started(&mut self, spawned: Spawned) {
        let anchors = std::mem::take(&mut self.anchors);
        let mut ender = self.keeper.ender();
        ender.started(spawned.handle);
        let handle = ender.handle().map(AsFd::as_fd);
        let descriptors = handle.into_iter().chain(anchors.iter().map(AsFd::as_fd));
        let descriptors: Vec<_> = descriptors.take(MAX_DESCRIPTORS).collect();
        self.keeper.tell(ToFront::Started { handle: handle.is_some() }, &descriptors);
        inherited::let_go();
        inherited::leave_directory();
    }

    fn try_spawn(&mut self) -> io::Result<Spawned> {
        self.prepare();
        let grant = self.machine.grant().ok_or(io::ErrorKind::InvalidInput)?;
        let variables = self.variables(grant);
        let prepared = match self.prepared.take() {
            Some(prepared) => prepared,
            None => Prepared::new(&self.job.argv, &environment::NAMES)?,
        };
        prepared.spawn(variables, self.keeper.start, self.keeper.shared(), &self.anchors)
    }

    /// What the command is told of a hold like `grant`.
    pub(super) fn variables(&self, grant: &Grant) -> Vec<(&'static str, String)> {
        let inner = self.own_record(grant, self.board.as_ref());
        let claim = self.under.unwrap_or(self.request.id);
        let job = self.job;
        environment::variables(&job.names, claim, job.mode, grant, &self.outer, inner.as_ref())
    }

    /// What nested runs may rely on: the locks on which the own claim stands, if there are any.
    fn own_record(&self, grant: &Grant, board: Option<&MarkBoard>) -> Option<HeldRecord> {
        let pairs = self.job.names.iter().zip(&grant.names).filter(|(name, _)| self.own.contains(name));
        let (names, granted): (Vec<&LockName>, Vec<&Granted>) = pairs.unzip();
        (!names.is_empty()).then(|| HeldRecord {
            service: self.job.backend.identity(),
            claim: self.request.id.to_string(),
            mode: self.job.mode.to_string(),
            names: names.into_iter().map(ToString::to_string).collect(),
            tokens: granted.iter().map(|g| g.token.get()).collect(),
            slots: granted.iter().filter_map(|g| g.slot).collect(),
            mark: board.and_then(|b| b.address().ok()),
            process: self.job.adoption.as_ref().and_then(|adoption| adoption.process),
        })
    }

    async fn leave(&mut self, succeeded: bool) {
        self.renewing = None;
        self.entering = None;
        self.looking = None;
        if self.adopting.is_some() {
            // What goes on is on its own.
            self.keeper.shared().clear_command();
        }
        let held = self.machine.held_at().is_some();
        let patience = match &self.claim {
            _ if !held => WITHDRAWAL,
            // Nothing ends a claim of the kernel's but this process, and others wait.
            Some(claim) if claim.ttl().is_none() => RELEASE.min(self.job.plan.ttl),
            _ => RELEASE,
        };
        let deadline = self.clock.now() + patience;
        // There is no command left to guard, and a release may take its time, but not for ever.
        self.keeper.guard_until(deadline + SLACK);
        match &self.claim {
            Some(claim) => {
                if let Err(error) = claim.leave(succeeded, deadline).await {
                    self.audience.notice(Notice::NotLeft { error: &error, held, ttl: claim.ttl() });
                }
            }
            // That nothing was reached is what will be said; what may have been left ends with its ttl.
            None => drop(self.evict_self(deadline).await),
        }
        self.events.clear();
        self.events.push_back(Event::Left);
    }

    /// The attempt to enter may have left an entry, unless the service said what was wrong with it.
    async fn evict_self(&self, deadline: Moment) -> crate::lock::Result<()> {
        if !self.machine.may_have_entered() {
            return Ok(());
        }
        // Of locks that are taken one after another the first may be held already; nothing runs under them.
        let atomic = self.job.backend.capabilities().atomic_names || self.request.names.len() == 1;
        let how = if atomic { Evict::IfWaiting } else { Evict::Force };
        for name in &self.request.names {
            let by = &self.request.holder;
            self.job.backend.evict(name, self.request.id, how, by, deadline).await?;
        }
        Ok(())
    }
}

/// How long ago at most, if for every name a run that acquired within `once_per` succeeded. What cannot be
/// learnt is no reason to skip.
async fn recent_success(
    backend: &dyn Backend,
    names: &[LockName],
    once_per: Option<Duration>,
    deadline: Moment,
) -> Option<Duration> {
    let period = once_per?;
    let mut oldest = Duration::ZERO;
    for name in names {
        match backend.last_success(name, deadline).await {
            Ok(Some(age)) if age < period => oldest = oldest.max(age),
            _ => return None,
        }
    }
    Some(oldest)
}
