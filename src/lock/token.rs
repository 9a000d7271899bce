//! Fencing tokens.

use std::fmt;
use std::num::NonZeroU64;

/// A number greater than the token of every claim that had to end before this one held.
///
/// Kleppmann, "How to do distributed locking" (2016): the guarded resource remembers the highest token it has seen and
/// refuses lower ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FencingToken(NonZeroU64);

impl FencingToken {
    /// Returns `number` as a token; zero is not one.
    pub fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
