//! One thing that goes wrong with one message of one life, in a form that can be repeated.

use std::fmt;
use std::str::FromStr;

use crate::relay::fault::{Fault, Strike, Way};
use crate::service::Service;

/// Of which kind the lock is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Everybody is exclusive.
    Exclusive,
    /// The claim whose messages are counted is shared; the others, which it meets, are exclusive.
    Shared,
    /// Everybody has one of two slots. The second one is taken by somebody else all the time.
    Slots,
    /// The claim asks for one of two slots and meets nobody but a rival for an exclusive lock, which comes when the fault
    /// strikes. One of them is refused, or both come to their turn.
    Mixed,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Exclusive, Self::Shared, Self::Slots, Self::Mixed];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Slots => "slots",
            Self::Mixed => "mixed",
        }
    }

    /// What can happen to a message that goes that way.
    pub(crate) fn faults(self, way: Way) -> &'static [Fault] {
        match (self, way) {
            // Between the steps of one the other takes all of its own.
            (Self::Mixed, Way::Request) => &[Fault::Delayed(4), Fault::Lost, Fault::Late],
            (Self::Mixed, Way::Answer) => &[Fault::Delayed(4), Fault::Lost],
            (_, Way::Request) => &[Fault::Lost, Fault::Late, Fault::Ghost, Fault::Silence],
            (_, Way::Answer) => &[Fault::Lost, Fault::Delayed(4), Fault::Delayed(12), Fault::Silence],
        }
    }

    /// The options of the claim, or of the others.
    pub(crate) fn options(self, is_claim: bool) -> &'static [&'static str] {
        match self {
            Self::Shared if is_claim => &["--shared"],
            Self::Mixed if !is_claim => &["--exclusive"],
            Self::Exclusive | Self::Shared => &["--exclusive"],
            Self::Slots | Self::Mixed => &["--slots", "2"],
        }
    }
}

/// `SERVICE/KIND/WAY/N/FAULT`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Point {
    pub(crate) service: Service,
    pub(crate) kind: Kind,
    pub(crate) strike: Strike,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Strike { way, number, fault } = self.strike;
        write!(f, "{}/{}/{}/{number}/{fault}", self.service.name(), self.kind.name(), way.name())
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("not SERVICE/KIND/WAY/N/FAULT: {text}");
        let [service, kind, way, number, fault] =
            text.split('/').collect::<Vec<_>>().try_into().map_err(|_| wrong())?;
        let way = Way::BOTH.into_iter().find(|one| one.name() == way).ok_or_else(wrong)?;
        let kind = Kind::ALL.into_iter().find(|one| one.name() == kind).ok_or_else(wrong)?;
        let fault =
            kind.faults(way).iter().copied().find(|one| one.to_string() == fault).ok_or_else(wrong)?;
        Ok(Self {
            service: Service::ALL.into_iter().find(|one| one.name() == service).ok_or_else(wrong)?,
            kind,
            strike: Strike { way, number: number.parse().map_err(|_| wrong())?, fault },
        })
    }
}
