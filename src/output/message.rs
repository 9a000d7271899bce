//! Every sentence that dlock says to people.
//!
//! A sentence says what failed, why, and what to do where there is something to do. It fits one line, starts
//! lower-case and has no full stop, since `dlock: ` stands before it.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::{Party, ServicePlace, sanitise};
use crate::lock::LockName;

/// How much a message matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// A failure. Said always.
    Error,
    /// The lock was not acquired. Hidden by `--quiet`, and without `-v` where `-E 0` makes it no failure.
    Busy,
    /// Something that went wrong and that dlock goes on after. Said always.
    Warning,
    /// How it goes. Hidden by `--quiet`.
    Info,
    /// Said only with `--verbose`.
    Verbose,
}

/// One sentence, with what a program may want to know of it; the variant's name in kebab-case is the `event`
/// of `--log-format json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[expect(missing_docs, reason = "each variant's sentence in `Display` is its documentation")]
pub enum Message {
    Failed {
        #[serde(skip)]
        reason: String,
        hint: Option<String>,
    },
    Warned {
        #[serde(skip)]
        reason: String,
    },
    Waiting {
        lock: String,
        holder: Option<Party>,
        ahead: Option<u32>,
    },
    NotReached {
        lock: String,
        backend: &'static str,
        address: String,
        reason: Option<String>,
    },
    Rejoined {
        lock: String,
        reason: String,
    },
    Acquired {
        lock: String,
        #[serde(rename = "waited_ms", serialize_with = "milliseconds")]
        waited: Duration,
        token: String,
    },
    ShorterTtl {
        lock: String,
        #[serde(rename = "asked_ms", serialize_with = "milliseconds")]
        asked: Duration,
        #[serde(rename = "granted_ms", serialize_with = "milliseconds")]
        granted: Duration,
        backend: &'static str,
    },
    Started {
        lock: String,
        pid: i32,
    },
    Finished {
        lock: String,
        #[serde(rename = "held_ms", serialize_with = "milliseconds")]
        held: Duration,
        /// How the command ended.
        #[serde(skip)]
        outcome: String,
        released: bool,
    },
    Busy {
        lock: String,
        holder: Option<Party>,
    },
    WaitRanOut {
        lock: String,
        #[serde(rename = "waited_ms", serialize_with = "milliseconds")]
        waited: Duration,
        holder: Option<Party>,
    },
    Superseded {
        lock: String,
        by: Party,
    },
    PlaceLost {
        lock: String,
        reason: String,
    },
    WouldDeadlock {
        lock: String,
        reason: String,
    },
    StandsAgain {
        lock: String,
        #[serde(rename = "held_ms", serialize_with = "milliseconds_or_null")]
        held: Option<Duration>,
        #[serde(rename = "pause_ms", serialize_with = "milliseconds")]
        pause: Duration,
    },
    Lost {
        lock: String,
        reason: String,
        command_ran: bool,
    },
    Broken {
        lock: String,
        by: Party,
        command_ran: bool,
    },
    Replaced {
        lock: String,
        by: Party,
    },
    HoldCutShort {
        lock: String,
        /// Who broke the claim, if anybody did.
        by: Option<Party>,
        /// Why the lock was lost, if it was.
        reason: Option<String>,
    },
    Doubtful {
        lock: String,
        reason: String,
        #[serde(rename = "left_ms", serialize_with = "milliseconds")]
        left: Duration,
        #[serde(skip)]
        command_ended: bool,
    },
    Risk {
        #[serde(skip)]
        what: String,
        remedy: Option<String>,
    },
    MaxRun {
        lock: String,
        #[serde(rename = "limit_ms", serialize_with = "milliseconds")]
        limit: Duration,
    },
    ReleaseFailed {
        lock: String,
        reason: String,
        #[serde(rename = "ends_within_ms", serialize_with = "milliseconds_or_null")]
        ends_within: Option<Duration>,
    },
    LeaveFailed {
        lock: String,
        reason: String,
        #[serde(rename = "ends_within_ms", serialize_with = "milliseconds_or_null")]
        ends_within: Option<Duration>,
    },
    WithdrawalFailed {
        lock: String,
        reason: String,
        #[serde(rename = "ends_within_ms", serialize_with = "milliseconds_or_null")]
        ends_within: Option<Duration>,
    },
    CommandNotFound {
        command: String,
    },
    CannotExecute {
        command: String,
        reason: String,
    },
    CannotEnd {
        /// None if it cannot be told what is left.
        pids: Option<Vec<u32>>,
        /// How many beside those.
        more: usize,
        lease_lost: bool,
        /// Root lacks the capability to signal them.
        #[serde(skip)]
        lacks_kill: bool,
    },
    KeeperDied {
        lock: String,
        #[serde(skip)]
        surely_ran: bool,
    },
    KeeperStopped {
        lock: String,
        #[serde(skip)]
        surely_ran: bool,
    },
    TreeHidden {
        reason: String,
    },
    Skipped {
        lock: String,
        #[serde(rename = "ago_ms", serialize_with = "milliseconds")]
        ago: Duration,
        #[serde(rename = "once_per_ms", serialize_with = "milliseconds")]
        once_per: Duration,
    },
    Nested {
        lock: String,
        claim: String,
    },
    KeptByNested {
        lock: String,
    },
    LinesDropped {
        count: u64,
    },
    NotWritten {
        what: &'static str,
        path: String,
        reason: String,
    },
    PathAsName {
        lock: String,
        directory: String,
        file: String,
    },
    NoLocks {
        prefix: String,
        #[serde(skip)]
        service: ServicePlace,
    },
    /// Another message that names the service as well; to programs it is that message.
    #[serde(untagged)]
    At(Box<Located>),
}

/// A message and the service that it is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Located {
    /// The service.
    pub service: ServicePlace,
    /// What is said.
    pub message: Message,
}

impl Serialize for Located {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.message.serialize(to)
    }
}

impl Message {
    /// A failure without a variant of its own.
    pub fn failed(reason: impl fmt::Display) -> Self {
        Self::Failed { reason: reason.to_string(), hint: None }
    }

    /// The message, naming `service` where its sentence has room for that.
    #[must_use]
    pub fn at(self, service: ServicePlace) -> Self {
        match self {
            Self::Waiting { .. } | Self::Acquired { .. } | Self::Busy { .. } | Self::WaitRanOut { .. } => {
                Self::At(Box::new(Located { service, message: self }))
            }
            other => other,
        }
    }

    /// How much it matters.
    pub fn level(&self) -> Level {
        match self {
            Self::At(located) => located.message.level(),
            Self::Failed { .. }
            | Self::WouldDeadlock { .. }
            | Self::Lost { .. }
            | Self::Broken { .. }
            | Self::Replaced { .. }
            | Self::MaxRun { .. }
            | Self::CommandNotFound { .. }
            | Self::CannotExecute { .. }
            | Self::CannotEnd { .. }
            | Self::KeeperDied { .. }
            | Self::KeeperStopped { .. } => Level::Error,
            Self::Busy { .. }
            | Self::WaitRanOut { .. }
            | Self::Superseded { .. }
            | Self::PlaceLost { .. } => Level::Busy,
            Self::Warned { .. }
            | Self::NotReached { .. }
            | Self::Rejoined { .. }
            | Self::Risk { .. }
            | Self::HoldCutShort { .. }
            | Self::Doubtful { .. }
            | Self::ReleaseFailed { .. }
            | Self::LeaveFailed { .. }
            | Self::WithdrawalFailed { .. }
            | Self::LinesDropped { .. }
            | Self::NotWritten { .. } => Level::Warning,
            Self::Waiting { .. }
            | Self::ShorterTtl { .. }
            | Self::NoLocks { .. }
            | Self::PathAsName { .. }
            | Self::StandsAgain { .. }
            | Self::KeptByNested { .. } => Level::Info,
            Self::Acquired { .. }
            | Self::Started { .. }
            | Self::Finished { .. }
            | Self::TreeHidden { .. }
            | Self::Skipped { .. }
            | Self::Nested { .. } => Level::Verbose,
        }
    }

    /// What to try, behind the sentence.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Failed { hint, .. } => hint.as_deref(),
            Self::At(located) => located.message.hint(),
            _ => None,
        }
    }
}

/// `deploy`, `deploy and db`, `a, b and c`: several names in a sentence, sanitised.
pub fn names(names: &[LockName]) -> String {
    let mut names: Vec<String> = names.iter().map(|n| sanitise::text(n.as_str())).collect();
    match names.pop() {
        None => String::new(),
        Some(last) if names.is_empty() => last,
        Some(last) => format!("{} and {last}", names.join(", ")),
    }
}

/// Whole milliseconds of `length`, as many as fit.
pub(crate) fn whole_milliseconds(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

fn milliseconds<S: Serializer>(length: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(whole_milliseconds(*length))
}

#[expect(clippy::ref_option, reason = "the signature that serde asks for")]
pub(super) fn milliseconds_or_null<S: Serializer>(
    length: &Option<Duration>,
    to: S,
) -> Result<S::Ok, S::Error> {
    length.map(whole_milliseconds).serialize(to)
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
