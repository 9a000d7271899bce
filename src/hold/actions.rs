//! What each action of the machine does.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use super::context::Context;
use super::driver::Driver;
use super::environment;
use super::event::{Action, Event};
use super::job::{Adoption, Notice, Stage};
use super::plan::WITHDRAWAL;
use crate::lock::{Error, ErrorKind, Grant, LossReason, Moment};
use crate::net::cause;
use crate::net::rank::Rank;
use crate::supervise::caller::keep_answer;
use crate::supervise::channel::{MAX_DESCRIPTORS, ToFront};
use crate::supervise::command::Command;
use crate::supervise::inherited;
use crate::supervise::launch::Spawned;
use crate::supervise::signals::Signal;

/// How long a release may take to be confirmed.
const RELEASE: Duration = Duration::from_secs(5);
/// How much later than that a keeper that leaves is taken for one that hangs.
const SLACK: Duration = Duration::from_secs(1);

impl Driver<'_> {
    pub(super) async fn perform(&mut self, action: Action) {
        let keeper = self.context.keeper;
        match action {
            Action::Enter => self.entry.enter(&self.context),
            Action::EnterAgain(reason) => self.enter_again(reason),
            Action::Ask => self.ask(),
            Action::Spawn => self.spawn(),
            Action::Pass(signal) => keeper.ender().signal_command(signal),
            Action::PassToGroup(signal) => keeper.ender().signal_group(signal),
            Action::TerminateTree => {
                keeper.ender().signal_tree(Signal::TERM);
                self.process.reap(&mut self.context, &self.marks);
            }
            Action::KillTree => self.process.kill_round(&mut self.context, &self.marks),
            Action::Leave { succeeded } => self.leave(succeeded).await,
        }
    }

    /// What the command is told of a hold like `grant`.
    pub(super) fn variables(&self, grant: &Grant) -> Vec<(&'static str, String)> {
        self.entry.variables(self.context.job, grant, self.marks.board())
    }

    fn enter_again(&mut self, reason: LossReason) {
        (self.following.claim, self.following.seen) = (None, None);
        self.replacing.stop();
        (self.renewal.lease, self.renewal.under_way) = (None, None);
        self.entry.enter_again(&self.context, reason);
    }

    /// The lock is held: passes the gate, unless the run turns out not to be needed.
    fn ask(&mut self) {
        let context = &mut self.context;
        let job = context.job;
        if let (Some(grant), Some(at)) = (context.machine.grant(), context.machine.held_at()) {
            context.progress.notice(Notice::Held { waited: at.since(job.plan.started), grant });
        }
        let Some(period) = job.once_per else { return self.pass_gate() };
        let deadline = context.now() + (job.plan.ttl / 6).min(RELEASE);
        self.entry.look_again(context, period, deadline);
    }

    pub(super) fn pass_gate(&mut self) {
        match self.following.claim.as_ref().map_or_else(|| Ok(Vec::new()), |claim| claim.anchors()) {
            Ok(anchors) => {
                self.anchors = anchors;
                if self.process.adopting.is_some() { self.ask_caller() } else { self.enter_gate() }
            }
            Err(error) => self.context.happened(Event::Refused(error)),
        }
    }

    /// Passes the gate. Where the front has shut it, a message says why.
    pub(super) fn enter_gate(&mut self) {
        let keeper = self.context.keeper;
        // A start that hangs is ended, also where no lease runs out.
        keeper.shared().set_guard_until(self.guard_at().min(self.context.now() + self.context.job.plan.ttl));
        if keeper.pass_gate() {
            self.context.happened(Event::Go);
        }
    }

    fn guard_at(&self) -> Moment {
        self.renewal.lease.as_ref().map_or(Moment::NEVER, |lease| lease.window().guard_at)
    }

    /// Has at hand what the caller is to say, and asks it whether it is still there to take the hold. One that is stopped
    /// answers later, or too late.
    fn ask_caller(&mut self) {
        if let Err(error) = self.keep_answer() {
            let job = self.context.job;
            let backend = job.backend.capabilities().backend;
            let (lock, why) = (job.names.first(), cause::said(&error));
            let error = Error::new(ErrorKind::System, why).during(backend, "print the claim", lock);
            return self.context.happened(Event::Refused(error));
        }
        if let Some(caller) = self.process.adopting.as_ref().and_then(|adopting| adopting.caller.as_ref()) {
            caller.tell_held();
        }
    }

    /// Makes what the caller is to say while the hold can still be given back with the reason why it cannot be made.
    fn keep_answer(&mut self) -> io::Result<()> {
        let (Some(adoption), Some(grant)) = (&self.context.job.adoption, self.context.machine.grant()) else {
            return Ok(());
        };
        let answer = keep_answer(&(adoption.answer)(&self.variables(grant)))?;
        if let Some(adopting) = &mut self.process.adopting {
            adopting.answer = Some(answer);
        }
        Ok(())
    }

    /// The process runs under the lock from now on.
    fn adopt(&mut self, adoption: &Adoption) {
        let keeper = self.context.keeper;
        if let Some(pid) = adoption.process {
            keeper.shared().gate.set_command(pid, false);
        }
        self.process.started(adoption.process.unwrap_or(0));
        keeper.shared().set_guard_until(self.guard_at());
        let anchors = std::mem::take(&mut self.anchors);
        let descriptors: Vec<_> = anchors.iter().map(|anchor| anchor.as_fd()).take(MAX_DESCRIPTORS).collect();
        keeper.tell(ToFront::Started { handle: false }, &descriptors);
        let adopting = self.process.adopting.as_mut();
        let answer = adopting.and_then(|adopting| Some((adopting.answer.take()?, adopting.caller.as_ref()?)));
        let told = answer.is_some_and(|(answer, caller)| caller.tell_answer(&answer).is_ok());
        inherited::let_go();
        inherited::let_go_of_errors();
        inherited::leave_directory();
        if !told {
            let released = self.released();
            self.context.happened(released);
        }
        self.health.examine_later(self.context.now());
    }

    fn spawn(&mut self) {
        if let Some(adoption) = &self.context.job.adoption {
            return self.adopt(adoption);
        }
        match self.try_spawn() {
            Ok(spawned) => {
                let pid = spawned.pid;
                self.process.started(pid);
                self.command_started(spawned);
                self.context.notice(Notice::Started(pid));
                self.health.examine_later(self.context.now());
            }
            Err(error) => self.context.happened(Event::NotExecuted(error)),
        }
    }

    /// The front guards since the gate was passed; this gives it what carries the hold. Only now, so that its waking
    /// does not come between the hold and the start.
    fn command_started(&mut self, spawned: Spawned) {
        let anchors = std::mem::take(&mut self.anchors);
        let keeper = self.context.keeper;
        keeper.shared().set_guard_until(self.guard_at());
        let mut ender = keeper.ender();
        ender.started(spawned.handle);
        let handle = ender.handle().map(AsFd::as_fd);
        let descriptors = handle.into_iter().chain(anchors.iter().map(AsFd::as_fd));
        let descriptors: Vec<_> = descriptors.take(MAX_DESCRIPTORS).collect();
        keeper.tell(ToFront::Started { handle: handle.is_some() }, &descriptors);
        inherited::let_go();
        inherited::leave_directory();
    }

    fn try_spawn(&self) -> io::Result<Spawned> {
        let Context { job, keeper, machine, .. } = &self.context;
        let grant = machine.grant().ok_or(io::ErrorKind::InvalidInput)?;
        let command = Command {
            argv: &job.argv,
            variables: self.variables(grant),
            without: &environment::NAMES,
            anchors: &self.anchors,
        };
        command.spawn(keeper.start, keeper.shared().gate)
    }

    async fn leave(&mut self, succeeded: bool) {
        // Nobody drives from here on what is under way, and it may have the only connection.
        (self.renewal.under_way, self.health.examining) = (None, None);
        self.replacing.stop();
        let asked = self.entry.entering.is_some();
        self.entry.give_up();
        let context = &mut self.context;
        let (job, keeper) = (context.job, context.keeper);
        job.backend.connects_as(Rank::Free);
        if self.process.adopting.is_some() {
            // What goes on is on its own.
            keeper.shared().gate.clear_command();
        }
        if !context.machine.may_give_back() {
            // Its ttl protects still whom neither process can end. To drop it would close its session, or unlock it.
            keeper.shared().set_guard_until(context.now() + SLACK);
            std::mem::forget(self.following.claim.take());
            context.events.clear();
            return context.happened(Event::Left);
        }
        let held = context.machine.held_at().is_some();
        let patience = match &self.following.claim {
            _ if !held => WITHDRAWAL,
            // Nothing ends a claim of the kernel's but this process, and others wait.
            Some(claim) if claim.ttl().is_none() => RELEASE.min(job.plan.ttl),
            _ => RELEASE,
        };
        let deadline = context.now() + patience;
        // A release may take its time, but not for ever.
        keeper.shared().set_guard_until(deadline + SLACK);
        let capabilities = job.backend.capabilities();
        let (ttl, stage, left) = if let Some(claim) = &self.following.claim {
            let stage = if held { Stage::Held } else { Stage::Waiting };
            (claim.ttl(), stage, claim.leave(succeeded, deadline).await)
        } else {
            let ttl = capabilities.leased.then_some(job.plan.ttl);
            (ttl, Stage::Requested, self.entry.withdraw(context, deadline).await)
        };
        // What was refused was not granted, and a request to the kernel ends with this process.
        let machine = &context.machine;
        let unknown = (asked || machine.is_unanswered()) && !machine.ends_for_the_service() && ttl.is_some();
        // What its ttl has ended need not leave.
        let over = !held && self.renewal.lease.as_ref().is_some_and(|lease| lease.ends_at() <= context.now());
        if let Some(error) = left.err().filter(|_| (unknown || stage != Stage::Requested) && !over) {
            let ends_within = ttl.map(|ttl| ttl + capabilities.abandoned_bound);
            context.notice(Notice::NotLeft { error: &error, stage, ends_within });
        }
        context.events.clear();
        context.happened(Event::Left);
    }
}
