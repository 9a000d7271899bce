//! Durations as people write them.

use std::fmt;
use std::time::Duration;

/// A text that is not a duration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotADuration(String);

impl fmt::Display for NotADuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a duration; write 500ms, 1.5s, 30s, 5m, 1h30m, 2d or a number of seconds",
            self.0
        )
    }
}

impl std::error::Error for NotADuration {}

/// Reads `500ms`, `1.5s`, `30s`, `5m`, `1h30m`, `2d`; a bare number is seconds.
pub fn parse(text: &str) -> Result<Duration, NotADuration> {
    let error = || NotADuration(text.to_owned());
    let mut rest = text.trim();
    if let Some(seconds) = number(rest) {
        return scaled(seconds, 1.0).ok_or_else(error);
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(error)?;
        let unit_end = rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| digits + at);
        let factor = match &rest[digits..unit_end] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(error()),
        };
        let amount = number(&rest[..digits]).ok_or_else(error)?;
        total = scaled(amount, factor).and_then(|d| total.checked_add(d)).ok_or_else(error)?;
        rest = &rest[unit_end..];
    }
    if text.trim().is_empty() { Err(error()) } else { Ok(total) }
}

/// A plain decimal number; no sign, exponent, infinity or NaN.
fn number(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        && text.bytes().any(|b| b.is_ascii_digit())
        && text.bytes().filter(|b| *b == b'.').count() <= 1;
    if plain { text.parse().ok() } else { None }
}

fn scaled(amount: f64, factor: f64) -> Option<Duration> {
    // A hundred years: far beyond use, and far from overflow of every clock.
    let seconds = amount * factor;
    if seconds <= 3.2e9 { Duration::try_from_secs_f64(seconds).ok().map(round_to_micros) } else { None }
}

fn round_to_micros(length: Duration) -> Duration {
    Duration::from_micros(u64::try_from((length.as_nanos() + 500) / 1000).unwrap_or(u64::MAX))
}

/// `3m12s`: the two largest units of `length`, for people; below a minute seconds, below a second
/// milliseconds.
pub fn short(length: Duration) -> String {
    let s = length.as_secs();
    match s {
        0 => format!("{}ms", length.as_millis()),
        1..60 => format!("{s}s"),
        60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        3600..86_400 => format!("{}h{:02}m", s / 3600, s / 60 % 60),
        _ => format!("{}d{:02}h", s / 86_400, s / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_documented_forms() {
        for (text, ms) in [
            ("500ms", 500),
            ("1.5s", 1500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("7", 7000),
            ("0", 0),
            ("0.25", 250),
            (" 3s ", 3000),
            ("1m0.5s", 60_500),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest() {
        for text in
            ["", " ", "s", "5x", "-1", "1e3", "1..5s", "inf", "NaN", "5 m", "1h 30m", "9999999999d", "1s2"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn short_form_keeps_two_units() {
        let cases =
            [(0.2, "200ms"), (59.9, "59s"), (192.0, "3m12s"), (3725.0, "1h02m"), (180_000.0, "2d02h")];
        for (seconds, text) in cases {
            assert_eq!(short(Duration::from_secs_f64(seconds)), text);
        }
    }
}
