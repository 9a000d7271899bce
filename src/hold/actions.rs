//! How the driver carries out each action of the machine.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use super::context::Context;
use super::driver::Driver;
use super::event::{Action, Event};
use super::job::{Adoption, Notice, Stage};
use super::plan::WITHDRAWAL;
use crate::lock::{Error, ErrorKind, Grant, LossReason, Moment};
use crate::net::cause;
use crate::net::rank::Rank;
use crate::supervise::caller::keep_answer;
use crate::supervise::channel::{MAX_DESCRIPTORS, ToFront};
use crate::supervise::inherited;
use crate::supervise::launch::Spawned;
use crate::supervise::signals::Signal;

/// How long the service may take to confirm a release.
const RELEASE: Duration = Duration::from_secs(5);
/// The time past that after which the front takes a leaving keeper for hung.
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

    /// Returns the variables for a command under `grant`.
    pub(super) fn variables(&self, grant: &Grant) -> Vec<(&'static str, String)> {
        self.entry.variables(self.context.job, grant, self.marks.board)
    }

    fn enter_again(&mut self, reason: LossReason) {
        (self.following.claim, self.following.seen) = (None, None);
        self.replacing.stop();
        (self.renewal.lease, self.renewal.under_way) = (None, None);
        self.entry.enter_again(&self.context, reason);
    }

    /// The lock is held: passes the gate, unless a recent success makes the run needless.
    fn ask(&mut self) {
        let context = &mut self.context;
        let job = context.job;
        if let (Some(grant), Some(at)) = (context.machine.grant(), context.machine.held_at) {
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
                match self.process.adopting {
                    Some(_) if self.context.job.is_for_nobody() => self.renewal.is_wanted = true,
                    Some(_) => self.ask_caller(),
                    None => self.enter_gate(),
                }
            }
            Err(error) => self.context.happened(Event::Refused(error)),
        }
    }

    /// Passes the gate. If the front has shut it, a message from the front says why.
    pub(super) fn enter_gate(&mut self) {
        let keeper = self.context.keeper;
        // The guard also ends a start that hangs where there is no lease.
        keeper.shared.set_guard_until(self.guard_at().min(self.context.now() + self.context.job.plan.ttl));
        if keeper.pass_gate() {
            self.context.happened(Event::Go);
        }
    }

    fn guard_at(&self) -> Moment {
        self.renewal.lease.as_ref().map_or(Moment::NEVER, |lease| lease.window().guard_at)
    }

    /// Prepares the output of the caller, then asks the caller whether it is alive to take the hold. A stopped caller
    /// answers later, or too late.
    pub(super) fn ask_caller(&mut self) {
        if let Err(error) = self.keep_answer() {
            let job = self.context.job;
            let backend = job.backend.client().capabilities().backend;
            let (lock, why) = (job.names.first(), cause::said(&error));
            let error = Error::new(ErrorKind::System, why).during(backend, "print the claim", lock);
            return self.context.happened(Event::Refused(error));
        }
        if let Some(caller) = self.process.adopting.as_ref().and_then(|adopting| adopting.caller.as_ref()) {
            caller.tell_held();
        }
    }

    /// Creates the output of the caller. If that fails, the hold can still be released for that reason.
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

    /// From here on the hold is for the adopted process.
    fn adopt(&mut self, adoption: &Adoption) {
        let keeper = self.context.keeper;
        if let Some(pid) = adoption.process {
            keeper.shared.gate.set_command(pid, false);
        }
        self.process.pid = Some(adoption.process.unwrap_or(0));
        self.begun(None);
        let adopting = self.process.adopting.as_mut();
        let answer = adopting.and_then(|adopting| Some((adopting.answer.take()?, adopting.caller.as_ref()?)));
        let told = answer.is_some_and(|(answer, caller)| caller.tell_answer(&answer).is_ok());
        inherited::let_go_of_errors();
        if !told {
            self.context.happened(Event::Released);
        }
    }

    fn spawn(&mut self) {
        if let Some(adoption) = &self.context.job.adoption {
            return self.adopt(adoption);
        }
        match self.try_spawn() {
            Ok(spawned) => {
                let Spawned { pid, handle } = spawned;
                self.process.pid = Some(pid);
                self.begun(handle);
                self.context.progress.notice(Notice::Started(pid));
            }
            Err(error) => self.context.happened(Event::NotExecuted(error)),
        }
    }

    /// The process runs under the lock. Sends the front the anchors, and the handle of a command. The front guards since
    /// the gate was passed. It gets them only now, so that its waking does not delay the start.
    fn begun(&mut self, handle: Option<OwnedFd>) {
        let anchors = std::mem::take(&mut self.anchors);
        let keeper = self.context.keeper;
        keeper.shared.set_guard_until(self.guard_at());
        let mut ender = keeper.ender();
        ender.command = handle;
        let handle = ender.command.as_ref().map(AsFd::as_fd);
        let descriptors = handle.into_iter().chain(anchors.iter().map(AsFd::as_fd));
        let descriptors: Vec<_> = descriptors.take(MAX_DESCRIPTORS).collect();
        keeper.tell(ToFront::Started { handle: handle.is_some() }, &descriptors);
        inherited::let_go();
        inherited::leave_directory();
        self.health.examine_later(self.context.now());
    }

    fn try_spawn(&mut self) -> io::Result<Spawned> {
        let command = self.command.take().ok_or(io::ErrorKind::InvalidInput)?;
        let Context { keeper, machine, .. } = &self.context;
        let grant = machine.grant().ok_or(io::ErrorKind::InvalidInput)?;
        command.spawn(&self.variables(grant), &self.anchors, keeper.shared.gate)
    }

    async fn leave(&mut self, succeeded: bool) {
        // No loop drives these futures from here on, and one of them may have the only connection.
        (self.renewal.under_way, self.health.examining) = (None, None);
        self.replacing.stop();
        let asked = self.entry.entering.is_some();
        (self.entry.entering, self.entry.looking) = (None, None);
        let context = &mut self.context;
        let (job, keeper) = (context.job, context.keeper);
        job.backend.client().connects_as(Rank::Free);
        if !context.machine.may_give_back() {
            // A process may live that dlock could not kill: the claim's ttl still protects it. Dropping the claim would
            // close its session, or unlock the file.
            keeper.guard_until(context.now() + SLACK);
            std::mem::forget(self.following.claim.take());
            context.events.clear();
            return context.happened(Event::Left);
        }
        if self.process.adopting.is_some() {
            // The adopted process runs on without the lock.
            keeper.shared.gate.clear_command();
        }
        let held = context.machine.held_at.is_some();
        let patience = match &self.following.claim {
            _ if !held => WITHDRAWAL,
            // Only this process can end a claim that the kernel keeps, and other claims wait for it.
            Some(claim) if claim.ttl().is_none() => RELEASE.min(job.plan.ttl),
            _ => RELEASE,
        };
        let deadline = context.now() + patience;
        // The front waits for the release, but not for ever.
        keeper.guard_until(deadline + SLACK);
        let capabilities = job.backend.client().capabilities();
        let (ttl, stage, left) = if let Some(claim) = &self.following.claim {
            let stage = if held { Stage::Held } else { Stage::Waiting };
            (claim.ttl(), stage, claim.leave(succeeded, deadline).await)
        } else {
            let ttl = capabilities.leased.then_some(job.plan.ttl);
            (ttl, Stage::Requested, self.entry.withdraw(context, deadline).await)
        };
        // A refused request was not granted. A request to the kernel ends with this process.
        let machine = &context.machine;
        let unknown = (asked || machine.unanswered) && !machine.ends_for_the_service() && ttl.is_some();
        // A claim whose ttl is over need not leave.
        let over = !held && self.renewal.lease.as_ref().is_some_and(|lease| lease.ends_at() <= context.now());
        if let Some(error) = left.err().filter(|_| (unknown || stage != Stage::Requested) && !over) {
            let ends_within = ttl.map(|ttl| ttl + capabilities.abandoned_bound);
            context.progress.notice(Notice::NotLeft { error: &error, stage, ends_within });
        }
        context.events.clear();
        context.happened(Event::Left);
    }
}
