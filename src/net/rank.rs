//! Precedence between clients of a service that is short of connections.

use std::time::Duration;

use super::fault::Fault;
use crate::clock::jittered;
use crate::lock::{ErrorKind, Moment};

/// The number of waiters at the head of the queue that replace a broken connection at once.
pub const NEXT: u32 = 2;
/// The additional delay of each waiter behind those before it replaces its connection.
const STEP: Duration = Duration::from_millis(100);
/// The longest pause between two attempts to reach a server that is down. Waiters come back at random times, so a hold is
/// among the first if its pauses are short beside theirs.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE_OF_A_HOLD: Duration = Duration::from_millis(50);

/// The purpose of a client's connections.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Rank {
    /// A short operation, which connects at any time.
    #[default]
    Free,
    /// A hold.
    Holds,
    /// A wait with `ahead` claims ahead, which must renew within `ttl`.
    Waits {
        /// The number of claims ahead.
        ahead: u32,
        /// The claim's ttl.
        ttl: Duration,
    },
}

/// A pause after a server refused a login, or had no room for a connection.
#[derive(Clone, Debug)]
pub(super) struct Rest {
    pub(super) fault: Fault,
    pub(super) until: Moment,
    length: Duration,
}

impl Rank {
    /// Returns whether this is a waiter.
    pub(super) fn waits(self) -> bool {
        matches!(self, Self::Waits { .. })
    }

    /// Returns how long to wait before a broken connection is replaced: when a server returns, holders connect first.
    pub fn delay(self) -> Duration {
        match self {
            Self::Waits { ahead, ttl } => {
                jittered((STEP * ahead.min(1000).saturating_sub(NEXT)).min(longest(ttl)))
            }
            Self::Free | Self::Holds => Duration::ZERO,
        }
    }

    /// Returns the longest pause between two attempts to reach a server that is down.
    pub fn longest_pause(self) -> Duration {
        if self == Self::Holds { LONGEST_PAUSE_OF_A_HOLD } else { LONGEST_PAUSE }
    }

    /// Returns how long a waiter does not contact the server after `fault`: twice the length of `before`, up to a tenth
    /// of the ttl.
    pub(super) fn rest(self, fault: &Fault, now: Moment, before: Option<&Rest>) -> Option<Rest> {
        let Self::Waits { ttl, .. } = self else { return None };
        if fault.kind == ErrorKind::Unavailable {
            return None;
        }
        let longest = longest(ttl);
        let length = before.map_or(longest / 4, |before| (before.length * 2).min(longest));
        Some(Rest { fault: fault.clone(), until: now + jittered(length), length })
    }
}

fn longest(ttl: Duration) -> Duration {
    ttl / 10
}
