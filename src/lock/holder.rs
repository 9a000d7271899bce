//! The owner of a claim.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The subcommand that makes a claim, or asks one to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// `run`, or another one that starts a command or only asks.
    #[default]
    Run,
    /// `acquire --for-pid`: the claim of a process that existed before.
    Acquire,
    /// `acquire --detach`: a claim without a process.
    Detach,
    /// `release`: asks a claim of `acquire` to leave without ending its process.
    Release,
    /// A subcommand that only a newer version knows.
    #[serde(other)]
    Other,
}

impl Verb {
    /// Returns whether it is the default, which records omit.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
    fn is_run(&self) -> bool {
        *self == Self::Run
    }
}

/// The owner of a claim, as other clients see it. All texts are untrusted: print them only after sanitising.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Holder {
    /// The host's name.
    pub host: String,
    /// The pid of the process that the user started, in its PID namespace.
    pub pid: u32,
    /// The start time of that process, in ticks after the boot of its host. It distinguishes the process from another
    /// one with the same pid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub born: Option<u64>,
    /// The login name, or the uid as a number.
    pub user: String,
    /// The command's first word; its arguments may contain secrets.
    pub command: String,
    /// The text given with `--label`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Whether it supersedes an older claim with this flag, even a holder, and yields to a newer one (`--replace`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replace: bool,
    /// The subcommand.
    #[serde(default, skip_serializing_if = "Verb::is_run")]
    pub verb: Verb,
}

impl fmt::Display for Holder {
    /// Writes `user@host pid 12 (command, "label")`; not sanitised.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{} pid {}", self.user, self.host, self.pid)?;
        match (self.command.as_str(), &self.label) {
            ("", None) => Ok(()),
            ("", Some(label)) => write!(f, " (\"{label}\")"),
            (command, None) => write!(f, " ({command})"),
            (command, Some(label)) => write!(f, " ({command}, \"{label}\")"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_and_command_are_distinguished() {
        let of = |command: &str, label: Option<&str>| {
            let (command, label) = (command.into(), label.map(str::to_owned));
            Holder { user: "u".into(), host: "h".into(), pid: 1, command, label, ..Holder::default() }
                .to_string()
        };
        assert_eq!(of("", None), "u@h pid 1");
        assert_eq!(of("./x", None), "u@h pid 1 (./x)");
        assert_eq!(of("./x", Some("v1")), "u@h pid 1 (./x, \"v1\")");
        assert_eq!(of("", Some("v1")), "u@h pid 1 (\"v1\")");
    }

    #[test]
    fn records_say_how_a_claim_was_made_only_where_it_matters() {
        let text =
            |verb| serde_json::to_string(&Holder { verb, ..Holder::default() }).expect("texts are JSON");
        assert!(!text(Verb::Run).contains("verb"));
        for verb in [Verb::Run, Verb::Acquire, Verb::Detach, Verb::Release] {
            assert_eq!(serde_json::from_str::<Holder>(&text(verb)).expect("a holder").verb, verb);
        }
        let newer = text(Verb::Detach).replace("detach", "borrow");
        assert_eq!(serde_json::from_str::<Holder>(&newer).expect("a holder").verb, Verb::Other);
    }
}
