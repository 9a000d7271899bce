//! Claims: entries in a line.

use std::fmt;
use std::str::FromStr;

use super::{FencingToken, Holder, Moment};

/// The identity of one claim, 128 bits made by the client before the first request, so that a step whose
/// reply was lost can be repeated or undone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId([u8; 16]);

impl ClaimId {
    /// Takes 16 random bytes as an identity.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The id as one number.
    pub const fn to_number(self) -> u128 {
        u128::from_be_bytes(self.0)
    }

    /// The id that is this number.
    pub const fn from_number(number: u128) -> Self {
        Self(number.to_be_bytes())
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.to_number())
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not 32 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAClaimId;

impl fmt::Display for NotAClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a claim id is 32 hexadecimal digits, as `dlock status` shows it")
    }
}

impl std::error::Error for NotAClaimId {}

impl FromStr for ClaimId {
    type Err = NotAClaimId;
    fn from_str(text: &str) -> Result<Self, NotAClaimId> {
        if text.len() != 32 || !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(NotAClaimId);
        }
        u128::from_str_radix(text, 16).map(|n| Self(n.to_be_bytes())).map_err(|_| NotAClaimId)
    }
}

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
    /// In line.
    Waiting {
        /// How many live entries stand ahead; `None` where the service cannot tell.
        ahead: Option<u32>,
        /// Who holds the lock that is waited for, as far as known.
        holder: Option<Box<super::Entry>>,
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
    /// No longer in line, and not by its own doing. Final.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ids_round_trip(bytes in any::<[u8; 16]>()) {
            let id = ClaimId::from_bytes(bytes);
            prop_assert_eq!(id.to_string().parse(), Ok(id));
        }
    }

    #[test]
    fn refuses_what_is_no_id() {
        for text in ["", "12", "+0000000000000000000000000000000", "G0000000000000000000000000000000"] {
            assert_eq!(text.parse::<ClaimId>(), Err(NotAClaimId), "{text}");
        }
    }
}
