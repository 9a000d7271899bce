//! How dlock was started.

use super::signals::{Signal, SignalInfo};
use super::sys::SignalSet;
use super::terminal::Terminal;

/// The surroundings that dlock was started in, and what it changed of them for itself.
#[derive(Debug)]
pub struct Start {
    /// The front's pid.
    pub front_pid: i32,
    /// The parent's pid at the start; `None` if it is outside of this PID namespace.
    pub parent: Option<i32>,
    /// The process group that dlock was started in; 0 if it is outside of this PID namespace.
    pub group: i32,
    /// Whether dlock leads its session. The kernel then sends a hang-up to dlock alone.
    pub leads_session: bool,
    /// The controlling terminal, if there is one.
    pub terminal: Option<Terminal>,
    /// The signal mask that dlock was started with.
    pub mask: SignalSet,
    /// Signals that dlock was started with ignored and does not ignore itself; the command ignores them again.
    pub restore_ignored: Vec<Signal>,
}

impl Start {
    /// Returns the group for the command: that of the job on a terminal, otherwise a new one (0). `None` if the job's
    /// group has no number here: the keeper then stays in it, and the command inherits it.
    pub fn command_group(&self) -> Option<i32> {
        match (&self.terminal, self.group) {
            (None, _) => Some(0),
            (Some(_), 0) => None,
            (Some(_), group) => Some(group),
        }
    }

    /// Returns whether the kernel sent this signal to the whole group of the job on the terminal, and not to dlock
    /// alone.
    pub fn reaches_the_group(&self, info: SignalInfo) -> bool {
        let by_the_terminal = match info.signal {
            Signal::INT | Signal::QUIT | Signal::WINCH | Signal::CONT => true,
            Signal::HUP => !self.leads_session,
            signal => signal.is_terminal_stop(),
        };
        info.from_kernel && self.terminal.is_some() && by_the_terminal
    }
}
