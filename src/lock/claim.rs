//! Claims: entries in a queue.

use std::fmt;

use super::{Entry, FencingToken, Holder, Moment};

/// What a service gave for one name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granted {
    /// The fencing token of this hold.
    pub token: FencingToken,
    /// With slots: which one, from 1.
    pub slot: Option<u32>,
}

/// A hold: what was given, in the order of the request's names, and since when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// One for each name of the request.
    pub names: Vec<Granted>,
    /// From when the ttl certainly counts: never later than the beginning of the call that proved the hold.
    pub counts_from: Moment,
}

/// Where a claim stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClaimState {
    /// In the queue.
    Waiting {
        /// How many live entries stand ahead; `None` where the service cannot tell.
        ahead: Option<u32>,
        /// Who holds the lock that is waited for, as far as known.
        holder: Option<Box<Entry>>,
    },
    /// Holds all names of its request.
    Held(Grant),
    /// Holds or waits, and somebody asked it to end (`dlock break`).
    AskedToLeave {
        /// Who asked.
        by: Holder,
    },
    /// Was waiting with `--supersede`, and a newer claim of that kind took its place. Final.
    Superseded {
        /// Who came after it.
        by: Holder,
    },
    /// No longer in the queue, and not by its own doing. Final.
    Lost(LossReason),
}

impl ClaimState {
    /// Whether nothing can follow.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Superseded { .. })
    }
}

/// Why a claim ended without leaving.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LossReason {
    /// Its ttl ran out before a renewal arrived.
    Expired,
    /// Its entry was removed by somebody, known or not.
    Evicted(Option<Holder>),
    /// What it was taken on no longer exists or is another, such as a lock file that was removed.
    Replaced(String),
    /// The session that carried it ended.
    SessionEnded,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("its lease ran out before it could be renewed"),
            Self::Evicted(None) => f.write_str("its entry was removed"),
            Self::Evicted(Some(by)) => write!(f, "its entry was removed by {by}"),
            Self::Replaced(what) => f.write_str(what),
            Self::SessionEnded => f.write_str("its session with the service ended"),
        }
    }
}
