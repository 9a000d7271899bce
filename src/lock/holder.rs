//! Who a claim belongs to.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The subcommand by which somebody made a claim, or asks one to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// `run`, or another one that has a command of its own or only asks.
    #[default]
    Run,
    /// `acquire --for-pid`: the claim of a process that was there before.
    Acquire,
    /// `acquire --detach`: the claim of nobody's process.
    Detach,
    /// `release`: asks a claim of `acquire` to leave and to end nothing.
    Release,
    /// One that only a newer version knows.
    #[serde(other)]
    Other,
}

impl Verb {
    /// Whether it is what a record that says nothing of it means.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
    fn is_run(&self) -> bool {
        *self == Self::Run
    }
}

/// The owner of a claim, as others see it. All texts are other people's: whoever prints them sanitises them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Holder {
    /// The host's name.
    pub host: String,
    /// The pid of the process that the user started, in its own PID namespace.
    pub pid: u32,
    /// When that process was born, in ticks after the boot of its host: it tells the process from another one of that number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub born: Option<u64>,
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
    /// By which subcommand.
    #[serde(default, skip_serializing_if = "Verb::is_run")]
    pub verb: Verb,
}

impl fmt::Display for Holder {
    /// `user@host pid 12 (command, "label")`; not sanitised.
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
    fn the_label_is_told_from_the_command() {
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
