//! Which client of a service goes first where connections are short.

use std::time::Duration;

use super::fault::Fault;
use crate::clock::jittered;
use crate::lock::{ErrorKind, Moment};

/// How many waiters may be next soon, so that a connection of theirs is replaced at once.
pub const NEXT: u32 = 2;
/// How much later each waiter behind those replaces its connection.
const STEP: Duration = Duration::from_millis(50);

/// What a client asks for, to its connections.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Rank {
    /// Something of a moment: it asks whenever it wants.
    #[default]
    Free,
    /// To keep a hold.
    Holds,
    /// To wait, with so many `ahead`, for as long as it renews within this ttl.
    Waits {
        /// How many.
        ahead: u32,
        /// Its ttl.
        ttl: Duration,
    },
}

/// A server that refused a login, or had no room.
#[derive(Clone, Debug)]
pub(super) struct Rest {
    pub(super) fault: Fault,
    pub(super) until: Moment,
    length: Duration,
}

impl Rank {
    /// Whether it is to wait.
    pub(super) fn waits(self) -> bool {
        matches!(self, Self::Waits { .. })
    }

    /// How long a connection that broke is not replaced: a hold's is to come first when a server is back.
    pub(super) fn delay(self) -> Duration {
        match self {
            Self::Waits { ahead, ttl } => {
                jittered((STEP * ahead.min(1000).saturating_sub(NEXT)).min(longest(ttl)))
            }
            Self::Free | Self::Holds => Duration::ZERO,
        }
    }

    /// For how long after `fault` a waiter asks no more, longer each time; `before` is the rest before that.
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
