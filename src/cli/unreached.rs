//! Messages about a service that could not be reached or used.

use crate::hold::Wait;
use crate::hold::machine::FIRST_ANSWER;
use crate::lock::duration::short;
use crate::lock::{Error, ErrorKind};
use crate::net::cause;
use crate::output::{Message, sanitise};

/// The advice about a service at which nothing was reached.
const DOCTOR: &str = "see \"dlock doctor\" with the same connection options";

/// Returns the remark on the end of a wait for the first answer. A run that asks once has none.
pub(super) fn gave_up(wait: Wait) -> Option<String> {
    match wait {
        Wait::Once => None,
        Wait::AtMost(limit) => Some(format!("gave up after {} (--wait)", short(limit))),
        Wait::Forever => Some(format!("gave up after {}", short(FIRST_ANSWER))),
    }
}

/// Returns the message about `error` with advice: the end of the wait, and `dlock doctor` if that `may_help`.
pub(super) fn message(error: &Error, gave_up: Option<String>, may_help: bool) -> Message {
    let is_away = error.kind == ErrorKind::Unavailable;
    let question = error.reason.question().filter(|_| is_away);
    let reason = if is_away { error.reason.what() } else { error.reason.clone() };
    let headline = cause::headline(error.backend(), &reason).filter(|_| is_away);
    let doctor = (may_help && headline.is_some()).then_some(DOCTOR);
    let sentence = headline.unwrap_or_else(|| Error { reason, ..error.clone() }.to_string());
    let advice: Vec<&str> = question.into_iter().chain(doctor).collect();
    let parts: Vec<String> =
        gave_up.into_iter().chain((!advice.is_empty()).then(|| advice.join(" "))).collect();
    let hint = (!parts.is_empty()).then(|| parts.join("; "));
    Message::Failed { reason: sanitise::text(&sentence), hint }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::lock::Reason;
    use crate::output::{LogFormat, Printer, Verbosity};

    fn line(reason: Reason, wait: Wait, may_help: bool) -> String {
        let error = Error::unavailable(reason).during("redis", "join the queue", None);
        let message = message(&error, gave_up(wait), may_help);
        let printer =
            Printer { verbosity: Verbosity::Normal, log_format: LogFormat::Human, ..Printer::default() };
        printer.render(&message, std::time::SystemTime::UNIX_EPOCH)
    }

    #[test]
    fn unreached_line_has_reason_place_duration_and_remedy() {
        let three = Wait::AtMost(Duration::from_secs(3));
        let refused = |at| cause::unreached(&at, &std::io::ErrorKind::ConnectionRefused.into());
        for (reason, wait, may_help, wanted) in [
            (
                refused("127.0.0.1:9"),
                three,
                true,
                "cannot reach redis at 127.0.0.1:9: connection refused; gave up after 3s (--wait); is it running there? \
                 see \"dlock doctor\" with the same connection options",
            ),
            (
                Reason::joined(vec![refused("a:1"), refused("b:1")]),
                Wait::Forever,
                true,
                "cannot reach redis at a:1: connection refused; b:1: connection refused; gave up after 1m00s; is it \
                 running there? see \"dlock doctor\" with the same connection options",
            ),
            (cause::silent(&"h:1"), Wait::Once, false, "cannot use redis: h:1 does not answer in time"),
            (
                cause::read_only("").at(&"h:1"),
                three,
                true,
                "cannot join the queue (redis): h:1: it is read-only; gave up after 3s (--wait)",
            ),
        ] {
            assert_eq!(line(reason, wait, may_help), format!("dlock: {wanted}\n"));
        }
    }
}
