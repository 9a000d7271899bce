//! The live line of a waiting dlock on a terminal.

use std::time::{Duration, SystemTime};

use unicode_width::UnicodeWidthStr as _;

use super::Party;
use super::sanitise::{self, cut};
use crate::lock::{Entry, Mode, Moment};

/// How long a wait lasts before the line is drawn.
const AFTER: Duration = Duration::from_millis(500);
/// The time between two drawings.
const EVERY: Duration = Duration::from_secs(1);

/// Returns `waiting for deploy · 2nd in queue · held by ci@host7 pid 4121 (./deploy.sh) for 3m12s · 00:41`, in at most `width`
/// columns.
fn waiting_line(
    lock: &str,
    ahead: Option<u32>,
    holder: Option<&Entry>,
    now: SystemTime,
    waited: Duration,
    width: usize,
) -> String {
    let mut line = format!("waiting for {}", sanitise::text(lock));
    if let Some(ahead) = ahead {
        line += " · ";
        line += &place(ahead, holder);
    }
    if let Some(holder) = holder {
        line += " · held by ";
        line += &Party::of(holder, now).to_string();
    }
    let seconds = waited.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let hours = if hours > 0 { format!("{hours}:") } else { String::new() };
    let time = format!(" · {hours}{minutes:02}:{seconds:02}");
    // The text before the time is cut first.
    cut(&format!("{}{time}", cut(&line, width.saturating_sub(time.width()))), width)
}

/// Returns the place of a claim behind `ahead` others: `2nd in queue`. A holder is ahead, but not in the queue.
pub(crate) fn place(ahead: u32, holder: Option<&Entry>) -> String {
    let one_holder = holder.is_none_or(|holder| holder.mode.is_none_or(|mode| mode == Mode::Exclusive));
    match ahead {
        0 | 1 => "next in queue".to_owned(),
        _ if one_holder => format!("{} in queue", ordinal(ahead)),
        // The number of those that hold together is not known.
        _ => format!("{ahead} ahead"),
    }
}

/// Returns `1st`, `2nd`, `3rd`, `4th`, `11th`, `21st`.
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

/// The line: what it shows, and when. The caller writes the drawings to the terminal.
pub struct Live {
    /// Returns whether dlock may draw now. In the background the shell's prompt is on that line.
    is_foreground: Box<dyn Fn() -> bool>,
    lock: String,
    started: Moment,
    /// When to call [`Live::draw`] next.
    pub next: Moment,
    shown: bool,
    ahead: Option<u32>,
    holder: Option<Entry>,
}

impl Live {
    /// Returns a line for a wait for `lock` (see [`super::message::names`]) that began at `started`.
    pub fn new(is_foreground: Box<dyn Fn() -> bool>, lock: String, started: Moment) -> Self {
        let next = started + AFTER;
        Self { is_foreground, lock, started, next, shown: false, ahead: None, holder: None }
    }

    /// Notes the place in the queue and the holder.
    pub fn update(&mut self, ahead: Option<u32>, holder: Option<&Entry>) {
        self.ahead = ahead;
        self.holder = holder.cloned();
    }

    /// Returns a drawing if it is due and dlock is in the foreground.
    pub fn draw(&mut self, now: Moment, wall: SystemTime, width: usize) -> Option<String> {
        if now < self.next {
            return None;
        }
        self.next = now + EVERY;
        self.shown = (self.is_foreground)();
        if !self.shown {
            return None;
        }
        let waited = now.since(self.started);
        // A terminal wraps at the last column, and Ctrl-C takes two columns.
        let width = width.saturating_sub(3);
        let line = waiting_line(&self.lock, self.ahead, self.holder.as_ref(), wall, waited, width);
        Some(format!("\r{line}\x1b[K"))
    }

    /// Returns a drawing that removes the line, if it is shown: before other output, and at the end of the wait.
    pub fn erase(&mut self) -> Option<String> {
        let shown = std::mem::replace(&mut self.shown, false);
        (shown && (self.is_foreground)()).then(|| "\r\x1b[K".to_owned())
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

    fn line(width: usize, holder: &Entry) -> String {
        waiting_line("deploy", Some(2), Some(holder), wall(), Duration::from_secs(41), width)
    }

    #[test]
    fn the_line_as_documented_and_cut() {
        let line = |width| line(width, &holder());
        let full =
            "waiting for deploy · 2nd in queue · held by ci@host7 pid 4121 (./deploy.sh) for 3m12s · 00:41";
        assert_eq!(line(200), full);
        assert_eq!(
            line(80),
            "waiting for deploy · 2nd in queue · held by ci@host7 pid 4121 (./deploy… · 00:41"
        );
        assert_eq!(line(60), "waiting for deploy · 2nd in queue · held by ci@host… · 00:41");
        assert_eq!(line(37), "waiting for deploy · 2nd in … · 00:41");
        assert_eq!(line(20), "waiting for… · 00:41");
        let bare = waiting_line("a\nb", None, None, wall(), Duration::from_secs(3723), 99);
        assert_eq!(bare, "waiting for a\\nb · 1:02:03");
    }

    #[test]
    fn place_counts_the_waiters_ahead() {
        let shared = Entry { mode: Some(Mode::Shared), ..holder() };
        assert_eq!(
            [0, 1, 3].map(|ahead| place(ahead, None)),
            ["next in queue", "next in queue", "3rd in queue"]
        );
        assert_eq!(place(3, Some(&shared)), "3 ahead");
    }

    #[test]
    fn ordinals_have_english_suffixes() {
        let texts = [1, 2, 3, 4, 11, 12, 13, 21, 112].map(ordinal);
        assert_eq!(texts, ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "112th"]);
    }

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(0) + Duration::from_millis(ms)
    }

    #[test]
    fn drawn_after_half_a_second_each_second_and_erased() {
        let mut live = Live::new(Box::new(|| true), "x".into(), Moment::from_nanos(0));
        assert_eq!(live.draw(at(499), wall(), 80), None);
        assert_eq!(live.erase(), None);
        assert_eq!(live.draw(at(500), wall(), 80).as_deref(), Some("\rwaiting for x · 00:00\x1b[K"));
        assert_eq!(live.draw(at(1499), wall(), 80), None);
        assert_eq!(live.next, at(1500));
        live.update(Some(0), None);
        let drawn = live.draw(at(1500), wall(), 80);
        assert_eq!(drawn.as_deref(), Some("\rwaiting for x · next in queue · 00:01\x1b[K"));
        assert_eq!((live.erase().as_deref(), live.erase()), (Some("\r\x1b[K"), None));
    }
}
