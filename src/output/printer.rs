//! From messages to lines on standard error.

use std::time::SystemTime;

use serde::Serialize;

use super::{Level, Message, sanitise, writer};

/// How much is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Verbosity {
    /// Failures other than a busy lock.
    Quiet,
    /// Failures, and waits.
    #[default]
    Normal,
    /// Also progress.
    Verbose,
}

/// The format of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// Sentences.
    #[default]
    Human,
    /// One JSON object a line: `time`, `level`, `event`, `message` and the fields of the event.
    Json,
}

/// Writes messages to standard error.
#[derive(Clone, Copy, Debug, Default)]
pub struct Printer {
    /// How much is printed.
    pub verbosity: Verbosity,
    /// The format.
    pub log_format: LogFormat,
    /// Whether `dlock:` is coloured.
    pub colour: bool,
    /// Whether a busy lock is not a failure (`-E 0`), and printed only with `--verbose`.
    pub busy_is_success: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    level: Level,
    event: serde_json::Value,
    message: String,
    #[serde(flatten)]
    fields: &'a serde_json::Map<String, serde_json::Value>,
}

impl Printer {
    /// Returns a printer. It uses colour if standard error is a terminal and `NO_COLOR` is not set.
    pub fn new(verbosity: Verbosity, log_format: LogFormat) -> Self {
        let colour = colour_wanted() && writer::is_terminal();
        Self { verbosity, log_format, colour, busy_is_success: false }
    }

    /// Returns whether `message` is printed.
    pub fn shows(&self, message: &Message) -> bool {
        match (message.level(), self.verbosity) {
            (Level::Busy, Verbosity::Normal) => !self.busy_is_success,
            (Level::Error | Level::Warning, _)
            | (_, Verbosity::Verbose)
            | (Level::Info, Verbosity::Normal) => true,
            (Level::Busy | Level::Info | Level::Verbose, _) => false,
        }
    }

    /// Prints `message`, unless it is hidden, with one write, so that lines of several processes do not mix. Another thread
    /// writes it: see [`writer`], and [`writer::Writer::finish`] for the end of the process.
    ///
    /// A closed or full standard error is not a failure. SIGPIPE must be ignored, as in every Rust program unless it asks
    /// otherwise.
    pub fn print(&self, message: &Message) {
        if self.shows(message) {
            let urgent = matches!(message.level(), Level::Error | Level::Busy);
            let printer = *self;
            let count = move |count| printer.render(&Message::LinesDropped { count }, SystemTime::now());
            writer::messages().line(self.render(message, SystemTime::now()), urgent, count);
        }
    }

    /// Returns the line for `message` and a newline. For people it ends with the advice.
    pub fn render(&self, message: &Message, now: SystemTime) -> String {
        match self.log_format {
            LogFormat::Human => self.human(message),
            LogFormat::Json => json(message, now),
        }
    }

    fn human(self, message: &Message) -> String {
        let (on, off) = match (self.colour, message.level()) {
            (true, Level::Error | Level::Busy) => ("\x1b[1;31m", "\x1b[0m"),
            (true, Level::Warning) => ("\x1b[1;33m", "\x1b[0m"),
            _ => ("", ""),
        };
        let sentence = sanitise::text(&sanitise::plain(&message.to_string()));
        let hint = message.hint().map(|hint| format!("; {}", sanitise::text(hint))).unwrap_or_default();
        format!("{on}dlock:{off} {sentence}{hint}\n")
    }
}

fn json(message: &Message, now: SystemTime) -> String {
    let mut fields = match serde_json::to_value(message) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let line = Line {
        time: humantime::format_rfc3339_millis(now).to_string(),
        level: message.level(),
        event: fields.remove("event").unwrap_or_default(),
        message: sanitise::plain(&message.to_string()),
        fields: &fields,
    };
    let mut text = sanitise::json(&serde_json::to_string(&line).unwrap_or_default());
    text.push('\n');
    text
}

/// Returns whether a terminal gets colours: `NO_COLOR` is unset or empty, and `TERM` is not `dumb`.
pub fn colour_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
        && std::env::var_os("TERM").is_none_or(|v| v != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Ms, ServicePlace};
    use std::time::Duration;

    fn service() -> ServicePlace {
        ServicePlace { backend: "file", place: "/l".into(), remark: String::new() }
    }

    fn printer(verbosity: Verbosity) -> Printer {
        Printer { verbosity, ..Printer::default() }
    }

    #[test]
    fn verbosity_hides_message_levels() {
        let busy = Message::Busy { lock: "x".into(), service: service(), holder: None };
        let waiting = Message::Waiting { lock: "x".into(), service: service(), holder: None, ahead: None };
        let lost = Message::Lost { lock: "x".into(), reason: "r".into(), command_ran: true };
        let skipped = Message::Skipped {
            lock: "x".into(),
            ago_ms: Ms(Duration::ZERO),
            once_per_ms: Ms(Duration::ZERO),
        };
        let shown = |p: Printer| [&busy, &waiting, &lost, &skipped].map(|m| p.shows(m));
        assert_eq!(shown(printer(Verbosity::Quiet)), [false, false, true, false]);
        assert_eq!(shown(printer(Verbosity::Normal)), [true, true, true, false]);
        assert_eq!(shown(printer(Verbosity::Verbose)), [true, true, true, true]);
        let cron = Printer { busy_is_success: true, ..printer(Verbosity::Normal) };
        assert_eq!(shown(cron), [false, true, true, false]);
        assert!(Printer { verbosity: Verbosity::Verbose, ..cron }.shows(&busy));
    }

    #[test]
    fn a_line_for_people() {
        let message = Message::Failed { reason: "a\nb".into(), hint: Some("see\x1bthis".into()) };
        let plain = printer(Verbosity::Normal).render(&message, SystemTime::UNIX_EPOCH);
        assert_eq!(plain, "dlock: a\\nb; see\\u{1b}this\n");
        let numbered = Message::failed("cannot open /x: Permission denied (os error 13)");
        let plain = printer(Verbosity::Normal).render(&numbered, SystemTime::UNIX_EPOCH);
        assert_eq!(plain, "dlock: cannot open /x: Permission denied\n");
        let colour = Printer { colour: true, ..Printer::default() };
        let text = colour.render(&Message::failed("x"), SystemTime::UNIX_EPOCH);
        assert_eq!(text, "\x1b[1;31mdlock:\x1b[0m x\n");
    }

    #[test]
    fn a_line_for_programs() {
        let message = Message::WaitRanOut {
            lock: "a\u{202e}".into(),
            service: service(),
            waited_ms: Ms(Duration::from_secs(2)),
            holder: None,
        };
        let printer = Printer { log_format: LogFormat::Json, ..Printer::default() };
        assert_eq!(
            printer.render(&message, SystemTime::UNIX_EPOCH),
            "{\"time\":\"1970-01-01T00:00:00.000Z\",\"level\":\"busy\",\"event\":\"wait-ran-out\",\
             \"message\":\"gave up waiting for a\\u202e (file /l) after 2s\",\"holder\":null,\"lock\":\"a\\u202e\",\
             \"waited_ms\":2000}\n"
        );
    }
}
