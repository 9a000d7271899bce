//! Holding a lock for a process that dlock did not start (`--for-pid`), or for none (`--detach`).
//!
//! The hand-over takes three steps, so that a caller never has a lock without knowing, or knows of a lock that dlock
//! has released. The keeper asks the caller whether it is alive. The caller takes the hold, and the keeper passes the
//! gate. The caller receives the output, prints it, and confirms. If the caller dies before the last step, the keeper
//! releases the lock.

use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;

use super::event::Event;
use super::job::Adoption;
use super::waits::if_any;
use crate::lock::Moment;
use crate::supervise::adopted::AwaitedEnd;
use crate::supervise::caller::{Heard, KeepersEnd};
use crate::supervise::keeper::Keeper;
use crate::supervise::signals::Signal;

/// The adopted process, if there is one, and the caller.
pub(super) struct Adopting {
    /// The channel to the caller, until the caller has confirmed or is gone.
    pub(super) caller: Option<KeepersEnd>,
    /// The output that the caller will print.
    pub(super) answer: Option<OwnedFd>,
    /// The adopted process until it ends, then a process that is left of its tree.
    pub(super) process: Option<AwaitedEnd>,
    /// When to search again for what is left of the tree.
    pub(super) look_again_at: Moment,
}

/// A change of the awaited process or the caller.
#[derive(Clone, Copy)]
pub(super) enum AdoptingNews {
    /// A message of the caller, or its end.
    Caller(Heard),
    ProcessEnded,
}

impl Adopting {
    /// Builds the adopted side of `adoption`, in the keeper whose ender has adopted the process.
    pub(super) fn of(adoption: &Adoption, keeper: &Keeper<'_>) -> io::Result<Self> {
        let ender = keeper.ender();
        let process = ender.adopted.as_ref().map(|adopted| adopted.handle.try_clone()).transpose()?;
        Ok(Self {
            caller: Some(KeepersEnd::new(adoption.caller.try_clone()?)?),
            answer: None,
            process: process.map(AwaitedEnd::of).transpose()?,
            look_again_at: Moment::NEVER,
        })
    }
}

/// Waits for the next change. Cancel-safe.
pub(super) async fn news(adopting: Option<&Adopting>) -> AdoptingNews {
    let Some(adopting) = adopting else { return pending().await };
    tokio::select! {
        biased;
        () = if_any(adopting.process.as_ref().map(AwaitedEnd::come)) => AdoptingNews::ProcessEnded,
        heard = if_any(adopting.caller.as_ref().map(KeepersEnd::hear)) => AdoptingNews::Caller(heard),
    }
}

/// The process that waits for the lock is gone.
pub(super) const WITHDRAWN: Event = Event::Signal { signal: Signal::HUP, everybody: false };
