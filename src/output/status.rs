//! Locks and their lines, for people.

use std::time::SystemTime;

use super::sanitise;
use super::table::{Column, Table};
use crate::lock::duration::short;
use crate::lock::{Entry, LockStatus};

/// How the text is laid out.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The terminal's width, if it is one.
    pub width: Option<usize>,
    /// Whether colour is used.
    pub colour: bool,
    /// The time to count from.
    pub now: SystemTime,
}

const fn column(title: &'static str, right: bool, flexible: bool) -> Column {
    Column { title, right, flexible }
}

const COLUMNS: [Column; 11] = [
    column("NAME", false, true),
    column("STATE", false, false),
    column("MODE", false, false),
    column("HOLDER", false, true),
    column("PID", true, false),
    column("COMMAND", false, true),
    column("LABEL", false, true),
    column("SINCE", false, false),
    column("TTL", true, false),
    column("TOKEN", true, false),
    column("CLAIM", false, false),
];

/// One lock: a title, and its line as a table.
pub fn lock(status: &LockStatus, backend: &str, layout: &Layout) -> String {
    let name = sanitise::text(status.name.as_str());
    let title = if layout.colour { format!("\x1b[1m{name}\x1b[0m") } else { name };
    if status.is_empty() {
        return format!("{title} ({backend}): free\n");
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
    let mut table = Table::new(COLUMNS.to_vec());
    add(&mut table, status, layout.now, false);
    format!("{title} ({backend}): {holding}{waiting}\n{}", text(&table, layout, "  "))
}

/// Many locks as one table; nothing if there are none.
pub fn list(locks: &[LockStatus], layout: &Layout) -> String {
    if locks.iter().all(LockStatus::is_empty) {
        return String::new();
    }
    let mut table = Table::new(COLUMNS.to_vec());
    for status in locks {
        add(&mut table, status, layout.now, true);
    }
    text(&table, layout, "")
}

fn add(table: &mut Table, status: &LockStatus, now: SystemTime, named: bool) {
    let name = || if named { status.name.to_string() } else { String::new() };
    for entry in &status.holders {
        let state = entry.slot.map_or_else(|| "holds".to_owned(), |slot| format!("holds {slot}"));
        table.row(cells(name(), state, entry, now));
    }
    for entry in &status.waiters {
        let state = entry.ahead.map_or_else(|| "waits".to_owned(), |n| format!("waits, {n} ahead"));
        table.row(cells(name(), state, entry, now));
    }
}

fn cells(name: String, state: String, entry: &Entry, now: SystemTime) -> [String; 11] {
    let known = |text: Option<String>| text.unwrap_or_default();
    let holder = match (&entry.user, &entry.host) {
        (Some(user), Some(host)) => format!("{user}@{host}"),
        (Some(one), None) | (None, Some(one)) => one.clone(),
        (None, None) if entry.foreign => "(not dlock)".to_owned(),
        (None, None) => "?".to_owned(),
    };
    let since = entry.since.and_then(|since| now.duration_since(since).ok());
    [
        name,
        state,
        known(entry.mode.map(|mode| mode.to_string())),
        holder,
        known(entry.pid.map(|pid| pid.to_string())),
        known(entry.command.clone()),
        known(entry.label.clone()),
        known(since.map(|since| format!("{} ago", short(since)))),
        known(entry.ttl.map(short)),
        known(entry.token.map(|token| token.to_string())),
        known(entry.claim.map(|claim| claim.to_string())),
    ]
}

/// A table, indented.
pub(super) fn text(table: &Table, layout: &Layout, indent: &str) -> String {
    let lines = table.lines(layout.width.map(|w| w.saturating_sub(indent.len())));
    let mut out = String::new();
    for (n, line) in lines.iter().enumerate() {
        // Dim titles; the rest stays in the terminal's own colours, readable on any background.
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
        let hostile = Entry { ahead: Some(1), label: Some("a\x1b[2J\u{202e}b".into()), ..entry(7, 5) };
        let foreign = Entry { foreign: true, ..Entry::default() };
        LockStatus {
            name: LockName::new(name).expect("valid"),
            holders: vec![holder],
            waiters: vec![hostile, foreign],
        }
    }

    #[test]
    fn a_lock_is_a_title_and_a_table() {
        assert_eq!(
            lock(&status("deploy"), "file", &layout()),
            concat!(
                "deploy (file): held, 2 waiting\n",
                "  STATE           MODE       HOLDER        PID  COMMAND      LABEL                SINCE      \
                 TTL  TOKEN  CLAIM\n",
                "  holds           exclusive  ci@host7     4121  ./deploy.sh                       3m12s ago  \
                 24s     42  1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c\n",
                "  waits, 1 ahead  exclusive  ci@host7        7  ./deploy.sh  a\\u{1b}[2J\\u{202e}b  5s ago                 1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c\n",
                "  waits                      (not dlock)\n",
            )
        );
        let free = LockStatus { holders: vec![], waiters: vec![], ..status("a\u{202e}") };
        assert_eq!(lock(&free, "file", &layout()), "a\\u{202e} (file): free\n");
    }

    #[test]
    fn a_list_has_names_and_fits_the_terminal() {
        let narrow = Layout { width: Some(60), ..layout() };
        let text = list(&[status("deploy"), status("migrate")], &narrow);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 7);
        assert!(lines[0].starts_with("NAME     STATE"), "{}", lines[0]);
        assert!(lines[4].starts_with("migrate  holds"), "{}", lines[4]);
        assert!(lines.iter().all(|l| unicode_width::UnicodeWidthStr::width(*l) <= 60), "{text}");
        assert_eq!(list(&[], &layout()), "");
    }

    #[test]
    fn colour_only_where_asked() {
        assert!(!lock(&status("deploy"), "file", &layout()).contains('\x1b'));
        let colour = Layout { colour: true, ..layout() };
        assert!(lock(&status("deploy"), "file", &colour).starts_with("\x1b[1mdeploy\x1b[0m (file)"));
    }
}
