//! The report as Prometheus text for the node exporter's textfile collector: `--metrics-file FILE`.
//!
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::report::Outcome;
use super::{Ms, Report, file};

const INFALLIBLE: &str = "writing to a String cannot fail";

/// Returns whether the run is a success: its command exited 0, or `--once-per` skipped it.
fn succeeded(report: &Report) -> bool {
    matches!(report.outcome, Outcome::Ran | Outcome::Skipped) && report.exit_code == Some(0)
}

/// Returns the text, at the time `now`. `last_success` is the time of the last success before this run: a failure keeps it.
pub fn text(report: &Report, now: SystemTime, last_success: Option<f64>) -> String {
    let names: Vec<_> = report.lock.iter().flatten().map(|name| label(name)).collect();
    let labels = format!("lock=\"{}\",backend=\"{}\"", names.join(","), label(&report.backend));
    let mut out = String::new();
    metric(&mut out, "dlock_run_outcome", "How the last run went: 1 for its outcome, 0 for the others.");
    for (outcome, name) in Outcome::ALL {
        let value = u8::from(*outcome == report.outcome);
        writeln!(out, "dlock_run_outcome{{{labels},outcome=\"{name}\"}} {value}").expect(INFALLIBLE);
    }
    let mut gauge = |name: &str, help: &str, value: f64| {
        metric(&mut out, name, help);
        writeln!(out, "{name}{{{labels}}} {value}").expect(INFALLIBLE);
    };
    gauge("dlock_wait_seconds", "How long the last run waited for the lock.", seconds(report.waited_ms.0));
    let length = report.held_ms.map_or(Duration::ZERO, |length| length.0);
    gauge("dlock_held_seconds", "How long the last run held the lock.", seconds(length));
    if let Some(code) = report.exit_code {
        let help = "The exit status of the last run; absent if a signal ended it.";
        gauge("dlock_exit_code", help, f64::from(code));
    }
    let time = seconds(now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
    gauge("dlock_last_run_timestamp_seconds", "When the last run ended.", time);
    if let Some(success) = if succeeded(report) { Some(time) } else { last_success } {
        let help = "When the last successful run ended; a run that --once-per skipped counts as one.";
        gauge("dlock_last_success_timestamp_seconds", help, success);
    }
    out
}

/// Returns the time of the last success in an earlier `text`.
pub fn last_success(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("dlock_last_success_timestamp_seconds{"))?;
    line.rsplit(' ').next()?.parse().ok().filter(|time: &f64| time.is_finite())
}

/// Writes the text to `path` atomically. All users can read it, because the collector is another user.
pub fn write(report: &Report, path: &Path, now: SystemTime) -> io::Result<()> {
    // Only a regular file has an earlier text. Reading a pipe could block.
    let earlier = match std::fs::metadata(path) {
        Ok(meta) if meta.is_file() => std::fs::read_to_string(path).ok(),
        _ => None,
    };
    file::write(path, &text(report, now, earlier.as_deref().and_then(last_success)), 0o644, true)
}

/// Returns seconds with at most three decimals.
fn seconds(length: Duration) -> f64 {
    Duration::from_millis(Ms(length).whole()).as_secs_f64()
}

fn metric(out: &mut String, name: &str, help: &str) {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge").expect(INFALLIBLE);
}

/// Returns a label's value with backslash, quote and line feed escaped.
fn label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::file::tests::Folder;
    use crate::output::report::tests::ran;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn metrics_match_the_golden_text() {
        let text = text(&ran(), at(1_700_000_000), Some(1_600_000_000.5));
        let labels = r#"{lock="deploy \"x\"",backend="file"}"#;
        for line in [
            "# HELP dlock_run_outcome How the last run went: 1 for its outcome, 0 for the others.".to_owned(),
            "# TYPE dlock_run_outcome gauge".into(),
            r#"dlock_run_outcome{lock="deploy \"x\"",backend="file",outcome="ran"} 1"#.into(),
            r#"dlock_run_outcome{lock="deploy \"x\"",backend="file",outcome="max-run"} 0"#.into(),
            format!("dlock_wait_seconds{labels} 1.5"),
            format!("dlock_held_seconds{labels} 60"),
            format!("dlock_exit_code{labels} 3"),
            format!("dlock_last_run_timestamp_seconds{labels} 1700000000"),
            format!("dlock_last_success_timestamp_seconds{labels} 1600000000.5"),
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\nis not in\n{text}");
        }
    }

    #[test]
    fn a_failure_keeps_the_time_of_the_last_success() {
        let folder = Folder::new("metrics");
        let path = folder.0.join("x.prom");
        let time = |path: &Path| last_success(&std::fs::read_to_string(path).expect("read"));
        write(&Report { exit_code: Some(0), ..ran() }, &path, at(100)).expect("written");
        assert_eq!(time(&path), Some(100.0));
        write(&ran(), &path, at(200)).expect("written");
        assert_eq!(time(&path), Some(100.0));
        write(&Report { exit_code: Some(0), ..ran() }, &path, at(300)).expect("written");
        assert_eq!(time(&path), Some(300.0));
    }
}
