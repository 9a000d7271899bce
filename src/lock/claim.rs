//! Claims: entries in a queue.

use std::fmt;

use super::{Entry, FencingToken, Holder, Moment};

/// The grant of one name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granted {
    /// The fencing token of this hold.
    pub token: FencingToken,
    /// With slots: the number of the slot, from 1.
    pub slot: Option<u32>,
}

/// A hold: the grants, in the order of the request's names, and the start of its ttl.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// One for each name of the request.
    pub names: Vec<Granted>,
    /// The moment from which the ttl certainly counts: never later than the beginning of the call that proved the hold.
    pub counts_from: Moment,
}

/// The state of a claim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClaimState {
    /// In the queue.
    Waiting {
        /// The number of live entries ahead; `None` if the service cannot tell.
        ahead: Option<u32>,
        /// The holder of the lock, as far as known.
        holder: Option<Box<Entry>>,
    },
    /// Holds all names of its request.
    Held(Grant),
    /// Holds or waits, and was asked to leave (`dlock break`).
    AskedToLeave {
        /// The client that asked.
        by: Holder,
    },
    /// Was waiting with `--supersede`, and a newer claim superseded it. Final.
    Superseded {
        /// The newer claim.
        by: Holder,
    },
    /// No longer in the queue, without having left. Final.
    Lost(LossReason),
}

impl ClaimState {
    /// Returns whether no other state can follow.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Superseded { .. })
    }
}

/// Why a claim ended without leaving.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LossReason {
    /// Its ttl expired before a renewal arrived.
    Expired,
    /// Another client, known or not, removed its entry.
    Evicted(Option<Holder>),
    /// The object that it locked no longer exists or is another, such as a removed lock file.
    Replaced(String),
    /// The session that carried it ended.
    SessionEnded,
    /// The claim is that of an enclosing run, which lost it or ended.
    EnclosingEnded,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("its lease ran out before it could be renewed"),
            Self::Evicted(None) => f.write_str("its entry was removed"),
            Self::Evicted(Some(by)) => write!(f, "its entry was removed by {by}"),
            Self::Replaced(what) => f.write_str(what),
            Self::EnclosingEnded => f.write_str("the enclosing run lost it or ended"),
            Self::SessionEnded => f.write_str("its session with the service ended"),
        }
    }
}
