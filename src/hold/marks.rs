//! The marks of nested runs: this hold stays until the last one is gone.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use futures_util::future::OptionFuture;

use super::context::Context;
use super::event::Phase;
use super::job::Notice;
use crate::clock::Clock;
use crate::supervise::mark::MarkBoard;

/// The time between two attempts to wait for nested runs, if the system refuses.
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// The wait for the last mark.
type Clearing = Pin<Box<dyn Future<Output = io::Result<()>>>>;

/// The board of this hold, and the wait for its marks.
pub(super) struct Marks<'a> {
    pub(super) board: Option<&'a MarkBoard>,
    /// The wait for the last one.
    pub(super) clearing: Option<Clearing>,
    /// People know that nested runs delay the end.
    told: bool,
}

impl<'a> Marks<'a> {
    pub(super) fn on(board: Option<&'a MarkBoard>) -> Self {
        Self { board, clearing: None, told: false }
    }

    /// Returns whether there are no marks. If so, the board takes none from now on.
    pub(super) fn are_gone(&self) -> bool {
        self.board.is_none_or(MarkBoard::try_clear)
    }

    /// Begins to wait for the last mark, if the machine waits for it.
    pub(super) fn await_if_needed(&mut self, context: &mut Context<'_>) {
        if !context.machine.waits_for_marks() {
            return;
        }
        if self.clearing.is_none() {
            self.await_last(context.clock, Duration::ZERO);
        }
        if matches!(context.machine.phase, Phase::Stopping(_)) && !std::mem::replace(&mut self.told, true) {
            context.progress.notice(Notice::KeptByNested);
        }
    }

    /// Waits for the last mark, beginning after a pause if the system has just refused that: marks may still be there.
    pub(super) fn await_last(&mut self, clock: Clock, after: Duration) {
        let (cleared, when) = (self.board.map(MarkBoard::cleared), clock.now() + after);
        self.clearing = Some(Box::pin(async move {
            clock.sleep_until(when).await;
            OptionFuture::from(cleared).await.unwrap_or(Ok(()))
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_a_board_there_is_no_mark_to_wait_for() {
        let mut marks = Marks::on(None);
        marks.await_last(Clock::Boot, Duration::ZERO);
        let cleared = tokio::time::timeout(Duration::from_secs(5), marks.clearing.take().expect("a wait"));
        assert!(matches!(cleared.await, Ok(Ok(()))) && marks.are_gone());
    }
}
