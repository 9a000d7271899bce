//! The fault of one message.

use std::fmt;
use std::time::Duration;

/// The TTL by which delays are measured.
pub(crate) const TTL: Duration = Duration::from_secs(3);

/// The length of a [`Fault::Burst`].
pub(crate) const BURST: Duration = TTL.checked_div(4).expect("not by zero");

/// The direction of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// To the service.
    Request,
    /// From the service.
    Answer,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The relay drops it and cuts the connection.
    Lost,
    /// The relay cuts the client's connection and delivers the request half a TTL later.
    Late,
    /// As `Late`, and the same happens to all requests of the next quarter of a TTL, each on its own connection: a
    /// whole attempt arrives after the one that replaces it.
    Burst,
    /// The relay cuts the client's connection and delivers the request after the claim's dlock has ended.
    Ghost,
    /// The relay delays it, and all messages after it on its connection, by so many tenths of a TTL.
    Delayed(u32),
    /// The relay drops it and all later messages, on this connection and on later ones.
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
    /// Returns whether the service was out of reach for so long that a lease may have expired.
    pub(crate) fn is_outage(self) -> bool {
        match self {
            Self::Delayed(tenths) => tenths >= 10,
            Self::Silence => true,
            Self::Lost | Self::Late | Self::Burst | Self::Ghost => false,
        }
    }

    /// Returns whether a request may be executed after a later one, or after its run: it may create an entry, which
    /// expires with its lease.
    pub(crate) fn comes_late(self) -> bool {
        matches!(self, Self::Late | Self::Burst | Self::Ghost)
    }

    /// Returns the time for which this fault alone makes a process wait.
    pub(crate) fn delay(self) -> Duration {
        match self {
            Self::Delayed(tenths) => TTL * tenths / 10,
            Self::Burst => BURST,
            Self::Lost | Self::Late | Self::Ghost | Self::Silence => Duration::ZERO,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost => f.write_str("lost"),
            Self::Late => f.write_str("late"),
            Self::Burst => f.write_str("burst"),
            Self::Ghost => f.write_str("ghost"),
            Self::Delayed(tenths) => write!(f, "{}.{}ttl", tenths / 10, tenths % 10),
            Self::Silence => f.write_str("silence"),
        }
    }
}

/// A fault, and the message that it meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Strike {
    pub(crate) way: Way,
    /// The number of the message among those in this direction, from 1.
    pub(crate) number: usize,
    pub(crate) fault: Fault,
}
