//! The shapes of runs into which faults are put.

use std::time::Duration;

use crate::call::Class;
use crate::enumeration::Normal;
use crate::enumeration::command::OWN;
use crate::point::Fault;

/// An event from outside, once the run has reached its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// Nothing.
    None,
    /// SIGTERM to the front.
    Terminate,
    /// The lock file is removed.
    Remove,
    /// The key is deleted.
    Delete,
    /// The service falls silent.
    Silence,
    /// The holder releases the lock.
    Release,
    /// Another run waits for the lock, then the command ends.
    HandOver,
    /// SIGTERM to the front in its second term.
    EndSecondTerm,
    /// SIGKILL to the script that has taken the lock.
    KillScript,
    /// Ctrl-Z, `bg` and `fg` at the terminal on which the run is a job, then the command ends.
    Suspend,
}

/// The subcommand that takes the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Run,
    Elect,
    /// A script calls it. The caller is followed, and the two processes that it leaves behind.
    Acquire,
}

/// One shape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) verb: Verb,
    /// Whether the lock is on Redis instead of files.
    pub(crate) on_redis: bool,
    /// Further options; `REPORT` stands for a file.
    pub(crate) options: &'static [&'static str],
    pub(crate) ttl: &'static str,
    /// The manner of the command, see `command.rs`.
    pub(crate) command: &'static str,
    /// Whether the lock is held before.
    pub(crate) held: bool,
    pub(crate) event: Event,
    /// The end of a run without faults.
    pub(crate) ends: Normal,
    /// Whether a wrapper that only looks like dlock runs in its place.
    pub(crate) careless: bool,
}

/// A lease so long that the tree is dead within the kill budget, a twentieth, even if the search for it is slow: under
/// the tracer, with many others, and for what `acquire` has to find by its environment. It also outlasts a stalled
/// disk of the server while a user looks at a terminal.
const UNHURRIED: &str = "8s";

const PLAIN: Shape = Shape {
    name: "run",
    verb: Verb::Run,
    on_redis: false,
    options: &[],
    ttl: "3s",
    command: "15",
    held: false,
    event: Event::None,
    ends: Normal::Exit(OWN),
    careless: false,
};

const ENDLESS: Shape = Shape { command: "long", ..PLAIN };

/// A script that leaves a process behind, which ignores SIGTERM.
const ACQUIRE: Shape = Shape {
    name: "acquire",
    verb: Verb::Acquire,
    options: &["--grace", "40ms"],
    command: "script",
    ends: Normal::Exit(0),
    ..PLAIN
};

/// All shapes.
pub(crate) const SHAPES: &[Shape] = &[
    PLAIN,
    Shape { name: "report", options: &["--report", "REPORT"], ..PLAIN },
    Shape { name: "waiter", held: true, event: Event::Release, ..PLAIN },
    Shape { name: "hand-over", command: "gate", event: Event::HandOver, ..PLAIN },
    Shape { name: "term", event: Event::Terminate, ends: Normal::Signal(libc::SIGTERM), ..ENDLESS },
    Shape {
        name: "max-run",
        options: &["--max-run", "80ms", "--grace", "40ms"],
        command: "deaf",
        ends: Normal::Exit(124),
        ..PLAIN
    },
    Shape { name: "removed", ttl: "1s", event: Event::Remove, ends: Normal::Exit(76), ..ENDLESS },
    Shape {
        name: "waiter-term",
        held: true,
        event: Event::Terminate,
        ends: Normal::Signal(libc::SIGTERM),
        ..PLAIN
    },
    Shape { name: "try", options: &["--try"], held: true, ends: Normal::Exit(75), ..PLAIN },
    // A nested run continues after the end of its command.
    Shape { name: "nested", command: "nested", ..PLAIN },
    ACQUIRE,
    Shape { name: "acquire-waiter", held: true, event: Event::Release, ..ACQUIRE },
    Shape { name: "acquire-hand-over", command: "script-gate", event: Event::HandOver, ..ACQUIRE },
    Shape { name: "acquire-killed", command: "script-long", event: Event::KillScript, ..ACQUIRE },
    Shape { name: "acquire-release", command: "script-release", ..ACQUIRE },
    Shape { name: "elect", verb: Verb::Elect, command: "gate", event: Event::HandOver, ..PLAIN },
    Shape {
        name: "elect-forever",
        verb: Verb::Elect,
        options: &["--forever"],
        event: Event::EndSecondTerm,
        ends: Normal::Signal(libc::SIGTERM),
        ..PLAIN
    },
    Shape { name: "terminal", command: "gate", event: Event::Suspend, ..PLAIN },
    Shape { name: "redis", on_redis: true, ..PLAIN },
    Shape {
        name: "redis-terminal",
        on_redis: true,
        ttl: UNHURRIED,
        command: "gate",
        event: Event::Suspend,
        ..PLAIN
    },
    Shape { name: "redis-acquire", on_redis: true, ttl: UNHURRIED, ..ACQUIRE },
    Shape {
        name: "redis-acquire-waiter",
        on_redis: true,
        ttl: UNHURRIED,
        held: true,
        event: Event::Release,
        ..ACQUIRE
    },
    Shape { name: "redis-waiter", on_redis: true, held: true, event: Event::Release, ..PLAIN },
    Shape {
        name: "redis-deleted",
        on_redis: true,
        ttl: "1s",
        event: Event::Delete,
        ends: Normal::Exit(76),
        ..ENDLESS
    },
    Shape {
        name: "redis-silent",
        on_redis: true,
        ttl: UNHURRIED,
        event: Event::Silence,
        command: "deaf",
        ends: Normal::Exit(76),
        ..PLAIN
    },
];

/// `flock -o`, which leaves its command running when it is killed.
pub(crate) const CARELESS: Shape = Shape { name: "careless", command: "300", careless: true, ..PLAIN };

impl Shape {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        SHAPES.iter().chain([&CARELESS]).find(|shape| shape.name == name)
    }

    /// Returns whether the lock is taken for a script.
    pub(crate) fn is_for_script(&self) -> bool {
        self.verb == Verb::Acquire
    }

    /// Returns whether it campaigns again.
    pub(crate) fn stands_again(&self) -> bool {
        self.event == Event::EndSecondTerm
    }

    /// Returns whether the run is a job of an interactive shell.
    pub(crate) fn is_job(&self) -> bool {
        self.event == Event::Suspend
    }

    /// Returns whether others may take the lock as soon as the event has happened.
    pub(crate) fn frees_the_lock(&self) -> bool {
        matches!(self.event, Event::Remove | Event::Delete)
    }

    /// Returns whether the lock may stay held for ever under this fault. That is so for a hold of a script whose
    /// processes the keeper cannot see or may not signal, and for a stopped job whose keeper may signal neither the
    /// command nor the front.
    pub(crate) fn may_keep(&self, fault: Fault) -> bool {
        let Fault::Lasting(class, _) = fault else { return false };
        match class {
            Class::Signals => self.is_for_script() || self.is_job(),
            Class::Proc | Class::Descriptors | Class::Reading => self.is_for_script(),
            _ => false,
        }
    }

    /// Returns how long after the script's end a lock counts as held for ever: a lease, and the time that a release may
    /// take.
    pub(crate) fn kept_after(&self) -> Duration {
        Duration::from_secs(if self.on_redis { 14 } else { 4 })
    }

    /// Returns how long after the end of front and keeper the next run may have to wait.
    pub(crate) fn next_within(&self) -> Duration {
        // The rest of a lease, the addition of the service, and a margin for a busy machine.
        Duration::from_secs(if self.on_redis { 4 } else { 0 }) + Duration::from_secs(4)
    }
}
