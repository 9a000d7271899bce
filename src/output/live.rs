//! The live line of a waiting dlock on a terminal.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use unicode_width::UnicodeWidthStr as _;

use super::sanitise::{self, Ellipsis};
use super::{Party, writer};
use crate::lock::{Entry, Mode, Moment};

/// The terminal that standard error is; each write is a drawing of its own, and takes the place of one that was not made
/// yet.
#[derive(Clone, Copy, Debug)]
pub struct Screen;

impl Write for Screen {
    fn write(&mut self, drawing: &[u8]) -> io::Result<usize> {
        writer::messages().draw(String::from_utf8_lossy(drawing).into_owned());
        Ok(drawing.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How long a wait lasts before it is shown.
pub const AFTER: Duration = Duration::from_millis(500);
/// The time between two drawings.
pub const EVERY: Duration = Duration::from_secs(1);

/// The least of a holder that is worth showing, in columns.
const LEAST_HOLDER: usize = 16;

/// `connecting to redis://h:6379/0 · connection refused · 00:03`: nobody has answered yet, and why, if that is known. The reason gives
/// way first, then the place; parts are left out as a whole.
pub fn connecting_line(
    service: &str,
    reason: Option<&str>,
    waited: Duration,
    (width, ellipsis): (usize, Ellipsis),
) -> String {
    let gap = gap(ellipsis);
    let tail = format!("{gap}{}", watch(waited));
    let head = format!("connecting to {}", sanitise::text(service));
    let room = width.saturating_sub(tail.width());
    let reason = reason.map_or_else(String::new, |reason| format!("{gap}{}", sanitise::text(reason)));
    let text = if (head.width() + reason.width()) <= room { head + &reason } else { head };
    ellipsis.cut(&format!("{}{tail}", ellipsis.cut(&text, room)), width)
}

/// What stands between two parts of the line.
fn gap(ellipsis: Ellipsis) -> &'static str {
    match ellipsis {
        Ellipsis::Unicode => " · ",
        Ellipsis::Ascii => ", ",
    }
}

/// `waiting for deploy · 2nd in queue · held by ci@host7 pid 4121 (./deploy.sh) for 3m12s · 00:41`, at most `width`
/// columns wide.
///
/// The holder gives way first, then the place, then the name: how long it has waited always shows. Where only ASCII
/// does, commas stand between the parts.
pub fn waiting_line(
    lock: &str,
    ahead: Option<u32>,
    holder: Option<&Entry>,
    now: SystemTime,
    waited: Duration,
    (width, ellipsis): (usize, Ellipsis),
) -> String {
    let gap = gap(ellipsis);
    let mut head = format!("waiting for {}", sanitise::text(lock));
    let tail = format!("{gap}{}", watch(waited));
    let room = |head: &str| width.saturating_sub(head.width() + tail.width());
    let place = ahead.map_or_else(String::new, |ahead| format!("{gap}{}", place(ahead, holder)));
    if place.width() <= room(&head) {
        head.push_str(&place);
    }
    if let Some(holder) = holder
        && room(&head) >= gap.width() + LEAST_HOLDER
    {
        let holder = format!("{gap}held by {}", Party::of(holder, now));
        head.push_str(&ellipsis.cut(&holder, room(&head)));
    }
    let head = ellipsis.cut(&head, width.saturating_sub(tail.width()));
    ellipsis.cut(&format!("{head}{tail}"), width)
}

/// `2nd in queue`: the place of a claim behind `ahead` others, of which `holder` is one: the holder is not in the queue any more.
pub(crate) fn place(ahead: u32, holder: Option<&Entry>) -> String {
    let one_holder = holder.is_none_or(|holder| holder.mode.is_none_or(|mode| mode == Mode::Exclusive));
    match ahead {
        0 | 1 => "next in queue".to_owned(),
        _ if one_holder => format!("{} in queue", ordinal(ahead)),
        // Some of them hold together, and how many do is not known.
        _ => format!("{ahead} ahead"),
    }
}

/// `1st`, `2nd`, `3rd`, `4th`, `11th`, `21st`.
fn ordinal(n: u32) -> String {
    let ending = match (n % 100, n % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

/// `00:41`, `1:02:03`.
fn watch(length: Duration) -> String {
    let s = length.as_secs();
    if s < 3600 {
        format!("{:02}:{:02}", s / 60, s % 60)
    } else {
        format!("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
    }
}

/// Draws the line in place, once a second, and takes it away again.
///
/// `foreground` says whether dlock may write to the terminal now: in the background nothing is drawn and
/// nothing erased, since the shell's prompt is on that line.
#[derive(Debug)]
pub struct Live<W, F> {
    out: W,
    foreground: F,
    lock: String,
    started: Moment,
    next: Moment,
    shown: bool,
    ahead: Option<u32>,
    holder: Option<Entry>,
    /// Nobody has answered yet.
    silent: Option<Silent>,
    ellipsis: Ellipsis,
}

/// A service that has not answered yet.
#[derive(Debug)]
struct Silent {
    service: String,
    reason: Option<String>,
}

impl<W: Write, F: Fn() -> bool> Live<W, F> {
    /// A line for a wait for `lock` (see [`super::message::names`]) that began at `started`; not drawn yet.
    pub fn new(out: W, foreground: F, lock: String, started: Moment, ellipsis: Ellipsis) -> Self {
        Self {
            out,
            foreground,
            lock,
            started,
            next: started + AFTER,
            shown: false,
            ahead: None,
            holder: None,
            silent: None,
            ellipsis,
        }
    }

    /// The same line, of which the service has not answered yet.
    #[must_use]
    pub fn connecting(mut self, service: String) -> Self {
        self.silent = Some(Silent { service, reason: None });
        self
    }

    /// The service still has not answered, for `reason`; drawn next time.
    pub fn unanswered(&mut self, reason: Option<String>) {
        if let Some(silent) = &mut self.silent {
            silent.reason = reason;
        }
    }

    /// Takes over what is newly known; drawn next time.
    pub fn update(&mut self, ahead: Option<u32>, holder: Option<&Entry>) {
        self.silent = None;
        self.ahead = ahead;
        self.holder = holder.cloned();
    }

    /// When to call [`Live::draw`] next.
    pub fn next(&self) -> Moment {
        self.next
    }

    /// Draws the line if it is due and dlock is in the foreground. A terminal that is gone is not a failure.
    pub fn draw(&mut self, now: Moment, wall: SystemTime, width: usize) {
        if now < self.next {
            return;
        }
        self.next = now + EVERY;
        if !(self.foreground)() {
            self.shown = false;
            return;
        }
        let waited = now.since(self.started);
        // A terminal wraps at the last column, and Ctrl-C shows as two.
        let room = (width.saturating_sub(3), self.ellipsis);
        let line = match &self.silent {
            Some(Silent { service, reason }) => connecting_line(service, reason.as_deref(), waited, room),
            None => waiting_line(&self.lock, self.ahead, self.holder.as_ref(), wall, waited, room),
        };
        // One write: to the start of the line, the text, and whatever was longer before is cleared.
        let _gone = self.out.write_all(format!("\r{line}\x1b[K").as_bytes()).and_then(|()| self.out.flush());
        self.shown = true;
    }

    /// Takes the line away, before anything else is written to the terminal and when the wait ends.
    pub fn erase(&mut self) {
        if self.shown && (self.foreground)() {
            let _gone = self.out.write_all(b"\r\x1b[K").and_then(|()| self.out.flush());
        }
        self.shown = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wall() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000)
    }

    fn holder() -> Entry {
        Entry {
            user: Some("ci".into()),
            host: Some("host7".into()),
            pid: Some(4121),
            command: Some("./deploy.sh".into()),
            since: Some(wall() - Duration::from_secs(192)),
            ..Entry::default()
        }
    }

    fn line(width: usize, ellipsis: Ellipsis) -> String {
        let waited = Duration::from_secs(41);
        waiting_line("deploy", Some(2), Some(&holder()), wall(), waited, (width, ellipsis))
    }

    #[test]
    fn the_line_as_documented_and_cut() {
        let line = |width| line(width, Ellipsis::Unicode);
        let full =
            "waiting for deploy · 2nd in queue · held by ci@host7 pid 4121 (./deploy.sh) for 3m12s · 00:41";
        assert_eq!(line(200), full);
        assert_eq!(line(61), "waiting for deploy · 2nd in queue · held by ci@host7… · 00:41");
        assert_eq!(line(60), "waiting for deploy · 2nd in queue · held by ci@host… · 00:41");
        assert_eq!(line(45), "waiting for deploy · 2nd in queue · 00:41");
        assert_eq!(line(37), "waiting for deploy · 00:41");
        assert_eq!(line(20), "waiting for… · 00:41");
        let room = (99, Ellipsis::Unicode);
        let bare = waiting_line("a\nb", None, None, wall(), Duration::from_secs(3723), room);
        assert_eq!(bare, "waiting for a\\nb · 1:02:03");
    }

    #[test]
    fn a_terminal_without_unicode_gets_none() {
        let full =
            "waiting for deploy, 2nd in queue, held by ci@host7 pid 4121 (./deploy.sh) for 3m12s, 00:41";
        assert_eq!(line(200, Ellipsis::Ascii), full);
        assert!((1..100).all(|width| line(width, Ellipsis::Ascii).is_ascii()));
    }

    #[test]
    fn the_place_is_that_among_those_who_wait() {
        let shared = Entry { mode: Some(Mode::Shared), ..holder() };
        assert_eq!(
            [0, 1, 3].map(|ahead| place(ahead, None)),
            ["next in queue", "next in queue", "3rd in queue"]
        );
        assert_eq!(place(3, Some(&shared)), "3 ahead");
    }

    #[test]
    fn ordinals() {
        let texts = [1, 2, 3, 4, 11, 12, 13, 21, 112].map(ordinal);
        assert_eq!(texts, ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "112th"]);
    }

    #[test]
    fn drawn_after_half_a_second_each_second_and_erased() {
        let start = Moment::from_nanos(0);
        let at = |ms| start + Duration::from_millis(ms);
        let mut screen = Vec::new();
        let mut live = Live::new(&mut screen, || true, "x".into(), start, Ellipsis::Unicode);
        live.draw(at(499), wall(), 80);
        live.erase();
        live.draw(at(500), wall(), 80);
        live.draw(at(1499), wall(), 80);
        assert_eq!(live.next(), at(1500));
        live.update(Some(0), None);
        live.draw(at(1500), wall(), 80);
        live.erase();
        live.erase();
        let text = String::from_utf8(screen).expect("text");
        assert_eq!(
            text,
            "\rwaiting for x · 00:00\x1b[K\rwaiting for x · next in queue · 00:01\x1b[K\r\x1b[K"
        );
    }

    #[test]
    fn a_service_that_has_not_answered_is_named_with_the_reason() {
        let shown = |width, ellipsis| {
            let reason = Some("connection refused");
            connecting_line("redis://h:6379/0", reason, Duration::from_secs(3), (width, ellipsis))
        };
        let whole = "connecting to redis://h:6379/0 · connection refused · 00:03";
        assert_eq!(shown(77, Ellipsis::Unicode), whole);
        assert_eq!(shown(77, Ellipsis::Ascii), "connecting to redis://h:6379/0, connection refused, 00:03");
        assert_eq!(shown(40, Ellipsis::Unicode), "connecting to redis://h:6379/0 · 00:03");
        assert_eq!(shown(30, Ellipsis::Unicode), "connecting to redis:/… · 00:03");

        let start = Moment::from_nanos(0);
        let mut screen = Vec::new();
        let mut live = Live::new(&mut screen, || true, "x".into(), start, Ellipsis::Unicode)
            .connecting("redis://h".into());
        live.draw(start + AFTER, wall(), 80);
        live.unanswered(Some("connection refused".into()));
        live.draw(start + AFTER + EVERY, wall(), 80);
        live.update(Some(0), None);
        live.unanswered(Some("connection refused".into()));
        live.draw(start + AFTER + EVERY * 2, wall(), 80);
        let text = String::from_utf8(screen).expect("text");
        assert_eq!(
            text,
            "\rconnecting to redis://h · 00:00\x1b[K\rconnecting to redis://h · connection refused · 00:01\x1b[K\
             \rwaiting for x · next in queue · 00:02\x1b[K"
        );
    }

    #[test]
    fn the_background_is_silent() {
        let mut screen = Vec::new();
        let front = std::cell::Cell::new(true);
        let mut live =
            Live::new(&mut screen, || front.get(), "x".into(), Moment::from_nanos(0), Ellipsis::Unicode);
        live.draw(Moment::from_nanos(0) + AFTER, wall(), 80);
        front.set(false);
        live.erase();
        live.draw(Moment::from_nanos(0) + AFTER + EVERY, wall(), 80);
        front.set(true);
        live.erase();
        assert_eq!(String::from_utf8(screen).expect("text"), "\rwaiting for x · 00:00\x1b[K");
    }
}
