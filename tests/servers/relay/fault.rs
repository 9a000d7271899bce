//! What goes wrong with one message.

use std::fmt;
use std::time::Duration;

/// The ttl by which lateness is measured.
pub(crate) const TTL: Duration = Duration::from_secs(3);

/// Whose message it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// To the service.
    Request,
    /// From the service.
    Answer,
}

/// What happens to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// It is lost, and the connection is cut.
    Lost,
    /// The client's connection is cut; the request is done half a ttl later.
    Late,
    /// The client's connection is cut; the request is done after the claim's dlock has ended.
    Ghost,
    /// It comes late by so many tenths of a ttl, and what follows on its connection after it.
    Delayed(u32),
    /// It is lost, and so is everything after it, on this and every later connection.
    Silence,
}

impl Way {
    pub(crate) const BOTH: [Self; 2] = [Self::Request, Self::Answer];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Answer => "answer",
        }
    }
}

impl Fault {
    /// Whether the service was out of reach for so long that a lease may have run out.
    pub(crate) fn is_outage(self) -> bool {
        match self {
            Self::Delayed(tenths) => tenths >= 10,
            Self::Silence => true,
            Self::Lost | Self::Late | Self::Ghost => false,
        }
    }

    /// For how long this alone keeps anybody waiting.
    pub(crate) fn delay(self) -> Duration {
        if let Self::Delayed(tenths) = self { TTL * tenths / 10 } else { Duration::ZERO }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost => f.write_str("lost"),
            Self::Late => f.write_str("late"),
            Self::Ghost => f.write_str("ghost"),
            Self::Delayed(tenths) => write!(f, "{}.{}ttl", tenths / 10, tenths % 10),
            Self::Silence => f.write_str("silence"),
        }
    }
}

/// What goes wrong, with which message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Strike {
    pub(crate) way: Way,
    /// Which of the messages that go this way, from 1.
    pub(crate) number: usize,
    pub(crate) fault: Fault,
}
