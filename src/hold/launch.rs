//! The start of the command, of which as much as can be is done before the lock is held.

use std::io;
use std::os::fd::OwnedFd;

use super::context::Context;
use super::environment;
use crate::supervise::command::Prepared;
use crate::supervise::launch::Spawned;

/// See the module.
#[derive(Default)]
pub(super) struct Launch {
    prepared: Option<Prepared>,
    /// What carries the hold in the kernel, between the hold and the start.
    anchors: Vec<OwnedFd>,
}

impl Launch {
    /// Makes ready what the command will need, so that nothing of it comes between the hold and its start.
    pub(super) fn prepare(&mut self, context: &Context<'_>) {
        if self.prepared.is_none() && context.job.adoption.is_none() {
            let front = context.keeper.start.front_pid;
            self.prepared = Prepared::new(&context.job.argv, &environment::NAMES, front).ok();
        }
    }

    pub(super) fn keep_anchors(&mut self, anchors: Vec<OwnedFd>) {
        self.anchors = anchors;
    }

    pub(super) fn take_anchors(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.anchors)
    }

    /// Starts the command.
    pub(super) fn spawn(
        &mut self,
        context: &Context<'_>,
        variables: Vec<(&'static str, String)>,
    ) -> io::Result<Spawned> {
        let keeper = context.keeper;
        let prepared = match self.prepared.take() {
            Some(prepared) => prepared,
            None => Prepared::new(&context.job.argv, &environment::NAMES, keeper.start.front_pid)?,
        };
        prepared.spawn(variables, keeper.start, keeper.shared().gate, &self.anchors)
    }
}
