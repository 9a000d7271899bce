//! Exit statuses: the one table, and the one place that finds the status of an error.

use std::fmt;

use super::unreached;
use crate::lock::{Error, ErrorKind};
use crate::output::Message;
use crate::supervise::exit_status::ExitStatus;

/// The exit statuses of dlock's own failures.
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
    /// `--max-run` stopped the command.
    MaxRun = 124,
    /// The command cannot be executed.
    CannotExecute = 126,
    /// The command was not found.
    NotFound = 127,
}

impl ExitCode {
    /// Returns the number.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns an error with this exit status.
    pub fn error(self, reason: impl fmt::Display) -> anyhow::Error {
        anyhow::Error::msg(reason.to_string()).context(self)
    }
}

impl From<ExitCode> for ExitStatus {
    fn from(code: ExitCode) -> Self {
        Self::Exited(code.number())
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

/// An exit status is a context of an error, without words of its own.
impl fmt::Display for ExitCode {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

/// The advice that follows the sentence: a context of an error, without words of its own.
#[derive(Debug)]
struct Hint(String);

impl fmt::Display for Hint {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

/// Adds advice to an error.
pub trait Hinted {
    /// Returns the same error with this advice.
    #[must_use]
    fn hint(self, text: impl Into<String>) -> Self;
}

impl Hinted for anyhow::Error {
    fn hint(self, text: impl Into<String>) -> Self {
        self.context(Hint(text.into()))
    }
}

/// An error as dlock reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The exit status.
    pub code: ExitCode,
    /// The message.
    pub message: Box<Message>,
}

/// Finds the exit status and the advice among the contexts of an error. The words of each context precede those of its cause. An
/// error without a status is a usage error: of the command line, a variable or a file.
impl From<&anyhow::Error> for Failure {
    fn from(error: &anyhow::Error) -> Self {
        let (code, mut message) = if let Some(cause) = error.downcast_ref::<Error>() {
            (ExitCode::from(cause.kind), unreached::message(cause, None, false))
        } else {
            let parts: Vec<String> =
                error.chain().map(ToString::to_string).filter(|part| !part.is_empty()).collect();
            let code = error.downcast_ref().copied().unwrap_or(ExitCode::Usage);
            (code, Message::failed(parts.join(": ")))
        };
        if let (Message::Failed { hint, .. }, Some(Hint(text))) = (&mut message, error.downcast_ref()) {
            *hint = Some(text.clone());
        }
        Self { code, message: Box::new(message) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.message.fmt(f)
    }
}
