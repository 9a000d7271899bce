//! Fencing tokens: a counter beside the lock that survives a crash of the host without an fsync per run.
//!
//! A new counter starts from the wall clock in microseconds and gives out at most [`RESERVE`] tokens before its first
//! fsync. If a crash loses it, the clock is further by then than the counter ever was. Later tokens are reserved with
//! an fsync, a thousand at a time. After another boot of the host the counter continues at the limit, whatever lower
//! tokens the file still shows.

use std::time::{SystemTime, UNIX_EPOCH};

use super::header::{HEADER, Header, checksum};

/// How many tokens are reserved at once.
const RESERVE: u64 = 1000;

/// Returns the wall time in microseconds.
pub(super) fn wall() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the header of a queue that has none: its counter starts from the clock.
pub(super) fn fresh(name: &str, boot: &str) -> Header {
    let next = wall().max(1);
    Header {
        name: name.to_owned(),
        start: HEADER as u64,
        length: 0,
        sum: checksum(&[]),
        next,
        limit: next + RESERVE,
        success: 0,
        boot: boot.to_owned(),
    }
}

/// Returns whether there is a token that may be given without a reservation.
pub(super) fn ready(header: &Header, boot: &str) -> bool {
    header.next < header.limit && boot == header.boot
}

/// Takes the next token; `None` if more must be reserved first.
pub(super) fn take(header: &mut Header, boot: &str) -> Option<u64> {
    if !ready(header, boot) {
        return None;
    }
    header.next += 1;
    Some(header.next - 1)
}

/// Reserves more. `header` must reach the disk before its tokens are given.
pub(super) fn reserve(header: &mut Header, boot: &str) {
    if boot != header.boot {
        header.next = header.limit;
        boot.clone_into(&mut header.boot);
    }
    header.limit = header.next + RESERVE;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_counter_resumes_above_granted_tokens() {
        let before = fresh("a", "boot");
        let given = before.next;
        while wall() <= given {}
        assert!(fresh("a", "boot").next > given);
    }
}
