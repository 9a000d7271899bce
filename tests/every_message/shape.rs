//! The shapes of lives into which faults are put.

use crate::enumeration::Normal;
use crate::enumeration::command::OWN;
use crate::servers::relay::fault::{Fault, Way};
use crate::servers::{Kind, Need};

/// By which subcommand the claim takes the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Run,
    Elect,
    /// A script has it taken for itself, and releases it.
    Acquire,
    /// A script takes it as a lease without a process, which it renews and releases.
    Detach,
}

/// Whom the claim meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Company {
    /// A holder before it, a waiter behind it.
    Queue,
    /// The same, and a second slot that is taken by somebody else all the time.
    QueueForSlot,
    /// Nobody but a rival for a lock of another kind, which comes when the fault strikes. One of them is refused, or both
    /// come to their turn.
    Rival,
}

/// What happens from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    None,
    /// SIGKILL to the script that holds the lock.
    KillScript,
    /// SIGTERM to who leads for the second time.
    EndSecondTerm,
}

/// Whose messages the fault is among.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Struck {
    Claim,
    /// Those of who is shown the leaders.
    Observer,
}

/// One shape.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) verb: Verb,
    /// Further options of the claim, and of the others.
    pub(crate) options: &'static [&'static str],
    pub(crate) others: &'static [&'static str],
    pub(crate) company: Company,
    pub(crate) event: Event,
    pub(crate) struck: Struck,
}

const EXCLUSIVE: Shape = Shape {
    name: "exclusive",
    verb: Verb::Run,
    options: &["--exclusive"],
    others: &["--exclusive"],
    company: Company::Queue,
    event: Event::None,
    struck: Struck::Claim,
};

/// All of them stand for election, and somebody looks on.
const ELECT: Shape = Shape { name: "elect", verb: Verb::Elect, options: &[], others: &[], ..EXCLUSIVE };

const ACQUIRE: Shape = Shape { name: "acquire", verb: Verb::Acquire, ..EXCLUSIVE };

/// All of them.
pub(crate) static SHAPES: [Shape; 10] = [
    EXCLUSIVE,
    // The claim meets exclusive ones.
    Shape { name: "shared", options: &["--shared"], ..EXCLUSIVE },
    Shape {
        name: "slots",
        options: &["--slots", "2"],
        others: &["--slots", "2"],
        company: Company::QueueForSlot,
        ..EXCLUSIVE
    },
    Shape { name: "mixed", options: &["--slots", "2"], company: Company::Rival, ..EXCLUSIVE },
    ACQUIRE,
    Shape { name: "acquire-killed", event: Event::KillScript, ..ACQUIRE },
    Shape { name: "detach", verb: Verb::Detach, ..ACQUIRE },
    ELECT,
    Shape { name: "elect-forever", options: &["--forever"], event: Event::EndSecondTerm, ..ELECT },
    Shape { name: "observer", struck: Struck::Observer, ..ELECT },
];

impl Shape {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        SHAPES.iter().find(|shape| shape.name == name)
    }

    /// Whether there is that on such a service.
    pub(crate) fn suits(&self, kind: &Kind) -> bool {
        let has = |need| kind.lacks(need).is_none();
        (self.verb != Verb::Detach || has(Need::Detached)) && (self.name != "shared" || has(Need::Shared))
    }

    /// Whether a script has the lock taken.
    pub(crate) fn is_for_script(&self) -> bool {
        matches!(self.verb, Verb::Acquire | Verb::Detach)
    }

    /// Whether somebody is shown the leaders.
    pub(crate) fn is_observed(&self) -> bool {
        self.verb == Verb::Elect
    }

    /// Whether it stands again.
    pub(crate) fn stands_again(&self) -> bool {
        self.event == Event::EndSecondTerm
    }

    pub(crate) fn ends(&self) -> Normal {
        match self.event {
            Event::None => Normal::Exit(OWN),
            Event::KillScript => Normal::Signal(libc::SIGKILL),
            Event::EndSecondTerm => Normal::Signal(libc::SIGTERM),
        }
    }

    /// What can happen to a message that goes that way.
    pub(crate) fn faults(&self, way: Way) -> &'static [Fault] {
        match (self.company, way) {
            // Between the steps of one the other takes all of its own.
            (Company::Rival, Way::Request) => &[Fault::Delayed(4), Fault::Lost, Fault::Late],
            (Company::Rival, Way::Answer) => &[Fault::Delayed(4), Fault::Lost],
            (_, Way::Request) => &[Fault::Lost, Fault::Late, Fault::Ghost, Fault::Silence],
            (_, Way::Answer) => &[Fault::Lost, Fault::Delayed(4), Fault::Delayed(12), Fault::Silence],
        }
    }
}
