//! The header of a queue file, and the fencing tokens: a counter that survives a crash of the host without a
//! flush.
//!
//! A new counter starts from the wall clock in microseconds, and is slower than that. So if it is lost, the clock is
//! further. A crash of the host may lose the last tokens that were given. So after another boot the counter continues
//! [`LOST`] further.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{CWD, Mode, OFlags, openat};
use serde::{Deserialize, Serialize};

use crate::backend::success;

/// The length of the header in bytes.
pub(super) const HEADER: usize = 1024;
/// The digits of the header's checksum, and the newline behind them.
pub(super) const SUM: usize = 17;
/// How many tokens a crash may lose. The kernel writes a changed file within half a minute, on a laptop within ten. No
/// processes take so many tokens by then, and no host boots again within as many microseconds.
pub(super) const LOST: u64 = 1 << 24;

/// The id of this boot of the host. If it cannot be read, every process counts as another boot.
static BOOT: LazyLock<String> = LazyLock::new(|| {
    let mut buffer = [0; 36];
    let file = openat(CWD, "/proc/sys/kernel/random/boot_id", OFlags::CLOEXEC, Mode::empty());
    let got = file.and_then(|file| rustix::io::read(file, &mut buffer));
    let id = std::str::from_utf8(&buffer).ok().filter(|_| got == Ok(buffer.len()));
    id.map_or_else(|| wall().to_string(), str::to_owned)
});

/// The header of a queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Header {
    /// The lock's name.
    pub(super) name: String,
    /// Where the entries begin.
    pub(super) start: u64,
    /// Their length.
    pub(super) length: u64,
    /// Their checksum.
    pub(super) sum: u64,
    /// The next token.
    pub(super) next: u64,
    /// When the last successful run acquired, by the wall clock; zero if none is known.
    pub(super) success: Duration,
    /// The id of the boot in which the last tokens were given.
    pub(super) boot: String,
}

/// The queue file has a format that this dlock does not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NewerFormat;

impl Header {
    /// Returns the header of a queue that has none: its counter starts from the clock.
    pub(super) fn fresh(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            start: HEADER as u64,
            length: 0,
            // Of no text.
            sum: 0,
            next: wall().max(1),
            success: Duration::ZERO,
            boot: BOOT.clone(),
        }
    }

    /// Takes the next token.
    pub(super) fn take_token(&mut self) -> u64 {
        if self.boot != *BOOT {
            self.next += LOST;
            self.boot.clone_from(&BOOT);
        }
        self.next += 1;
        self.next - 1
    }

    /// Records the success of a run that acquired the time `held_for` ago.
    pub(super) fn record_success(&mut self, held_for: Option<Duration>) {
        if let Some(held_for) = held_for {
            let now = Duration::from_micros(wall());
            self.success = success::latest(now, self.success, now.saturating_sub(held_for));
        }
    }

    pub(super) fn print(&self) -> Vec<u8> {
        let text = serde_json::to_string(self).expect("texts and numbers are JSON");
        let mut bytes = format!("dlock 1 {text}").into_bytes();
        bytes.resize(HEADER - SUM, b' ');
        let sum = format!("{:016x}\n", checksum(&bytes));
        bytes.extend_from_slice(sum.as_bytes());
        bytes
    }

    /// Reads a header; `None` if it is lost or damaged.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<Self>, NewerFormat> {
        let Some(bytes) = bytes.get(..HEADER) else { return Ok(None) };
        let (text, sum) = bytes.split_at(HEADER - SUM);
        if format!("{:016x}\n", checksum(text)).as_bytes() != sum {
            return Ok(None);
        }
        let Some(text) = std::str::from_utf8(text).ok().and_then(|t| t.strip_prefix("dlock ")) else {
            return Ok(None);
        };
        let Some(text) = text.strip_prefix("1 ") else { return Err(NewerFormat) };
        Ok(serde_json::from_str(text).ok())
    }
}

/// Returns the wall time in microseconds.
pub(super) fn wall() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// FNV-1a over words instead of bytes, for speed. It only detects a lost or half-written text.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0xcbf2_9ce4_8422_2325, |sum, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header { success: Duration::from_secs(4), ..Header::fresh(&"\"\\é ".repeat(40)) }
    }

    #[test]
    fn header_round_trips_and_a_damaged_one_is_lost() {
        let header = header();
        let bytes = header.print();
        assert_eq!(bytes.len(), HEADER);
        assert_eq!(Header::parse(&bytes), Ok(Some(header)));
        assert_eq!(Header::parse(&bytes[1..]), Ok(None));
        assert_eq!(Header::parse(&[0; HEADER]), Ok(None));
        let mut other = bytes.clone();
        other[20] ^= 1;
        assert_eq!(Header::parse(&other), Ok(None));
    }

    #[test]
    fn lost_counter_resumes_above_granted_tokens() {
        let given = Header::fresh("a").next;
        while wall() <= given {}
        assert!(Header::fresh("a").next > given);
    }

    #[test]
    fn newer_format_is_distinguished_from_damage() {
        let mut bytes = header().print();
        bytes[6] = b'2';
        let sum = format!("{:016x}\n", checksum(&bytes[..HEADER - SUM]));
        bytes[HEADER - SUM..].copy_from_slice(sum.as_bytes());
        assert_eq!(Header::parse(&bytes), Err(NewerFormat));
    }
}
