//! The header of a queue file, without I/O, and the fencing tokens: a counter that survives a crash of the host without an
//! fsync per run.
//!
//! A new counter starts from the wall clock in microseconds and gives out at most [`RESERVE`] tokens before its first
//! fsync. If a crash loses it, the clock is further by then than the counter ever was. Later tokens are reserved with
//! an fsync, a thousand at a time. After another boot of the host the counter continues at the limit, whatever lower
//! tokens the file still shows.

use std::time::{SystemTime, UNIX_EPOCH};

/// The length of the header in bytes.
pub(super) const HEADER: usize = 1024;
/// The digits of the header's checksum, and the newline behind them.
pub(super) const SUM: usize = 17;
/// How many tokens are reserved at once.
const RESERVE: u64 = 1000;

/// The header of a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
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
    /// The first token that may not be given before more are reserved.
    pub(super) limit: u64,
    /// When the last successful run acquired, in µs of wall time; zero if none is known.
    pub(super) success: u64,
    /// The id of the boot in which the last tokens were given.
    pub(super) boot: String,
}

/// The queue file has a format that this dlock does not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NewerFormat;

impl Header {
    /// Returns the header of a queue that has none: its counter starts from the clock.
    pub(super) fn fresh(name: &str, boot: &str) -> Self {
        let next = wall().max(1);
        Self {
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

    /// Returns whether the next token may be given without a reservation.
    pub(super) fn is_ready(&self, boot: &str) -> bool {
        self.next < self.limit && boot == self.boot
    }

    /// Takes the next token, which must be ready.
    pub(super) fn take_token(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Reserves more tokens. The header must reach the disk before they are given.
    pub(super) fn reserve(&mut self, boot: &str) {
        if boot != self.boot {
            self.next = self.limit;
            boot.clone_into(&mut self.boot);
        }
        self.limit = self.next + RESERVE;
    }

    pub(super) fn print(&self) -> Vec<u8> {
        let name = serde_json::to_string(&self.name).expect("a text is JSON");
        let Self { start, length, sum, next, limit, success, boot, .. } = self;
        let mut bytes =
            format!("dlock 1 {start} {length} {sum} {next} {limit} {success} {boot} {name}").into_bytes();
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
        Ok(Self::fields(text))
    }

    fn fields(text: &str) -> Option<Self> {
        let mut parts = text.splitn(8, ' ');
        let mut number = || parts.next()?.parse::<u64>().ok();
        let (start, length, sum) = (number()?, number()?, number()?);
        let (next, limit, success) = (number()?, number()?, number()?);
        let boot = parts.next()?.to_owned();
        let name = serde_json::from_str(parts.next()?).ok()?;
        Some(Self { name, start, length, sum, next, limit, success, boot })
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
        Header { success: 4, ..Header::fresh(&"\"\\é ".repeat(40), &"b".repeat(36)) }
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
        let given = Header::fresh("a", "boot").next;
        while wall() <= given {}
        assert!(Header::fresh("a", "boot").next > given);
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
