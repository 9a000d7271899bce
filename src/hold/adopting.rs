//! A hold for a process that was there before, or for nobody's: what stands in the place of the command.
//!
//! The lock is taken in three steps, so that it is never held for somebody who was not told and never told by somebody
//! who has gone: the caller is asked whether it is there; it takes the hold, which passes the gate; it is given the
//! answer and says that it has passed it on. Its end, whenever it comes before that, gives the lock back.

use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;

use super::event::Event;
use super::job::Adoption;
use crate::lock::Moment;
use crate::supervise::adopted::AwaitedEnd;
use crate::supervise::caller::{Heard, KeepersEnd};
use crate::supervise::keeper::Keeper;
use crate::supervise::signals::Signal;

/// See the module.
pub(super) struct Adopting {
    /// The way to the caller, until it has said that it is done, or has gone.
    pub(super) caller: Option<KeepersEnd>,
    /// What the caller is to say of the hold.
    pub(super) answer: Option<OwnedFd>,
    /// The process, until it has ended.
    pub(super) process: Option<AwaitedEnd>,
    /// Somebody who is left of it.
    pub(super) rest: Option<AwaitedEnd>,
    /// When to look again who is left.
    pub(super) look_again_at: Moment,
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

/// Whoever waits for the lock has gone.
pub(super) const WITHDRAWN: Event = Event::Signal { signal: Signal::HUP, everybody: false };
