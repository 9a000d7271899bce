//! The state of locks, for people.

use std::time::SystemTime;

use super::sanitise::{self, cut};
use super::service::ServicePlace;
use super::table::Table;
use crate::lock::duration::{rough, short};
use crate::lock::{ClaimId, Entry, LockStatus};

/// How a text for people looks.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The width of the terminal, if the output is one.
    pub width: Option<usize>,
    /// Whether the text has colours.
    pub colour: bool,
    /// The present time.
    pub now: SystemTime,
}

/// How much of each claim is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// Columns that fit a terminal, with the digits of the claim that `break` needs.
    Usual,
    /// All columns, and nothing is cut.
    Wide,
}

/// The number of digits of a claim, as many as `break` needs.
const DIGITS: usize = 8;

/// The headings. A narrow terminal cuts off the last columns.
const COLUMNS: [&str; 11] =
    ["NAME", "CLAIM", "STATE", "MODE", "HOLDER", "PID", "SINCE", "COMMAND", "LABEL", "TTL", "TOKEN"];

/// Returns the title of one lock, with `stamp` before it, and its queue as a table.
pub fn lock(
    stamp: &str,
    status: &LockStatus,
    service: &ServicePlace,
    detail: Detail,
    layout: &Layout,
) -> String {
    let name = sanitise::text(status.name.as_str());
    let name = if layout.colour { format!("\x1b[1m{name}\x1b[0m") } else { name };
    let title = |state: &str| format!("{stamp}{name}: {state} ({})\n", service.looked());
    if status.is_empty() {
        return title("free");
    }
    let waiting = match status.waiters.len() {
        0 => String::new(),
        n => format!(", {n} waiting"),
    };
    let holding = match status.holders.len() {
        0 => "no holder".to_owned(),
        1 => "held".to_owned(),
        n => format!("held by {n}"),
    };
    let mut table = Table::new(&COLUMNS);
    add(&mut table, status, layout.now, false, detail);
    let rows = if detail == Detail::Wide { Layout { width: None, ..*layout } } else { *layout };
    title(&format!("{holding}{waiting}")) + &text(&table, &rows, "  ")
}

/// Returns all locks as one table, or nothing if all are free.
pub fn list(locks: &[LockStatus], layout: &Layout) -> String {
    if locks.iter().all(LockStatus::is_empty) {
        return String::new();
    }
    let mut table = Table::new(&COLUMNS);
    for status in locks {
        add(&mut table, status, layout.now, true, Detail::Usual);
    }
    text(&table, layout, "")
}

fn add(table: &mut Table, status: &LockStatus, now: SystemTime, named: bool, detail: Detail) {
    let name = || if named { status.name.to_string() } else { String::new() };
    for entry in &status.holders {
        let state = entry.slot.map_or_else(|| "holds".to_owned(), |slot| format!("holds {slot}"));
        table.row(cells(name(), state, entry, now, detail));
    }
    for entry in &status.waiters {
        let state = entry.ahead.map_or_else(|| "waits".to_owned(), |n| format!("waits, {n} ahead"));
        table.row(cells(name(), state, entry, now, detail));
    }
}

fn cells(name: String, state: String, entry: &Entry, now: SystemTime, detail: Detail) -> [String; 11] {
    let known = |text: Option<String>| text.unwrap_or_default();
    let holder = match (&entry.user, &entry.host) {
        (Some(user), Some(host)) => format!("{user}@{host}"),
        (Some(one), None) | (None, Some(one)) => one.clone(),
        (None, None) if entry.foreign => "(not dlock)".to_owned(),
        (None, None) => "?".to_owned(),
    };
    let holder = match &entry.key {
        Some(key) if entry.pid.is_none() => format!("{holder} {key}"),
        _ => holder,
    };
    let since = entry.since.and_then(|since| now.duration_since(since).ok());
    let wide = |text: Option<String>| text.filter(|_| detail == Detail::Wide).unwrap_or_default();
    let claim = |id: ClaimId| match detail {
        Detail::Wide => id.to_string(),
        Detail::Usual => id.to_string().chars().take(DIGITS).collect(),
    };
    [
        name,
        known(entry.claim.map(claim)),
        state,
        known(entry.mode.map(|mode| mode.to_string())),
        holder,
        known(entry.pid.map(|pid| pid.to_string())),
        known(since.map(|since| format!("{} ago", rough(since)))),
        known(entry.command.clone()),
        known(entry.label.clone()),
        wide(entry.ttl.map(short)),
        wide(entry.token.map(|token| token.to_string())),
    ]
}

/// Returns a table, indented, and cut to the width of the terminal.
pub(super) fn text(table: &Table, layout: &Layout, indent: &str) -> String {
    let width = layout.width.map_or(usize::MAX, |width| width.saturating_sub(indent.len()));
    let mut out = String::new();
    for (n, line) in table.lines().iter().map(|line| cut(line, width)).enumerate() {
        // Only the headings are dimmed: the terminal's own colours are readable on any background.
        let (on, off) = if layout.colour && n == 0 { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
        out.extend([indent, on, line.as_str(), off, "\n"]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{ClaimId, FencingToken, LockName, Mode};
    use std::time::Duration;

    fn layout() -> Layout {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        Layout { width: None, colour: false, now }
    }

    fn entry(pid: u32, ago: u64) -> Entry {
        Entry {
            claim: Some(ClaimId::from_bytes([0x1c; 16])),
            mode: Some(Mode::Exclusive),
            host: Some("host7".into()),
            user: Some("ci".into()),
            pid: Some(pid),
            command: Some("./deploy.sh".into()),
            since: Some(layout().now - Duration::from_secs(ago)),
            ..Entry::default()
        }
    }

    fn status(name: &str) -> LockStatus {
        let holder =
            Entry { token: FencingToken::new(42), ttl: Some(Duration::from_secs(24)), ..entry(4121, 192) };
        let hostile = Entry {
            ahead: Some(1),
            label: Some("a\x1b[2J\u{202e}b".into()),
            since: Some(layout().now),
            ..entry(7, 5)
        };
        let foreign = Entry { foreign: true, key: Some("key lock:x".into()), ..Entry::default() };
        LockStatus {
            name: LockName::new(name).expect("valid"),
            holders: vec![holder],
            waiters: vec![hostile, foreign],
        }
    }

    fn service(remark: &str) -> ServicePlace {
        ServicePlace { backend: "file", place: "/l".into(), remark: remark.into() }
    }

    fn usual(status: &LockStatus, layout: &Layout) -> String {
        lock("", status, &service(""), Detail::Usual, layout)
    }

    #[test]
    fn a_lock_is_a_title_and_a_table() {
        assert_eq!(
            usual(&status("deploy"), &layout()),
            concat!(
                "deploy: held, 2 waiting (file /l)\n",
                "  CLAIM     STATE           MODE       HOLDER                   PID  SINCE      COMMAND      LABEL\n",
                "  1c1c1c1c  holds           exclusive  ci@host7                4121  3m12s ago  ./deploy.sh\n",
                "  1c1c1c1c  waits, 1 ahead  exclusive  ci@host7                   7  <1s ago    ./deploy.sh  \
                 a\\u{1b}[2J\\u{202e}b\n",
                "            waits                      (not dlock) key lock:x\n",
            )
        );
    }

    #[test]
    fn wide_shows_all_of_the_claim_and_cuts_nothing() {
        let narrow = Layout { width: Some(40), ..layout() };
        let text = lock("", &status("deploy"), &service(""), Detail::Wide, &narrow);
        let holder = text.lines().nth(2).expect("a holder");
        assert!(holder.starts_with("  1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c  holds"), "{text}");
        assert!(holder.contains("./deploy.sh") && holder.ends_with("24s     42"), "{text}");
        assert!(text.lines().nth(1).is_some_and(|titles| titles.ends_with("TTL  TOKEN")), "{text}");
    }

    #[test]
    fn a_list_has_names_and_fits_the_terminal() {
        let fits = |width| {
            let narrow = Layout { width: Some(width), ..layout() };
            let text = list(&[status("deploy"), status("migrate")], &narrow);
            assert_eq!(text.lines().count(), 7);
            assert!(text.lines().all(|l| unicode_width::UnicodeWidthStr::width(l) <= width), "{text}");
            text
        };
        let text = fits(60);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("NAME     CLAIM     STATE"), "{}", lines[0]);
        assert!(lines[4].starts_with("migrate  1c1c1c1c  holds"), "{}", lines[4]);
        assert_eq!(list(&[], &layout()), "");
    }

    #[test]
    fn colour_only_where_asked() {
        assert!(!usual(&status("deploy"), &layout()).contains('\x1b'));
        let colour = Layout { colour: true, ..layout() };
        assert!(usual(&status("deploy"), &colour).starts_with("\x1b[1mdeploy\x1b[0m: held"));
    }
}
