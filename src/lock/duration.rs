//! Durations in the form that users write.

use std::time::Duration;

/// A little more than a hundred years: beyond any use, and without overflow on any clock.
const LONGEST: Duration = Duration::from_secs(3_200_000_000);

/// Parses `500ms`, `1.5s`, `30s`, `5m`, `1h30m`, `1h 30m`, `2d`, `1w`, and systemd's longer words for the units; a bare
/// number is seconds.
///
/// Errors: a sentence about another text, or a duration of more than a hundred years.
pub fn parse(text: &str) -> Result<Duration, String> {
    let forms = "500ms, 1.5s, 30s, 5m, 1h30m, 2d, 1w or a number of seconds";
    let unreadable = || format!("{text:?} is not a duration; write {forms}");
    let too_long = || format!("{text:?} is too long a duration; write 36500d or less");
    let trimmed = text.trim();
    let length = if trimmed.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        let seconds = trimmed.parse().map_err(|_| unreadable())?;
        Duration::try_from_secs_f64(seconds).map_err(|_| too_long())?
    } else if trimmed.contains('M') {
        // humantime takes `M` for months, but users mean minutes.
        return Err(unreadable());
    } else {
        humantime::parse_duration(trimmed).map_err(|error| match error {
            humantime::DurationError::NumberOverflow => too_long(),
            _ => unreadable(),
        })?
    };
    if length > LONGEST { Err(too_long()) } else { Ok(length) }
}

/// Returns `3m12s`: the two largest units of `length`. Below ten seconds it has a tenth, and below one it is in
/// milliseconds.
pub fn short(length: Duration) -> String {
    let tenths = length.subsec_millis() / 100;
    match length.as_secs() {
        0 => format!("{}ms", length.as_millis()),
        s @ 1..10 if tenths > 0 => format!("{s}.{tenths}s"),
        _ => rough(length),
    }
}

/// Returns an elapsed time in whole seconds, otherwise like [`short`]: `<1s`, `3s`, `3m12s`.
pub fn rough(length: Duration) -> String {
    let s = length.as_secs();
    match s {
        0 => "<1s".to_owned(),
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
            ("5min", 300_000),
            ("30sec", 30_000),
            ("1w", 604_800_000),
            ("1h 30m", 5_400_000),
            ("2hours 1minute", 7_260_000),
            ("5 m", 300_000),
            ("36500d", 3_153_600_000_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn invalid_duration_is_refused() {
        for text in ["", " ", "s", "5x", "-1", "1e3", "1..5s", "inf", "NaN", "1h  x", "1h-30m", "1s2", "5M"] {
            assert!(parse(text).expect_err("refused").contains(" is not a duration; "), "{text}");
        }
        for text in ["9999999999d", "99999999999", "6000w"] {
            assert!(parse(text).expect_err("refused").contains(" is too long a duration; "), "{text}");
        }
    }

    #[test]
    fn short_form_keeps_two_units() {
        let cases = [
            (0.2, "200ms"),
            (1.5, "1.5s"),
            (2.03, "2s"),
            (59.9, "59s"),
            (192.0, "3m12s"),
            (3725.0, "1h02m"),
            (180_000.0, "2d02h"),
        ];
        for (seconds, text) in cases {
            assert_eq!(short(Duration::from_secs_f64(seconds)), text);
        }
    }

    #[test]
    fn elapsed_time_is_written_in_whole_seconds() {
        for (seconds, text) in [(0.0, "<1s"), (0.927, "<1s"), (1.9, "1s"), (192.4, "3m12s")] {
            assert_eq!(rough(Duration::from_secs_f64(seconds)), text);
        }
    }
}
