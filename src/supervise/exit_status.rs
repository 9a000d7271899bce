//! How a process ended.

use super::signals::Signal;
use super::sys;

/// How a command ended, or how dlock itself is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitStatus {
    /// It exits with this status.
    Exited(u8),
    /// It dies of this signal.
    Signaled(Signal),
}

impl ExitStatus {
    /// Ends this process in the same way. It repeats a death by a signal, so that a shell sees the same. If the signal
    /// cannot end this process (process 1 of a container), the exit status is 128 plus its number.
    pub fn end_process(self) -> ! {
        match self {
            Self::Exited(status) => sys::exit_now(status),
            Self::Signaled(signal) => {
                sys::die_of(signal);
                sys::exit_now(self.in_shell())
            }
        }
    }

    /// Returns the status that a shell shows.
    pub fn in_shell(self) -> u8 {
        match self {
            Self::Exited(status) => status,
            Self::Signaled(signal) => u8::try_from(128 + signal.number()).unwrap_or(255),
        }
    }
}
