//! Lengths of time, in sentences and in JSON.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::lock::duration::short;

/// A length of time: milliseconds in JSON, `1m03s` in a sentence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ms(pub Duration);

impl Ms {
    /// Returns the whole milliseconds, at most [`u64::MAX`].
    pub fn whole(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&short(self.0))
    }
}

impl Serialize for Ms {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(self.whole())
    }
}
