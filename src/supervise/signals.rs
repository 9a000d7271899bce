//! Signals as values.

use std::fmt;

/// A signal number that exists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Signal(i32);

/// A signal that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalInfo {
    /// The signal.
    pub signal: Signal,
    /// Whether the kernel sent it, as for a terminal's foreground group, and not a process.
    pub from_kernel: bool,
    /// The process that sent it, if one did and it is visible here.
    pub sender: Option<i32>,
    /// Whether this process caused it, by a write to a closed pipe or by
    /// [`wake_on_message`](super::sys::wake_on_message).
    pub own: bool,
}

const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

impl Signal {
    /// SIGHUP.
    pub const HUP: Self = Self(libc::SIGHUP);
    /// SIGINT.
    pub const INT: Self = Self(libc::SIGINT);
    /// SIGQUIT.
    pub const QUIT: Self = Self(libc::SIGQUIT);
    /// SIGKILL.
    pub const KILL: Self = Self(libc::SIGKILL);
    /// SIGPIPE.
    pub const PIPE: Self = Self(libc::SIGPIPE);
    /// SIGTERM.
    pub const TERM: Self = Self(libc::SIGTERM);
    /// SIGCHLD.
    pub const CHLD: Self = Self(libc::SIGCHLD);
    /// SIGCONT.
    pub const CONT: Self = Self(libc::SIGCONT);
    /// SIGWINCH.
    pub const WINCH: Self = Self(libc::SIGWINCH);
    /// SIGSTOP.
    pub const STOP: Self = Self(libc::SIGSTOP);
    /// SIGTSTP.
    pub const TSTP: Self = Self(libc::SIGTSTP);
    /// SIGTTIN.
    pub const TTIN: Self = Self(libc::SIGTTIN);
    /// SIGTTOU.
    pub const TTOU: Self = Self(libc::SIGTTOU);

    /// The highest signal number of Linux.
    const LAST: i32 = 64;
    /// The first real-time signal that the C library leaves to programs.
    const FIRST_RT: i32 = 34;

    /// Returns the signal of this number, if there is one.
    pub fn new(number: i32) -> Option<Self> {
        (1..=Self::LAST).contains(&number).then_some(Self(number))
    }

    /// Returns the signal that `text` names, as `kill` and `timeout` accept it: `TERM`, `SIGTERM` or `15`, in any case,
    /// and `RTMIN+n` or `RTMAX-n` for a real-time signal.
    pub fn named(text: &str) -> Option<Self> {
        if let Ok(number) = text.parse() {
            return Self::new(number);
        }
        let text = text.to_ascii_uppercase();
        let name = text.strip_prefix("SIG").unwrap_or(&text);
        if let Some(at) = NAMES.iter().position(|known| *known == name) {
            return i32::try_from(at + 1).ok().and_then(Self::new);
        }
        let beyond = |rest: &str, sign: char| match rest {
            "" => Some(0),
            _ => rest
                .strip_prefix(sign)?
                .parse()
                .ok()
                .filter(|n| (0..=Self::LAST - Self::FIRST_RT).contains(n)),
        };
        match (name.strip_prefix("RTMIN"), name.strip_prefix("RTMAX")) {
            (Some(rest), _) => Some(Self(Self::FIRST_RT + beyond(rest, '+')?)),
            (_, Some(rest)) => Some(Self(Self::LAST - beyond(rest, '-')?)),
            _ => None,
        }
    }

    /// Returns its number.
    pub const fn number(self) -> i32 {
        self.0
    }

    /// Returns whether it asks a program to end: TERM, INT, HUP or QUIT.
    pub fn is_ending(self) -> bool {
        [Self::TERM, Self::INT, Self::HUP, Self::QUIT].contains(&self)
    }

    /// Returns whether it is one of the terminal's stops: TSTP, TTIN or TTOU.
    pub fn is_terminal_stop(self) -> bool {
        [Self::TSTP, Self::TTIN, Self::TTOU].contains(&self)
    }

    /// Returns every signal that a process may read from a descriptor instead of a handler. A blocked SIGSEGV and its like
    /// still kill the process that caused them, since the kernel forces them. glibc reserves 32 and 33 for its threads.
    pub fn takeable() -> impl Iterator<Item = Self> {
        (1..=Self::LAST).filter(|number| ![libc::SIGKILL, libc::SIGSTOP, 32, 33].contains(number)).map(Self)
    }
}

impl Default for Signal {
    /// Returns SIGTERM, as kill(1) sends it.
    fn default() -> Self {
        Self::TERM
    }
}

impl fmt::Display for Signal {
    /// Writes `SIGTERM`, or `SIGRTMIN+n` for a real-time signal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = usize::try_from(self.0 - 1).unwrap_or(usize::MAX);
        match NAMES.get(at) {
            Some(name) => write!(f, "SIG{name}"),
            None => write!(f, "SIGRTMIN+{}", self.0 - Self::FIRST_RT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_shells() {
        let names = [(15, "SIGTERM"), (9, "SIGKILL"), (31, "SIGSYS"), (10, "SIGUSR1"), (34, "SIGRTMIN+0")];
        for (number, name) in names {
            assert_eq!(Signal::new(number).expect("exists").to_string(), name);
        }
        assert_eq!(Signal::new(0), None);
        assert_eq!(Signal::new(65), None);
    }

    #[test]
    fn names_are_taken_as_kill_takes_them() {
        for (text, number) in [
            ("TERM", 15),
            ("SIGTERM", 15),
            ("sigint", 2),
            ("usr1", 10),
            ("9", 9),
            ("SIGRTMIN", 34),
            ("rtmin+2", 36),
            ("RTMAX", 64),
            ("SIGRTMAX-30", 34),
            ("SIGRTMIN+0", 34),
        ] {
            assert_eq!(Signal::named(text).map(Signal::number), Some(number), "{text}");
        }
        for text in
            ["", "0", "65", "-1", "SIG", "EXIT", "TERMX", "SIGSIGTERM", "RTMIN+31", "RTMIN-1", "RTMAX+1"]
        {
            assert_eq!(Signal::named(text), None, "{text}");
        }
    }
}
