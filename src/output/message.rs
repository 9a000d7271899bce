//! Every sentence that dlock says to people.
//!
//! A sentence says what failed, why, and what to do where there is something to do. It fits one line, starts
//! lower-case and has no full stop, since `dlock: ` stands before it.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::sentence::{cannot_end, cut_short, ended, ends, fate, held_by};
use super::{Party, ServicePlace, sanitise};
use crate::lock::LockName;
use crate::lock::duration::short;

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

/// Makes [`Message`] of a table. A row has a level, a variant with its fields, and the sentence made of them; `$at` is the service in
/// parentheses where the message names one.
macro_rules! messages {
    ($at:ident; $($level:ident $variant:ident { $($(#[$meta:meta])* $field:ident: $type:ty),* $(,)? } => $sentence:expr;)*) => {
        /// One sentence, with what a program may want to know of it; the variant's name in kebab-case is the `event`
        /// of `--log-format json`.
        #[derive(Clone, PartialEq, Eq, Debug, Serialize)]
        #[serde(tag = "event", rename_all = "kebab-case")]
        #[expect(missing_docs, reason = "each variant's sentence is its documentation")]
        pub enum Message {
            $($variant { $($(#[$meta])* $field: $type),* },)*
            /// Another message that names the service as well; to programs it is that message.
            #[serde(untagged)]
            At(Box<Located>),
        }

        impl Message {
            /// How much it matters.
            pub fn level(&self) -> Level {
                match self {
                    Self::At(located) => located.message.level(),
                    $(Self::$variant { .. } => Level::$level,)*
                }
            }

            #[expect(unused_variables, reason = "some fields are for programs alone")]
            fn sentence(&self, $at: &str) -> String {
                match self {
                    Self::At(located) => located.message.sentence(&format!(" ({})", located.service.name())),
                    $(Self::$variant { $($field),* } => $sentence,)*
                }
            }
        }
    };
}

messages! {
    at;

    Error Failed {
        #[serde(skip)]
        reason: String,
        hint: Option<String>,
    } => reason.clone();
    Warning Warned {
        #[serde(skip)]
        reason: String,
    } => reason.clone();
    Warning Risk {
        #[serde(skip)]
        what: String,
        remedy: Option<String>,
    } => remedy.as_ref().map_or_else(|| what.clone(), |remedy| format!("{what}; {remedy}"));
    Warning LinesDropped { count: u64 } => {
        let messages = if *count == 1 { "message" } else { "messages" };
        format!("{count} {messages} dropped: standard error was blocked")
    };
    Warning NotWritten { what: &'static str, path: String, reason: String } =>
        format!("cannot write the {what} to {path}: {reason}; exit status unchanged");
    Info PathAsName { lock: String, directory: String, file: String } => format!(
        "{lock} is taken as a name, not as that file; to lock the file: --endpoint {directory} --name {file}"
    );
    Info NoLocks {
        prefix: String,
        #[serde(skip)]
        service: ServicePlace,
    } => {
        let starting = if prefix.is_empty() { String::new() } else { format!(" whose name starts with {prefix}") };
        format!("no lock is held or waited for{starting} ({})", service.looked())
    };

    Info Waiting { lock: String, holder: Option<Party>, ahead: Option<u32> } => {
        let place = ahead.filter(|n| *n > 1).map(|n| format!(", {n} ahead")).unwrap_or_default();
        format!("waiting for {lock}{at}{}{place}", held_by(holder.as_ref()))
    };
    Warning NotReached { lock: String, backend: &'static str, address: String, reason: Option<String> } => {
        let reason = reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        format!("{backend} at {address} has not answered yet{reason}; still trying to get {lock}")
    };
    Warning Rejoined { lock: String, reason: String } =>
        format!("lost the place in the queue for {lock} ({reason}); rejoined at the end");
    Verbose Acquired {
        lock: String,
        #[serde(rename = "waited_ms", serialize_with = "milliseconds")]
        waited: Duration,
        token: String,
    } => format!("acquired {lock}{at} after {}, token {token}", short(*waited));
    Info ShorterTtl {
        lock: String,
        #[serde(rename = "asked_ms", serialize_with = "milliseconds")]
        asked: Duration,
        #[serde(rename = "granted_ms", serialize_with = "milliseconds")]
        granted: Duration,
        backend: &'static str,
    } => format!("the ttl of {lock} is {}, not {}: {backend} grants no more", short(*granted), short(*asked));
    Busy Busy { lock: String, holder: Option<Party> } => format!("{lock} is busy{at}{}", held_by(holder.as_ref()));
    Busy WaitRanOut {
        lock: String,
        #[serde(rename = "waited_ms", serialize_with = "milliseconds")]
        waited: Duration,
        holder: Option<Party>,
    } => format!("gave up waiting for {lock}{at} after {}{}", short(*waited), held_by(holder.as_ref()));
    Busy Superseded { lock: String, by: Party } => format!("left the queue for {lock}: superseded by {by}");
    Busy PlaceLost { lock: String, reason: String } => format!(
        "lost the place in the queue for {lock} ({reason}); with --supersede or --replace dlock does not rejoin, since \
         a newer run may have come"
    );
    Error WouldDeadlock { lock: String, reason: String } => format!("waiting for {lock} would never end: {reason}");
    Info StandsAgain {
        lock: String,
        #[serde(rename = "held_ms", serialize_with = "milliseconds_or_null")]
        held: Option<Duration>,
        #[serde(rename = "pause_ms", serialize_with = "milliseconds")]
        pause: Duration,
    } => {
        let ended = held.map(|held| format!("leadership of {lock} ended after {}; ", short(held)));
        let later = if pause.is_zero() { String::new() } else { format!(" in {}", short(*pause)) };
        format!("{}campaigning again for {lock}{later}", ended.unwrap_or_default())
    };
    Verbose Skipped {
        lock: String,
        #[serde(rename = "ago_ms", serialize_with = "milliseconds")]
        ago: Duration,
        #[serde(rename = "once_per_ms", serialize_with = "milliseconds")]
        once_per: Duration,
    } => format!(
        "skipped {lock}: a run that acquired it {} ago succeeded (--once-per {})",
        short(*ago),
        short(*once_per)
    );
    Verbose Nested { lock: String, claim: String } => format!("running under the enclosing hold of {lock}, claim {claim}");
    Info KeptByNested { lock: String } => format!("{lock} stays locked until the runs nested in it have exited");

    Verbose Started { lock: String, pid: i32 } => format!("started the command under {lock}, pid {pid}");
    Verbose Finished {
        lock: String,
        #[serde(rename = "held_ms", serialize_with = "milliseconds")]
        held: Duration,
        /// How the command ended.
        #[serde(skip)]
        outcome: String,
        released: bool,
    } => {
        let released = if *released { "; the lock was released" } else { "" };
        format!("the command {outcome} after {} under {lock}{released}", short(*held))
    };
    Error Lost { lock: String, reason: String, command_ran: bool } => format!("lost {lock}: {reason}; {}", fate(*command_ran));
    Error Broken { lock: String, by: Party, command_ran: bool } =>
        format!("the claim on {lock} was broken by {by}; {}", fate(*command_ran));
    Error Replaced { lock: String, by: Party } => format!("replaced under {lock} by {by}; the command was stopped");
    Warning HoldCutShort {
        lock: String,
        /// Who broke the claim, if anybody did.
        by: Option<Party>,
        /// Why the lock was lost, if it was.
        reason: Option<String>,
    } => cut_short(lock, by.as_ref(), reason.as_deref());
    Warning Doubtful {
        lock: String,
        reason: String,
        #[serde(rename = "left_ms", serialize_with = "milliseconds")]
        left: Duration,
        #[serde(skip)]
        command_ended: bool,
    } => {
        let loss = if *command_ended { "the lock will be lost" } else { "the command will be stopped" };
        format!("cannot renew {lock}: {reason}; {loss} in {} unless a renewal succeeds", short(*left))
    };
    Error MaxRun {
        lock: String,
        #[serde(rename = "limit_ms", serialize_with = "milliseconds")]
        limit: Duration,
    } => format!("the command held {lock} for {} (--max-run) and was stopped", short(*limit));
    Warning ReleaseFailed {
        lock: String,
        reason: String,
        #[serde(rename = "ends_within_ms", serialize_with = "milliseconds_or_null")]
        ends_within: Option<Duration>,
    } => format!("cannot release {lock}: {reason}; it ends {}", ends(*ends_within));
    Warning LeaveFailed {
        lock: String,
        reason: String,
        #[serde(rename = "ends_within_ms", serialize_with = "milliseconds_or_null")]
        ends_within: Option<Duration>,
    } => format!("cannot leave the queue for {lock}: {reason}; the place in it ends {}", ends(*ends_within));
    Warning WithdrawalFailed {
        lock: String,
        reason: String,
        #[serde(rename = "ends_within_ms", serialize_with = "milliseconds_or_null")]
        ends_within: Option<Duration>,
    } => format!(
        "cannot withdraw the request for {lock}: {reason}; if it was granted, it ends {}",
        ends(*ends_within)
    );
    Error CommandNotFound { command: String } => match command.as_str() {
        "" => "the command is empty".to_owned(),
        _ => format!("cannot find the command {command}; what only a shell knows runs with -c"),
    };
    Error CannotExecute { command: String, reason: String } => format!("cannot execute {command}: {reason}");
    Error CannotEnd {
        /// None if it cannot be told what is left.
        pids: Option<Vec<u32>>,
        /// How many beside those.
        more: usize,
        lease_lost: bool,
        /// Root lacks the capability to signal them.
        #[serde(skip)]
        lacks_kill: bool,
    } => cannot_end(pids.as_deref(), *more, *lease_lost, *lacks_kill);
    Error KeeperDied {
        lock: String,
        #[serde(skip)]
        surely_ran: bool,
    } => format!("lost {lock}: the lease-keeper of dlock died; {}", ended(*surely_ran));
    Error KeeperStopped {
        lock: String,
        #[serde(skip)]
        surely_ran: bool,
    } => format!("lost {lock}: the lease-keeper of dlock stopped and the lease expired; {}", ended(*surely_ran));
    Verbose TreeHidden { reason: String } =>
        format!("only the command's process group can be killed, not all its descendants: {reason}");
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence(""))
    }
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
