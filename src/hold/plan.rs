//! The times of a hold.

use std::time::Duration;

use crate::lock::Moment;
use crate::supervise::signals::Signal;

/// How long leaving the queue may take if the lock was never held: a user who gives up should not wait long.
pub(super) const WITHDRAWAL: Duration = Duration::from_millis(500);

/// How long to wait for the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wait {
    /// Without limit.
    #[default]
    Forever,
    /// Not at all: ask once.
    Once,
    /// At most this long after the start.
    AtMost(Duration),
}

/// The requested times and limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// When the attempt begins: the start of dlock, or later if dlock runs the job again.
    pub started: Moment,
    /// How long to wait.
    pub wait: Wait,
    /// The requested ttl. It also bounds how long a single attempt may take.
    pub ttl: Duration,
    /// The first signal to a command that dlock stops for a reason of its own.
    pub signal: Signal,
    /// The time between that signal and SIGKILL.
    pub grace: Duration,
    /// How long the command may run under the lock.
    pub max_run: Option<Duration>,
    /// How long to hold at least.
    pub hold_at_least: Duration,
    /// Whether only the newest of the waiters that set this stays. Such a run enters once: if it entered again, the
    /// service could not tell which of two is newer.
    pub supersede: bool,
    /// Whether the hold lasts until the last descendant of the command has ended.
    pub whole_tree: bool,
}

impl Plan {
    /// Returns when to give up waiting.
    pub fn give_up_at(&self) -> Moment {
        match self.wait {
            Wait::Forever => Moment::NEVER,
            Wait::Once => self.started + (self.ttl / 6).min(Duration::from_secs(5)),
            Wait::AtMost(length) => self.started + length,
        }
    }

    /// Returns when a claim that has waited in vain should have left the queue.
    pub fn gone_by(&self) -> Moment {
        self.give_up_at() + WITHDRAWAL
    }
}
