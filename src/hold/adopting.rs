//! A hold for a process that was there before, or for nobody's: what stands in the place of the command.
//!
//! The lock is taken in three steps, so that it is never held for somebody who was not told and never told by somebody
//! who has gone: the caller is asked whether it is there; it takes the hold, which passes the gate; it is given the
//! answer and says that it has passed it on. Its end, whenever it comes before that, gives the lock back.

use std::future::pending;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use super::context::Context;
use super::driver::Driver;
use super::event::{Event, Phase};
use super::job::Adoption;
use super::marks::Marks;
use super::process::Process;
use crate::backend::cause;
use crate::lock::{Error, ErrorKind, Moment};
use crate::supervise::adopted::AwaitedEnd;
use crate::supervise::caller::{FromCaller, Heard, KeepersEnd, keep_answer};
use crate::supervise::channel::{MAX_DESCRIPTORS, ToFront};
use crate::supervise::ender_adopted::Left;
use crate::supervise::inherited;
use crate::supervise::keeper::Keeper;
use crate::supervise::outcome::Outcome;
use crate::supervise::signals::Signal;

/// Between two looks for who is left, when one could not tell.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// See the module.
pub(super) struct Adopting {
    /// The way to the caller, until it has said that it is done, or has gone.
    caller: Option<KeepersEnd>,
    /// What the caller is to say of the hold.
    answer: Option<OwnedFd>,
    /// The process, until it has ended.
    process: Option<AwaitedEnd>,
    /// Somebody who is left of it.
    rest: Option<AwaitedEnd>,
    /// When to look again who is left.
    look_again_at: Moment,
}

/// What can be heard of it.
#[derive(Clone, Copy)]
pub(super) enum AdoptingNews {
    /// What the caller says, or that it has gone.
    Caller(Heard),
    /// The process has ended.
    ProcessEnded,
    /// The one who was left that was waited for has ended.
    RestEnded,
}

impl Adopting {
    /// That of `adoption`, in the keeper that has adopted the process.
    pub(super) fn of(adoption: &Adoption, keeper: &Keeper<'_>) -> io::Result<Self> {
        let process = keeper.ender().adopted().map(|adopted| adopted.handle().try_clone()).transpose()?;
        Ok(Self {
            caller: Some(KeepersEnd::new(adoption.caller.try_clone()?)?),
            answer: None,
            process: process.map(AwaitedEnd::of).transpose()?,
            rest: None,
            look_again_at: Moment::NEVER,
        })
    }

    pub(super) fn look_again_at(&self) -> Moment {
        self.look_again_at
    }
}

/// What is heard next of what was adopted. Cancel-safe.
pub(super) async fn news(adopting: Option<&Adopting>) -> AdoptingNews {
    let Some(adopting) = adopting else { return pending().await };
    tokio::select! {
        biased;
        () = ended(adopting.process.as_ref()) => AdoptingNews::ProcessEnded,
        () = ended(adopting.rest.as_ref()) => AdoptingNews::RestEnded,
        said = said(adopting.caller.as_ref()) => AdoptingNews::Caller(said),
    }
}

async fn ended(end: Option<&AwaitedEnd>) {
    match end {
        Some(end) => end.come().await,
        None => pending().await,
    }
}

async fn said(caller: Option<&KeepersEnd>) -> Heard {
    match caller {
        Some(caller) => caller.hear().await,
        None => pending().await,
    }
}

impl Driver<'_> {
    /// Takes what was heard of what was adopted.
    pub(super) fn adopting_heard(&mut self, news: AdoptingNews) -> Option<Event> {
        let begun = self.process.has_begun();
        let adopting = self.process.adopting.as_mut()?;
        match news {
            AdoptingNews::ProcessEnded => {
                adopting.process = None;
                // While it runs under the lock, whoever looks after the tree sees it.
                (!begun).then_some(WITHDRAWN)
            }
            AdoptingNews::RestEnded => {
                adopting.rest = None;
                None
            }
            AdoptingNews::Caller(Heard::Said(FromCaller::Take)) => {
                if *self.context.machine.phase() == Phase::Asking {
                    self.enter_gate();
                }
                None
            }
            AdoptingNews::Caller(heard) => {
                adopting.caller = None;
                if !begun {
                    return Some(WITHDRAWN);
                }
                if heard == Heard::Gone {
                    return Some(self.released());
                }
                // Whoever may have been told that it has the lock keeps it.
                let nobodys =
                    self.context.job.adoption.as_ref().is_some_and(|adoption| adoption.process.is_none());
                nobodys.then_some(Event::LeftAlone)
            }
        }
    }

    /// The owner gives the lock back; nested runs are waited for.
    pub(super) fn released(&mut self) -> Event {
        self.marks.tell_if_gone(&mut self.context);
        Event::Released
    }

    /// Has at hand what the caller is to say, and asks it whether it is still there to take the hold. One that is stopped
    /// answers later, or too late.
    pub(super) fn ask_caller(&mut self) {
        if let Err(error) = self.keep_answer() {
            let job = self.context.job;
            let backend = job.backend.capabilities().backend;
            let error = Error::new(ErrorKind::System, backend, "print the claim", cause::said(&error));
            return self.context.happened(Event::Refused(error.on(&job.names[0])));
        }
        if let Some(caller) = self.process.adopting.as_ref().and_then(|adopting| adopting.caller.as_ref()) {
            caller.tell_held();
        }
    }

    /// Makes what the caller is to say while the hold can still be given back with the reason why it cannot be made.
    fn keep_answer(&mut self) -> io::Result<()> {
        self.prepare();
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
    pub(super) fn adopt(&mut self, adoption: &Adoption) {
        let keeper = self.context.keeper;
        if let Some(pid) = adoption.process {
            keeper.shared().set_command(pid);
        }
        self.process.started(adoption.process.unwrap_or(0));
        let anchors = self.launch.take_anchors();
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
}

impl Process {
    /// Looks whether the process has ended, and then who is left of it.
    pub(super) fn look_after_adopted(&mut self, context: &mut Context<'_>, marks: &Marks) {
        let keeper = context.keeper;
        let mut ender = keeper.ender();
        let Some(adopted) = ender.adopted() else {
            // There is nobody to be ended.
            if matches!(context.machine.phase(), Phase::Stopping(_)) {
                context.happened(Event::TreeGone);
            }
            return;
        };
        if !self.is_over {
            if !adopted.has_ended() {
                return;
            }
            self.is_over = true;
            marks.tell_if_gone(context);
            // Nobody but its parent is told how it ended; one that was killed did not mean to leave anybody behind.
            context.happened(Event::CommandEnded(Outcome::Signaled(Signal::KILL)));
        }
        let Some(adopting) = &mut self.adopting else { return };
        if adopting.rest.is_some() {
            return;
        }
        adopting.look_again_at = Moment::NEVER;
        match ender.left() {
            Left::Nobody => {
                self.rounds.are_over();
                context.happened(Event::TreeGone);
            }
            Left::Somebody(handle) => {
                adopting.rest = AwaitedEnd::of(handle).ok();
                if adopting.rest.is_none() {
                    adopting.look_again_at = context.now() + LOOK_AGAIN;
                }
            }
            Left::Unknown => adopting.look_again_at = context.now() + LOOK_AGAIN,
        }
    }
}

/// Whoever waits for the lock has gone.
pub(super) const WITHDRAWN: Event = Event::Signal { signal: Signal::HUP, everybody: false };
