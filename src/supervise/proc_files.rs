//! The files of one process in a /proc.

use std::str::FromStr;

/// One process that has not been reaped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Process {
    /// Its pid.
    pub pid: i32,
    /// Its parent's pid.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
    /// The letter of its state: `T` is stopped; `Z` is ended and not reaped, if it has no other thread.
    pub state: u8,
    /// The number of its threads. The first one counts even if it has ended before the others.
    pub threads: u32,
    /// The kernel's flags of its first thread.
    pub(super) flags: u32,
    /// When it started, in clock ticks since boot. With the pid this tells it from a later process of that number.
    pub born: u64,
}

impl Process {
    /// Returns whether `other` is the same process, seen at another time.
    pub(super) fn is(self, other: &Self) -> bool {
        self.pid == other.pid && self.born == other.born
    }

    /// Returns whether it is stopped.
    pub fn is_stopped(self) -> bool {
        self.state == b'T'
    }

    pub(super) fn is_zombie(self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    /// Returns whether it is exiting.
    pub(super) fn is_exiting(self) -> bool {
        self.flags & PF_EXITING != 0
    }

    pub(super) fn is_of_kernel(self) -> bool {
        self.flags & PF_KTHREAD != 0
    }

    /// Returns whether all its threads have ended. The state alone is that of the first one.
    pub(super) fn has_ended(self) -> bool {
        self.is_zombie() && self.threads <= 1
    }
}

pub(super) fn number<T: FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Flags of `include/linux/sched.h` in the kernel: the process is exiting, or is one of the kernel's own.
const PF_EXITING: u32 = 0x4;
const PF_KTHREAD: u32 = 0x20_0000;

/// Reads fields 3 to 6, 9, 20 and 22 of /proc/PID/stat.
pub(super) fn parse(pid: i32, text: &[u8]) -> Option<Process> {
    let mut fields = fields_from_state(text)?;
    let state = *fields.next()?.first()?;
    let (parent, group) = (number(fields.next()?)?, number(fields.next()?)?);
    let session = number(fields.next()?)?;
    let flags = number(fields.nth(2)?)?;
    let threads = number(fields.nth(10)?)?;
    let born = number(fields.nth(1)?)?;
    Some(Process { pid, parent, group, session, state, threads, flags, born })
}

/// Reads fields 50 and 51: the bounds of the environment that the program was started with; zero without a program.
pub(super) fn parse_environment(text: &[u8]) -> Option<(u64, u64)> {
    let mut fields = fields_from_state(text)?;
    Some((number(fields.nth(47)?)?, number(fields.next()?)?))
}

/// Returns the third and all further fields. The name before them may contain any character.
fn fields_from_state(text: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let rest = &text[text.iter().rposition(|b| *b == b')')? + 1..];
    Some(rest.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_contain_anything() {
        let text = b"7 (a) R 1 (x) T 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 987 22 23";
        let process = parse(7, text).expect("fields");
        let ids = (process.pid, process.parent, process.group, process.session);
        assert_eq!(ids, (7, 3, 4, 5));
        assert_eq!((process.state, process.threads, process.born), (b'T', 19, 987));
        assert_eq!(parse(7, b"7 (a"), None);
    }
}
