//! How a process ended.

use super::signals::Signal;
use super::sys;

/// How a command ended, or how dlock itself is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitStatus {
    /// With this exit status.
    Exited(u8),
    /// By this signal.
    Signaled(Signal),
}

impl ExitStatus {
    /// Whether the command said that all went well.
    pub fn is_success(self) -> bool {
        self == Self::Exited(0)
    }

    /// Ends this process in the same way: a death by signal is repeated, so that a shell sees the same. Where
    /// the signal cannot end the process (process 1 of a container) the status is 128 and its number.
    pub fn end_process(self) -> ! {
        match self {
            Self::Exited(status) => sys::exit_now(status),
            Self::Signaled(signal) => {
                sys::die_of(signal);
                sys::exit_now(u8::try_from(128 + signal.number()).unwrap_or(255))
            }
        }
    }
}
