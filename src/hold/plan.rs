//! The times of a hold.

use std::time::Duration;

use crate::lock::Moment;
use crate::supervise::signals::Signal;

/// How long leaving the queue may take without having held the lock: nobody waits long to give up.
pub(super) const WITHDRAWAL: Duration = Duration::from_millis(500);

/// How long to wait for the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// As long as it takes.
    Forever,
    /// Not at all: ask once.
    Once,
    /// At most so long after the start.
    AtMost(Duration),
}

/// What was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// When the attempt begins: the start of dlock, or later if it begins again.
    pub started: Moment,
    /// How long to wait.
    pub wait: Wait,
    /// The wanted ttl, which bounds how long a single attempt may take.
    pub ttl: Duration,
    /// The first signal to a command that is stopped on account of the hold.
    pub signal: Signal,
    /// Time between that and SIGKILL.
    pub grace: Duration,
    /// How long the command may hold.
    pub max_run: Option<Duration>,
    /// How long to hold at least.
    pub hold_at_least: Duration,
    /// Whether only the newest waiter of those that set this stays. A run that set it enters once: nobody could tell whether it
    /// or another is newer if it entered again.
    pub supersede: bool,
    /// Whether the hold ends only with the last descendant.
    pub whole_tree: bool,
}

impl Plan {
    /// When waiting is over.
    pub fn give_up_at(&self) -> Moment {
        match self.wait {
            Wait::Forever => Moment::NEVER,
            Wait::Once => self.started + (self.ttl / 6).min(Duration::from_secs(5)),
            Wait::AtMost(length) => self.started + length,
        }
    }

    /// When whoever has waited in vain should have left the queue.
    pub fn gone_by(&self) -> Moment {
        self.give_up_at() + WITHDRAWAL
    }
}
