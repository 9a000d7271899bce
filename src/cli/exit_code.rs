//! Exit statuses: the one table, and failures that carry one.

use std::fmt;

use super::unreached;
use crate::lock::{Error, ErrorKind};
use crate::output::Message;

/// What dlock's own failures exit with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ExitCode {
    /// Bad option, value, name or configuration; a kind of lock that does not mix.
    Usage = 64,
    /// The lock service could not be used.
    Unavailable = 69,
    /// A defect in dlock.
    Defect = 70,
    /// The system refused a process, memory or a descriptor.
    System = 71,
    /// A lock, report or metrics file cannot be made or written.
    CannotCreate = 73,
    /// Not acquired.
    Busy = 75,
    /// The lock was lost or broken while the command ran.
    Lost = 76,
    /// The service refused these credentials or this access.
    Denied = 77,
    /// `--max-run` ended the command.
    MaxRun = 124,
    /// The command cannot be executed.
    CannotExecute = 126,
    /// The command was not found.
    NotFound = 127,
}

impl ExitCode {
    /// All of them, by number.
    pub const ALL: [Self; 11] = [
        Self::Usage,
        Self::Unavailable,
        Self::Defect,
        Self::System,
        Self::CannotCreate,
        Self::Busy,
        Self::Lost,
        Self::Denied,
        Self::MaxRun,
        Self::CannotExecute,
        Self::NotFound,
    ];

    /// The number.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The manual's sentence.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Usage => {
                "Bad option, value, name or configuration; or a kind of lock that does not mix with what others \
                 hold or wait for."
            }
            Self::Unavailable => {
                "The lock service could not be used: it was not reached before the wait ran out, or its reply \
                 made no sense. A request whose answer was lost may hold the lock for up to its ttl."
            }
            Self::Defect => "A defect in dlock.",
            Self::System => "The system refused a process, memory or a descriptor.",
            Self::CannotCreate => {
                "A lock file or directory cannot be made or written; or the report or metrics file cannot be \
                 written, which is checked before the lock is asked for; or standard output of a command that shows \
                 something cannot be written."
            }
            Self::Busy => {
                "The lock was not acquired: it was busy, the wait ran out, a newer waiter came (--supersede), or \
                 waiting would never have ended. --busy-exit-code changes it."
            }
            Self::Lost => {
                "The lock was lost or broken, or a newer run took its place (--replace), while the command ran; the \
                 command was ended. For break, release and renew: there is no such claim. For proclaim: the claim \
                 does not lead."
            }
            Self::Denied => "The service refused these credentials or this access.",
            Self::MaxRun => "--max-run stopped the command.",
            Self::CannotExecute => "The command cannot be executed; the lock was released.",
            Self::NotFound => "The command was not found; the lock was released.",
        }
    }
}

impl From<ErrorKind> for ExitCode {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Invalid | ErrorKind::Mismatch | ErrorKind::Unsupported => Self::Usage,
            ErrorKind::Unavailable | ErrorKind::Full | ErrorKind::Corrupt => Self::Unavailable,
            ErrorKind::Internal => Self::Defect,
            ErrorKind::System => Self::System,
            ErrorKind::Unwritable => Self::CannotCreate,
            ErrorKind::Deadlock => Self::Busy,
            ErrorKind::Denied => Self::Denied,
        }
    }
}

/// Why dlock ends without success, printed once by [`super::main`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The exit status; a number, since `--busy-exit-code` can choose any.
    pub code: u8,
    /// What is said.
    pub message: Box<Message>,
}

impl Failure {
    /// A failure that is told with a sentence of its own.
    pub fn new(code: ExitCode, reason: impl fmt::Display) -> Self {
        Self::with(code, Message::failed(reason))
    }

    /// A failure that is told with `message`.
    pub fn with(code: ExitCode, message: Message) -> Self {
        Self { code: code.number(), message: Box::new(message) }
    }

    /// A usage error.
    pub fn usage(reason: impl fmt::Display) -> Self {
        Self::new(ExitCode::Usage, reason)
    }

    /// The same failure with what to try.
    #[must_use]
    pub fn hint(mut self, text: impl Into<String>) -> Self {
        if let Message::Failed { hint, .. } = self.message.as_mut() {
            *hint = Some(text.into());
        }
        self
    }
}

/// What to try: beside the sentence in an error, which [`Failure`] finds.
#[derive(Debug)]
struct Hint(String);

impl fmt::Display for Hint {
    /// It is no part of the sentence.
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

/// Adds what to try to an error.
pub trait Hinted {
    /// The same error with what to try.
    #[must_use]
    fn hint(self, text: impl Into<String>) -> Self;
}

impl Hinted for anyhow::Error {
    fn hint(self, text: impl Into<String>) -> Self {
        self.context(Hint(text.into()))
    }
}

/// What was said on the command line, in a variable or in a file cannot be used: a usage error. Each context stands before its cause.
impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        let parts: Vec<String> =
            error.chain().map(ToString::to_string).filter(|part| !part.is_empty()).collect();
        let failure = Self::usage(parts.join(": "));
        match error.downcast_ref::<Hint>() {
            Some(Hint(text)) => failure.hint(text),
            None => failure,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::with(error.kind.into(), unreached::message(&error, None, None))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.message.fmt(f)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_contract() {
        let numbers = ExitCode::ALL.map(ExitCode::number);
        assert_eq!(numbers, [64, 69, 70, 71, 73, 75, 76, 77, 124, 126, 127]);
        assert!(ExitCode::ALL.iter().all(|code| code.sentence().ends_with('.')));
    }

    #[test]
    fn kinds_of_errors_have_their_codes() {
        use ErrorKind as K;
        for (kind, code) in [
            (K::Unavailable, 69),
            (K::Denied, 77),
            (K::Invalid, 64),
            (K::Mismatch, 64),
            (K::Unsupported, 64),
            (K::Deadlock, 75),
            (K::Unwritable, 73),
            (K::System, 71),
            (K::Corrupt, 69),
            (K::Internal, 70),
        ] {
            let failure = Failure::from(Error::new(kind, "a\nb").during("file", "join the queue", None));
            assert_eq!(failure.code, code);
            assert_eq!(failure.to_string(), "cannot join the queue (file): a\\nb");
        }
    }
}
