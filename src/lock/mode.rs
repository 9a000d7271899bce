//! Modes: which claims may hold a lock together.

use std::fmt;
use std::num::NonZeroU32;

/// How a claim is to hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// Alone.
    Exclusive,
    /// Together with other shared claims.
    Shared,
    /// Together with other claims of the same number of slots, at most so many at once.
    Slots(NonZeroU32),
}

impl Mode {
    /// Returns whether claims of both modes may be in one queue. Exclusive and shared mix with each other; slots mix
    /// only with the same number of slots.
    pub fn mixes_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::Slots(a), Self::Slots(b)) => a == b,
            (Self::Slots(_), _) | (_, Self::Slots(_)) => false,
            _ => true,
        }
    }

    /// Returns whether a hold in this mode gives its command all that `wanted` would, so that a nested run may use it.
    pub fn covers(self, wanted: Self) -> bool {
        self == wanted || (self == Self::Exclusive && wanted == Self::Shared)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared => f.write_str("shared"),
            Self::Slots(n) => write!(f, "slots:{n}"),
        }
    }
}

impl std::str::FromStr for Mode {
    type Err = ();
    /// Parses the text that `Display` writes.
    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "exclusive" => Ok(Self::Exclusive),
            "shared" => Ok(Self::Shared),
            _ => text.strip_prefix("slots:").and_then(|n| n.parse().ok()).map(Self::Slots).ok_or(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(n: u32) -> Mode {
        Mode::Slots(NonZeroU32::new(n).expect("positive"))
    }

    #[test]
    fn kinds_mix_as_documented() {
        assert!(Mode::Exclusive.mixes_with(Mode::Shared) && Mode::Shared.mixes_with(Mode::Exclusive));
        assert!(slots(3).mixes_with(slots(3)));
        assert!(!slots(3).mixes_with(slots(5)));
        assert!(!slots(1).mixes_with(Mode::Exclusive) && !Mode::Shared.mixes_with(slots(2)));
    }

    #[test]
    fn text_form_round_trips() {
        for mode in [Mode::Exclusive, Mode::Shared, slots(7)] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert_eq!("slots:0".parse::<Mode>(), Err(()));
    }
}
