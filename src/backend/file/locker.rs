//! Who has a flock on a file, as the kernel tells.

use super::directory::Identity;

/// A process that has a flock on a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Locker {
    pub(super) pid: u32,
    pub(super) exclusive: bool,
}

/// Who has a flock on the file; those of other PID namespaces are not seen.
pub(super) fn lockers(file: Identity) -> Vec<Locker> {
    let text = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    text.lines().filter_map(|line| locker(line, file)).collect()
}

/// Reads `1: FLOCK  ADVISORY  WRITE 4121 fd:00:1234 0 EOF`; waiting ones have `->` behind the number.
pub(super) fn locker(line: &str, file: Identity) -> Option<Locker> {
    let mut words = line.split_ascii_whitespace().skip(1);
    if words.next()? != "FLOCK" {
        return None;
    }
    let exclusive = words.nth(1)? == "WRITE";
    let pid = words.next()?.parse().ok()?;
    let mut parts = words.next()?.split(':');
    let major = u32::from_str_radix(parts.next()?, 16).ok()?;
    let minor = u32::from_str_radix(parts.next()?, 16).ok()?;
    let inode: u64 = parts.next()?.parse().ok()?;
    ((rustix::fs::makedev(major, minor), inode) == file).then_some(Locker { pid, exclusive })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        let file = (rustix::fs::makedev(0xfd, 0x1), 1234);
        let write = "1: FLOCK  ADVISORY  WRITE 4121 fd:01:1234 0 EOF";
        assert_eq!(locker(write, file), Some(Locker { pid: 4121, exclusive: true }));
        let read = "12: FLOCK  ADVISORY  READ  7 fd:01:1234 0 EOF";
        assert_eq!(locker(read, file), Some(Locker { pid: 7, exclusive: false }));
        for other in [
            "1: -> FLOCK  ADVISORY  WRITE 4121 fd:01:1234 0 EOF",
            "1: POSIX  ADVISORY  WRITE 4121 fd:01:1234 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 4121 fd:01:1235 0 EOF",
            "",
        ] {
            assert_eq!(locker(other, file), None, "{other}");
        }
    }
}
