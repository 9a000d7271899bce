//! Holders, waiters and other clients, as a message names them.

use std::fmt;
use std::time::SystemTime;

use serde::Serialize;

use super::{Ms, sanitise};
use crate::lock::duration::rough;
use crate::lock::{Entry, Holder};

/// A client in a message: `ci@host7 pid 4121 (./deploy.sh, "v1.2") for 3m12s`, the label in quotation marks.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Party {
    /// The claim, in hexadecimal.
    pub claim: Option<String>,
    /// The user.
    pub user: Option<String>,
    /// The host.
    pub host: Option<String>,
    /// The pid.
    pub pid: Option<u32>,
    /// The command's first word.
    pub command: Option<String>,
    /// The text given with `--label`.
    pub label: Option<String>,
    /// The place of an entry that another program made: `key lock:x`.
    pub key: Option<String>,
    /// How long it has held or waited.
    #[serde(rename = "for_ms")]
    pub since: Option<Ms>,
    /// Whether another program made the entry.
    pub foreign: bool,
}

impl Party {
    /// Returns the owner of `entry`, at the time `now`.
    pub fn of(entry: &Entry, now: SystemTime) -> Self {
        Self {
            claim: entry.claim.map(|id| id.to_string()),
            user: entry.user.clone(),
            host: entry.host.clone(),
            pid: entry.pid,
            command: entry.command.clone().filter(|c| !c.is_empty()),
            label: entry.label.clone(),
            key: entry.key.clone(),
            // After a clock was set back the length would be negative: it is left out.
            since: entry.since.and_then(|since| now.duration_since(since).ok()).map(Ms),
            foreign: entry.foreign,
        }
    }
}

impl From<&Holder> for Party {
    fn from(holder: &Holder) -> Self {
        Self {
            user: Some(holder.user.clone()),
            host: Some(holder.host.clone()),
            pid: Some(holder.pid),
            command: Some(holder.command.clone()).filter(|c| !c.is_empty()),
            label: holder.label.clone(),
            ..Self::default()
        }
    }
}

impl fmt::Display for Party {
    /// Writes the sanitised text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.user, &self.host) {
            (Some(user), Some(host)) => {
                write!(f, "{}@{}", sanitise::text(user), sanitise::text(host))?;
            }
            (None, Some(host)) if self.foreign => write!(f, "another client on {}", sanitise::text(host))?,
            (None, Some(host)) => write!(f, "a client on {}", sanitise::text(host))?,
            (Some(user), None) => f.write_str(&sanitise::text(user))?,
            (None, None) if self.foreign => f.write_str("a client other than dlock")?,
            (None, None) => f.write_str("an unknown client")?,
        }
        if let Some(pid) = self.pid {
            write!(f, " pid {pid}")?;
        }
        let command = self.command.as_deref().map(sanitise::text);
        let label = self.label.as_deref().map(|label| format!("\"{}\"", sanitise::text(label)));
        // A pid tells more than a key.
        let key = self.key.as_deref().filter(|_| self.pid.is_none()).map(sanitise::text);
        let known: Vec<String> = [command, label, key].into_iter().flatten().collect();
        if !known.is_empty() {
            write!(f, " ({})", known.join(", "))?;
        }
        match self.since {
            Some(since) => write!(f, " for {}", rough(since.0)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn party_shows_its_known_fields() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let full = Entry {
            user: Some("ci".into()),
            host: Some("host7".into()),
            pid: Some(4121),
            command: Some("./deploy.sh".into()),
            since: Some(now - Duration::from_secs(192)),
            ..Entry::default()
        };
        assert_eq!(Party::of(&full, now).to_string(), "ci@host7 pid 4121 (./deploy.sh) for 3m12s");
        let labelled = Entry { label: Some("v1\x1b".into()), ..full };
        let said = "ci@host7 pid 4121 (./deploy.sh, \"v1\\u{1b}\") for 3m12s";
        assert_eq!(Party::of(&labelled, now).to_string(), said);
        let bare = Entry { command: None, since: Some(now), ..labelled };
        assert_eq!(Party::of(&bare, now).to_string(), "ci@host7 pid 4121 (\"v1\\u{1b}\") for <1s");
        let foreign = Entry { foreign: true, pid: Some(7), ..Entry::default() };
        assert_eq!(Party::of(&foreign, now).to_string(), "a client other than dlock pid 7");
        let key = Some("key lock:x\n".into());
        let keyed = Entry { key: key.clone(), label: Some("v1".into()), pid: None, ..foreign };
        let said = "a client other than dlock (\"v1\", key lock:x\\n)";
        assert_eq!(Party::of(&keyed, now).to_string(), said);
        let process = Entry { key, label: None, pid: Some(7), ..keyed };
        assert_eq!(Party::of(&process, now).to_string(), "a client other than dlock pid 7");
        let ahead_of_us = Entry { since: Some(now + Duration::from_secs(9)), ..Entry::default() };
        assert_eq!(Party::of(&ahead_of_us, now).to_string(), "an unknown client");
    }

    #[test]
    fn hostile_owners_stay_on_their_line() {
        let holder = Holder {
            host: "h\n".into(),
            pid: 1,
            user: "\x1b]0;x\x07".into(),
            command: "a\u{202e}b".into(),
            ..Holder::default()
        };
        assert_eq!(Party::from(&holder).to_string(), "\\u{1b}]0;x\\u{7}@h\\n pid 1 (a\\u{202e}b)");
    }
}
