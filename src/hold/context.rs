//! The state that every part of a hold uses.

use std::collections::VecDeque;

use super::event::Event;
use super::job::{Job, Progress};
use super::machine::Machine;
use crate::clock::Clock;
use crate::lock::Moment;
use crate::supervise::keeper::Keeper;

/// The job, the processes, the machine and its events.
pub(super) struct Context<'a> {
    pub(super) job: &'a Job,
    pub(super) keeper: &'a Keeper<'a>,
    pub(super) progress: &'a mut dyn Progress,
    pub(super) clock: Clock,
    pub(super) machine: Machine,
    /// Events that the machine has not processed yet.
    pub(super) events: VecDeque<Event>,
}

impl Context<'_> {
    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Queues an event for the machine, after earlier ones.
    pub(super) fn happened(&mut self, event: Event) {
        self.events.push_back(event);
    }
}
