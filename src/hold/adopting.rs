//! A hold for a process that was there before, or for nobody's: what stands in the place of the command.
//!
//! The lock is taken in three steps, so that it is never held for somebody who was not told and never told by somebody
//! who has gone: the caller is asked whether it is there; it takes the hold, which passes the gate; it is given the
//! answer and says that it has passed it on. Its end, whenever it comes before that, gives the lock back.

use std::future::pending;
use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use super::context::Context;
use super::driver::Driver;
use super::event::{Event, Phase};
use super::job::Adoption;
use super::marks::Marks;
use super::process::Process;
use crate::lock::Moment;
use crate::supervise::adopted::AwaitedEnd;
use crate::supervise::caller::{FromCaller, KeepersEnd};
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
    /// What the caller says; `None` when it has gone.
    Caller(Option<FromCaller>),
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

async fn said(caller: Option<&KeepersEnd>) -> Option<FromCaller> {
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
            AdoptingNews::Caller(Some(FromCaller::Take)) => {
                if *self.context.machine.phase() == Phase::Asking {
                    self.enter_gate();
                }
                None
            }
            AdoptingNews::Caller(Some(FromCaller::Done)) => {
                adopting.caller = None;
                let nobodys =
                    self.context.job.adoption.as_ref().is_some_and(|adoption| adoption.process.is_none());
                (begun && nobodys).then_some(Event::LeftAlone)
            }
            AdoptingNews::Caller(None) => {
                adopting.caller = None;
                Some(if begun { self.released() } else { WITHDRAWN })
            }
        }
    }

    /// The owner gives the lock back; nested runs are waited for.
    pub(super) fn released(&mut self) -> Event {
        self.marks.tell_if_gone(&mut self.context);
        Event::Released
    }

    /// Asks the caller whether it is still there to take the hold. One that is stopped answers later, or too late.
    pub(super) fn ask_caller(&self) {
        if let Some(caller) = self.process.adopting.as_ref().and_then(|adopting| adopting.caller.as_ref()) {
            caller.tell_held();
        }
    }

    /// The process runs under the lock from now on.
    pub(super) fn adopt(&mut self, adoption: &Adoption) {
        self.prepare();
        let Some(grant) = self.context.machine.grant() else { return };
        let answer = (adoption.answer)(&self.variables(grant));
        let keeper = self.context.keeper;
        if let Some(pid) = adoption.process {
            keeper.shared().set_command(pid);
        }
        self.process.started(adoption.process.unwrap_or(0));
        let anchors = self.launch.take_anchors();
        let descriptors: Vec<_> = anchors.iter().map(|anchor| anchor.as_fd()).take(MAX_DESCRIPTORS).collect();
        keeper.tell(ToFront::Started { handle: false }, &descriptors);
        let told = match self.process.adopting.as_ref().and_then(|adopting| adopting.caller.as_ref()) {
            Some(caller) => caller.tell_answer(&answer),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        inherited::let_go();
        inherited::let_go_of_errors();
        inherited::leave_directory();
        if told.is_err() {
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
