//! The identity of a claim.

use std::fmt;
use std::str::FromStr;

/// The identity of one claim: 128 bits created by the client before the first request. So a step with a lost reply can
/// be repeated or undone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(u128);

impl ClaimId {
    /// Wraps 16 random bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// Returns the id with this number.
    pub const fn from_number(number: u128) -> Self {
        Self(number)
    }

    /// Returns whether one run made both: the numbers of its claims differ in the first eight digits alone.
    pub fn is_of_one_run(self, other: Self) -> bool {
        (self.0 ^ other.0) << 32 == 0
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
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

impl FromStr for ClaimId {
    type Err = NotAClaimId;
    fn from_str(text: &str) -> Result<Self, NotAClaimId> {
        if text.len() != 32 || !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(NotAClaimId);
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| NotAClaimId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_of_one_run_differ_in_their_first_digits() {
        let id = ClaimId::from_number(7 << 96 | 5);
        assert!(id.is_of_one_run(ClaimId::from_number(8 << 96 | 5)));
        assert!(!id.is_of_one_run(ClaimId::from_number(7 << 96 | 6)));
    }
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ids_round_trip(bytes in any::<[u8; 16]>()) {
            let id = ClaimId::from_bytes(bytes);
            prop_assert_eq!(id.to_string().parse(), Ok(id));
        }
    }

    #[test]
    fn invalid_id_is_refused() {
        for text in ["", "12", "+0000000000000000000000000000000", "G0000000000000000000000000000000"] {
            assert_eq!(text.parse::<ClaimId>(), Err(NotAClaimId), "{text}");
        }
    }
}
