//! Every message of dlock.
//!
//! A message says what failed, why, and what to do, if there is something to do. It is one line, starts in lower case and has no
//! full stop, because `dlock: ` is printed before it.

use std::fmt;

use serde::Serialize;

use super::sentence::{agree, cannot_end, cut_short, ended, ends, fate, held_by};
use super::{Ms, Party, ServicePlace, sanitise};
use crate::lock::LockName;

/// How much a message matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// A failure. Always printed.
    Error,
    /// The lock was not acquired. Hidden by `--quiet`. With `-E 0` it is not a failure, and printed only with `-v`.
    Busy,
    /// A fault after which dlock continues. Always printed.
    Warning,
    /// Progress. Hidden by `--quiet`.
    Info,
    /// Printed only with `--verbose`.
    Verbose,
}

/// Makes [`Message`] from a table. Each row has a level, a variant with its fields, and the sentence that is made of them.
macro_rules! messages {
    ($($level:ident $variant:ident { $($(#[$meta:meta])* $field:ident: $type:ty),* $(,)? } => $sentence:expr;)*) => {
        /// A sentence and its data for programs. The variant's name in kebab case is the `event` of `--log-format json`.
        #[derive(Clone, PartialEq, Eq, Debug, Serialize)]
        #[serde(tag = "event", rename_all = "kebab-case")]
        #[expect(missing_docs, reason = "each variant's sentence is its documentation")]
        pub enum Message {
            $($variant { $($(#[$meta])* $field: $type),* },)*
        }

        impl Message {
            /// Returns how much the message matters.
            pub fn level(&self) -> Level {
                match self {
                    $(Self::$variant { .. } => Level::$level,)*
                }
            }
        }

        impl fmt::Display for Message {
            #[expect(unused_variables, reason = "some fields are for programs alone")]
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let sentence: String = match self {
                    $(Self::$variant { $($field),* } => $sentence,)*
                };
                f.write_str(&sentence)
            }
        }
    };
}

messages! {
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

    Info Waiting {
        lock: String,
        #[serde(skip)]
        service: ServicePlace,
        holder: Option<Party>,
        ahead: Option<u32>,
    } => {
        let place = ahead.filter(|n| *n > 1).map(|n| format!(", {n} ahead")).unwrap_or_default();
        format!("waiting for {lock} ({service}){}{place}", held_by(holder.as_ref()))
    };
    Warning NotReached { lock: String, backend: &'static str, address: String, reason: Option<String> } => {
        let reason = reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        format!("{backend} at {address} has not answered yet{reason}; still trying to get {lock}")
    };
    Warning Rejoined { lock: String, reason: String } =>
        format!("lost the place in the queue for {lock} ({reason}); rejoined at the end");
    Verbose Acquired {
        lock: String,
        #[serde(skip)]
        service: ServicePlace,
        waited_ms: Ms,
        token: String,
    } => format!("acquired {lock} ({service}) after {waited_ms}, token {token}");
    Info ShorterTtl { lock: String, asked_ms: Ms, granted_ms: Ms, backend: &'static str } =>
        format!("the TTL of {lock} is {granted_ms}, not {asked_ms}: a limit of {backend}");
    Busy Busy {
        lock: String,
        #[serde(skip)]
        service: ServicePlace,
        holder: Option<Party>,
    } => format!("{lock} {} busy ({service}){}", agree(lock, "is", "are"), held_by(holder.as_ref()));
    Busy WaitRanOut {
        lock: String,
        #[serde(skip)]
        service: ServicePlace,
        waited_ms: Ms,
        holder: Option<Party>,
    } => format!("gave up waiting for {lock} ({service}) after {waited_ms}{}", held_by(holder.as_ref()));
    Busy Superseded { lock: String, by: Party } => format!("left the queue for {lock}: superseded by {by}");
    Busy PlaceLost { lock: String, reason: String } => format!(
        "lost the place in the queue for {lock} ({reason}); with --supersede or --replace dlock does not rejoin, since \
         a newer run may have come"
    );
    Error WouldDeadlock { lock: String, reason: String } => format!("waiting for {lock} would never end: {reason}");
    Info StandsAgain { lock: String, held_ms: Option<Ms>, pause_ms: Ms } => {
        let ended = held_ms.map(|held| format!("leadership of {lock} ended after {held}; "));
        let later = if pause_ms.0.is_zero() { String::new() } else { format!(" in {pause_ms}") };
        format!("{}campaigning again for {lock}{later}", ended.unwrap_or_default())
    };
    Verbose Skipped { lock: String, ago_ms: Ms, once_per_ms: Ms } =>
        format!("skipped {lock}: a run that acquired it {ago_ms} ago succeeded (--once-per {once_per_ms})");
    Verbose Nested { lock: String, claim: String } => format!("running under the enclosing hold of {lock}, claim {claim}");
    Info KeptByNested { lock: String } => format!("{lock} {} locked until the nested runs have exited", agree(lock, "stays", "stay"));

    Verbose Started { lock: String, pid: i32 } => format!("started the command under {lock}, pid {pid}");
    Verbose Finished {
        lock: String,
        held_ms: Ms,
        #[serde(skip)]
        outcome: String,
    } => format!("the command {outcome} after {held_ms} under {lock}");
    Error Lost { lock: String, reason: String, command_ran: bool } => format!("lost {lock}: {reason}; {}", fate(*command_ran));
    Error Broken { lock: String, by: Party, command_ran: bool } =>
        format!("the claim on {lock} was broken by {by}; {}", fate(*command_ran));
    Error Replaced { lock: String, by: Party } => format!("replaced under {lock} by {by}; the command was stopped");
    Warning HoldCutShort {
        lock: String,
        /// The client that broke the claim, if one did.
        by: Option<Party>,
        /// Why the lock was lost, if it was.
        reason: Option<String>,
    } => cut_short(lock, by.as_ref(), reason.as_deref());
    Warning Doubtful {
        lock: String,
        reason: String,
        left_ms: Ms,
        #[serde(skip)]
        command_ended: bool,
    } => {
        let loss = if *command_ended { "the lock will be lost" } else { "the command will be stopped" };
        format!("cannot renew {lock}: {reason}; {loss} in {left_ms} unless a renewal succeeds")
    };
    Error MaxRun { lock: String, limit_ms: Ms } =>
        format!("the command held {lock} for {limit_ms} (--max-run) and was stopped");
    Warning ReleaseFailed { lock: String, reason: String, ends_within_ms: Option<Ms> } =>
        format!("cannot release {lock}: {reason}; it ends {}", ends(*ends_within_ms));
    Warning LeaveFailed { lock: String, reason: String, ends_within_ms: Option<Ms> } =>
        format!("cannot leave the queue for {lock}: {reason}; the place in it ends {}", ends(*ends_within_ms));
    Warning WithdrawalFailed { lock: String, reason: String, ends_within_ms: Option<Ms> } => format!(
        "cannot withdraw the request for {lock}: {reason}; if it was granted, it ends {}",
        ends(*ends_within_ms)
    );
    Error CommandNotFound { command: String } => match command.as_str() {
        "" => "the command is empty".to_owned(),
        _ => format!("cannot find the command {command}; run shell builtins and shell syntax with -c"),
    };
    Error CannotExecute { command: String, reason: String } => format!("cannot execute {command}: {reason}");
    Error CannotEnd {
        lock: String,
        /// `None` if dlock cannot find out which processes are left.
        pids: Option<Vec<u32>>,
        /// The number of further processes.
        more: usize,
        lease_lost: bool,
        /// Whether dlock runs as root without the capability to signal them.
        #[serde(skip)]
        lacks_kill: bool,
    } => cannot_end(lock, pids.as_deref(), *more, *lease_lost, *lacks_kill);
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

impl Message {
    /// Returns a failure that has no variant of its own.
    pub fn failed(reason: impl fmt::Display) -> Self {
        Self::Failed { reason: reason.to_string(), hint: None }
    }

    /// Returns the advice that follows the sentence.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Failed { hint, .. } => hint.as_deref(),
            _ => None,
        }
    }
}

/// Returns the sanitised names as a sentence lists them: `deploy`, `deploy and db`, `a, b and c`.
pub fn names(names: &[LockName]) -> String {
    let mut names: Vec<String> = names.iter().map(|n| sanitise::text(n.as_str())).collect();
    match names.pop() {
        None => String::new(),
        Some(last) if names.is_empty() => last,
        Some(last) => format!("{} and {last}", names.join(", ")),
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
