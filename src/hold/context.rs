//! What every part of a hold works with.

use std::collections::VecDeque;

use super::event::Event;
use super::job::{Job, Notice, Progress};
use super::machine::Machine;
use crate::clock::Clock;
use crate::lock::Moment;
use crate::supervise::keeper::Keeper;

/// See the module.
pub(super) struct Context<'a> {
    pub(super) job: &'a Job,
    pub(super) keeper: &'a Keeper<'a>,
    pub(super) progress: &'a mut dyn Progress,
    pub(super) clock: Clock,
    pub(super) machine: Machine,
    /// What has happened and the machine was not told yet.
    pub(super) events: VecDeque<Event>,
}

impl Context<'_> {
    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(super) fn notice(&mut self, notice: Notice<'_>) {
        self.progress.notice(notice);
    }

    /// The machine is told of it next, after what has happened before.
    pub(super) fn happened(&mut self, event: Event) {
        self.events.push_back(event);
    }
}
