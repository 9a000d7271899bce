//! One fault at one call of one process, in a form that can be repeated.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Instant;

use rustix::process::Signal;

use crate::call::{Call, Class, Errno};
use crate::enumeration::process;
use crate::tracer::{Followed, Injection, Role};

/// The kind of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// SIGKILL.
    Kill,
    /// SIGSTOP. A front is continued when all other processes have ended.
    Stop,
    /// SIGSTOP, and SIGCONT long before the lease expires.
    Pause,
    /// The call, in one thread, takes this many tenths of a TTL.
    Delay(u32),
    /// The call fails.
    Once(Errno),
    /// The call fails, and all later calls of that class in the process fail too.
    Lasting(Class, Errno),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill => f.write_str("KILL"),
            Self::Stop => f.write_str("STOP"),
            Self::Pause => f.write_str("PAUSE"),
            Self::Delay(tenths) => write!(f, "{}.{}ttl", tenths / 10, tenths % 10),
            Self::Once(errno) => f.write_str(errno.name),
            Self::Lasting(class, errno) => write!(f, "{}={}", class.name(), errno.name),
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let tenths = |length: &str| length.replacen('.', "", 1).parse().ok();
        if let Some(tenths) = text.strip_suffix("ttl").and_then(tenths) {
            return Ok(Self::Delay(tenths));
        }
        match (text, text.split_once('=')) {
            ("KILL", _) => Ok(Self::Kill),
            ("STOP", _) => Ok(Self::Stop),
            ("PAUSE", _) => Ok(Self::Pause),
            (_, Some((class, errno))) => Class::named(class)
                .zip(Errno::named(errno))
                .map(|(class, errno)| Self::Lasting(class, errno))
                .ok_or_else(|| format!("no such lasting fault: {text}")),
            (errno, None) => {
                Errno::named(errno).map(Self::Once).ok_or_else(|| format!("no such fault: {text}"))
            }
        }
    }
}

/// `SHAPE/PROCESS/N:CALL/FAULT`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Point {
    pub(crate) shape: String,
    pub(crate) role: Role,
    /// The number of the call in its process, from 1.
    pub(crate) number: usize,
    /// The name of the call in the run that was counted.
    pub(crate) call: String,
    pub(crate) fault: Fault,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shape, role, number, call, fault } = self;
        write!(f, "{shape}/{role}/{number}:{call}/{fault}")
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("not SHAPE/PROCESS/N:CALL/FAULT: {text}");
        let [shape, role, at, fault] = text.split('/').collect::<Vec<_>>().try_into().map_err(|_| wrong())?;
        let (number, call) = at.split_once(':').ok_or_else(wrong)?;
        Ok(Self {
            shape: shape.to_owned(),
            role: Role::named(role).ok_or_else(wrong)?,
            number: number.parse().map_err(|_| wrong())?,
            call: call.to_owned(),
            fault: fault.parse()?,
        })
    }
}

/// The faults that fit the calls of one run.
#[derive(Default)]
pub(crate) struct Census {
    pub(crate) points: Vec<Point>,
    last: Option<(Role, &'static str)>,
    /// The number of the last noted call of each process.
    noted: BTreeMap<i32, usize>,
}

impl Census {
    /// Notes the faults for a call of a run of that shape.
    pub(crate) fn note(&mut self, shape: &str, process: &Followed, call: &Call) {
        if self.noted.insert(process.pid, process.calls) == Some(process.calls) {
            return;
        }
        let this = Some((process.role, call.name));
        let mut faults = Vec::new();
        // Of a series of settings, only the first counts.
        if !(call.is_setting() && self.last == this) {
            // The call returns around the deadline, or after the guards have acted.
            let tenths = if process.calls.is_multiple_of(2) { 9 } else { 13 };
            faults.extend([Fault::Kill, Fault::Stop, Fault::Pause, Fault::Delay(tenths)]);
        }
        self.last = this;
        faults.extend(call.errors().into_iter().map(Fault::Once));
        for class in call.classes() {
            faults.extend(class.errors().iter().map(|errno| Fault::Lasting(class, *errno)));
        }
        self.points.extend(faults.into_iter().map(|fault| Point {
            shape: shape.to_owned(),
            role: process.role,
            number: process.calls,
            call: call.name.to_owned(),
            fault,
        }));
    }
}

/// The circumstances in which the fault struck.
#[derive(Clone, Debug)]
pub(crate) struct Hit {
    pub(crate) at: Instant,
    pub(crate) pid: i32,
    /// The first call that it struck.
    pub(crate) call: String,
    /// The state of the executed command, if there was one.
    pub(crate) command: Option<char>,
    /// Whether standard error may lack lines.
    pub(crate) errors_lost: bool,
}

/// Injects the fault.
pub(crate) struct Enemy<'a> {
    point: &'a Point,
    pub(crate) hit: Option<Hit>,
}

impl<'a> Enemy<'a> {
    pub(crate) fn new(point: &'a Point) -> Self {
        Self { point, hit: None }
    }

    /// Returns whether it may still strike a process of that role.
    pub(crate) fn is_after(&self, role: Role) -> bool {
        role == self.point.role && (self.hit.is_none() || matches!(self.point.fault, Fault::Lasting(..)))
    }

    /// Returns the injection for a call, while the executed command, if there is one, is in the state `command`.
    pub(crate) fn at(&mut self, process: &Followed, call: &Call, command: Option<i32>) -> Injection {
        let point = self.point;
        if process.role != point.role || process.calls < point.number {
            return Injection::Nothing;
        }
        let lasts = matches!(point.fault, Fault::Lasting(..));
        if self.hit.as_ref().is_some_and(|hit| !lasts || hit.pid != process.pid) {
            return Injection::Nothing;
        }
        let injection = match point.fault {
            Fault::Kill => Injection::Signal(Signal::KILL),
            Fault::Stop | Fault::Pause => Injection::Signal(Signal::STOP),
            Fault::Delay(_) => Injection::Hold,
            Fault::Once(errno) if call.name == point.call && call.errors().contains(&errno) => {
                fail(call, errno)
            }
            Fault::Lasting(class, errno) if call.classes().contains(&class) => fail(call, errno),
            // The last calls of two runs differ.
            Fault::Once(_) | Fault::Lasting(..) => return Injection::Nothing,
        };
        let hit = self.hit.get_or_insert_with(|| Hit {
            at: Instant::now(),
            pid: process.pid,
            call: call.describe(),
            command: command.map(|pid| process::look(pid).map_or('X', |one| one.state)),
            errors_lost: false,
        });
        hit.errors_lost |= call.writes_errors();
        injection
    }
}

fn fail(call: &Call, errno: Errno) -> Injection {
    if call.acts() { Injection::FailAfter(errno.number) } else { Injection::Fail(errno.number) }
}
