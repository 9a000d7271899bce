//! The shapes of lives into which faults are put.

use crate::enumeration::Normal;
use crate::enumeration::command::OWN;
use crate::servers::relay::fault::{Fault, Way};
use crate::servers::{Kind, Need};

/// The subcommand that takes the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Run,
    Elect,
    /// A script takes it for itself, and releases it.
    Acquire,
    /// A script takes it as a lease without a process, which it renews and releases.
    Detach,
}

/// The other claims that the claim meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Company {
    /// A holder before it, a waiter behind it.
    Queue,
    /// A holder before it, a waiter behind it, and a second slot that is held by another claim all the time.
    QueueForSlot,
    /// Only a rival for a lock of another kind, which comes when the fault strikes. One of them is refused, or both
    /// come to their turn.
    Rival,
}

/// An event from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    None,
    /// SIGKILL to the script that holds the lock.
    KillScript,
    /// SIGTERM to the leader in its second term.
    EndSecondTerm,
}

/// One shape.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) verb: Verb,
    /// Further options of the claim, and of the others.
    pub(crate) options: &'static [&'static str],
    pub(crate) others: &'static [&'static str],
    /// Whether the claim takes a second lock with it, which no other claim wants.
    pub(crate) takes_two: bool,
    pub(crate) company: Company,
    pub(crate) event: Event,
}

const EXCLUSIVE: Shape = Shape {
    name: "exclusive",
    verb: Verb::Run,
    options: &["--exclusive"],
    others: &["--exclusive"],
    takes_two: false,
    company: Company::Queue,
    event: Event::None,
};

/// All claims are candidates.
const ELECT: Shape = Shape { name: "elect", verb: Verb::Elect, options: &[], others: &[], ..EXCLUSIVE };

const ACQUIRE: Shape = Shape { name: "acquire", verb: Verb::Acquire, ..EXCLUSIVE };

/// All shapes.
pub(crate) static SHAPES: [Shape; 10] = [
    EXCLUSIVE,
    Shape { name: "two", takes_two: true, ..EXCLUSIVE },
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
];

impl Shape {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        SHAPES.iter().find(|shape| shape.name == name)
    }

    /// Returns whether such a service offers the shape.
    pub(crate) fn suits(&self, kind: &Kind) -> bool {
        let has = |need| kind.lacks(need).is_none();
        (self.verb != Verb::Detach || has(Need::Detached))
            && (self.name != "shared" || has(Need::Shared))
            && (!self.takes_two || has(Need::AtomicNames))
    }

    /// Returns whether the lock is taken for a script.
    pub(crate) fn is_for_script(&self) -> bool {
        matches!(self.verb, Verb::Acquire | Verb::Detach)
    }

    /// Returns whether it campaigns again.
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

    /// Returns the faults of a message in that direction.
    pub(crate) fn faults(&self, way: Way) -> &'static [Fault] {
        match (self.company, way) {
            // Between two steps of one claim the other takes all of its own.
            (Company::Rival, Way::Request) => &[Fault::Delayed(4), Fault::Lost, Fault::Late, Fault::Burst],
            (Company::Rival, Way::Answer) => &[Fault::Delayed(4), Fault::Lost],
            (_, Way::Request) => &[Fault::Lost, Fault::Late, Fault::Burst, Fault::Ghost, Fault::Silence],
            (_, Way::Answer) => &[Fault::Lost, Fault::Delayed(4), Fault::Delayed(12), Fault::Silence],
        }
    }
}
