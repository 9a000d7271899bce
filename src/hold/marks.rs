//! Nested runs under this hold, each of which has a mark: the hold stays until the last one has gone.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use super::context::Context;
use super::event::{Event, Phase};
use super::job::Notice;
use crate::clock::Clock;
use crate::supervise::mark::MarkBoard;

/// Between two attempts to wait for nested runs, when the system cannot do that.
const RETRY: Duration = Duration::from_secs(1);

/// The wait for the last mark.
type Clearing = Pin<Box<dyn Future<Output = io::Result<()>>>>;

/// See the module.
pub(super) struct Marks {
    /// Where nested runs leave their marks. It stays: under one nested run another may still begin.
    board: Option<MarkBoard>,
    /// The wait for the last one.
    pub(super) clearing: Option<Clearing>,
    /// It is said that they keep a hold that is to end.
    told: bool,
}

impl Marks {
    /// No marks yet, and a board for them if there can be one. Without it nested runs queue for themselves.
    pub(super) fn new() -> Self {
        Self { board: MarkBoard::new().ok(), clearing: None, told: false }
    }

    pub(super) fn board(&self) -> Option<&MarkBoard> {
        self.board.as_ref()
    }

    /// Whether there are none; then there will be none any more.
    pub(super) fn are_gone(&self) -> bool {
        self.board.as_ref().is_none_or(MarkBoard::try_clear)
    }

    /// Tells the machine at once if there are none.
    pub(super) fn tell_if_gone(&self, context: &mut Context<'_>) {
        if self.are_gone() {
            context.happened(Event::MarksGone);
        }
    }

    /// Waits for the last one, if the machine does and this does not yet.
    pub(super) fn await_if_needed(&mut self, context: &mut Context<'_>) {
        if !context.machine.waits_for_marks() {
            return;
        }
        if self.clearing.is_none() {
            self.await_last(context.clock, Duration::ZERO);
        }
        if matches!(context.machine.phase(), Phase::Stopping(_)) && !std::mem::replace(&mut self.told, true) {
            context.notice(Notice::KeptByNested);
        }
    }

    /// Waits again, when the system could not do that: they may still be there.
    pub(super) fn await_later(&mut self, clock: Clock) {
        self.await_last(clock, RETRY);
    }

    fn await_last(&mut self, clock: Clock, after: Duration) {
        if let Some(board) = &self.board {
            let (cleared, when) = (board.cleared(), clock.now() + after);
            self.clearing = Some(Box::pin(async move {
                clock.sleep_until(when).await;
                cleared.await
            }));
        }
    }
}
