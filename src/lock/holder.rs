//! Who a claim belongs to.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The owner of a claim, as others see it. All texts are other people's: whoever prints them sanitises them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Holder {
    /// The host's name.
    pub host: String,
    /// The pid of the process that the user started, in its own PID namespace.
    pub pid: u32,
    /// The login name, or the uid as a number.
    pub user: String,
    /// The command's first word; its arguments may hold secrets.
    pub command: String,
    /// The text given with `--label`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Whether it takes the place of an older claim that says so too, be it the holder's, and makes way itself
    /// (`--replace`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replace: bool,
}

impl fmt::Display for Holder {
    /// `user@host pid 12 (command)`; not sanitised.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{} pid {}", self.user, self.host, self.pid)?;
        if self.command.is_empty() { Ok(()) } else { write!(f, " ({})", self.command) }
    }
}
