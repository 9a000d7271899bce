//! The steps that the server executes, and the arguments that its scripts take.

use std::sync::OnceLock;
use std::time::Duration;

use redis::Cmd;
use serde_json::{Value, json};

use super::keys::LockKeys;
use crate::lock::{ClaimId, LockName, Mode};
use crate::net::socket;
use crate::queue::store::{Change, Note, Step};

/// One Lua script; the server knows it by its hash once it has received the text.
#[derive(Debug)]
pub(super) struct Script {
    text: &'static str,
    /// SHA-1 of the text, computed when it is first sent.
    hash: OnceLock<String>,
}

impl Script {
    pub(super) const fn new(text: &'static str) -> Self {
        Self { text, hash: OnceLock::new() }
    }

    fn hash(&self) -> &str {
        self.hash.get_or_init(|| redis::Script::new(self.text).get_hash().to_owned())
    }
}

/// All steps on queues; the first argument selects one.
pub(super) static QUEUE: Script = Script::new(include_str!("queue.lua"));
/// All steps at one node of a Redlock; the first argument selects one.
pub(super) static NODE: Script = Script::new(include_str!("redlock/node.lua"));

/// Returns a length in the form that scripts take.
pub(super) fn millis(length: Duration) -> String {
    length.as_millis().max(1).to_string()
}

pub(super) fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

/// A command, or a script with its keys and arguments.
#[derive(Clone, Debug)]
pub(super) enum Call {
    /// `may_fail` is whether an error reply is an answer like others.
    Command {
        words: Vec<String>,
        may_fail: bool,
    },
    Script {
        script: &'static Script,
        keys: Vec<String>,
        arguments: Vec<String>,
    },
}

impl Call {
    pub(super) fn command(words: impl IntoIterator<Item = impl ToString>) -> Self {
        Self::Command { words: words.into_iter().map(|word| word.to_string()).collect(), may_fail: false }
    }

    /// Returns a command to which an error reply is an answer like others.
    pub(super) fn attempt(words: impl IntoIterator<Item = impl ToString>) -> Self {
        Self::Command { words: words.into_iter().map(|word| word.to_string()).collect(), may_fail: true }
    }

    /// Returns the name of the command that is sent.
    pub(super) fn verb(&self) -> &str {
        match self {
            Self::Command { words, .. } => words.first().map_or("", String::as_str),
            Self::Script { .. } => "EVAL",
        }
    }

    pub(super) fn may_fail(&self) -> bool {
        matches!(self, Self::Command { may_fail: true, .. })
    }

    /// Appends the encoded step; `whole` sends a script's text, for a server that does not know its hash.
    pub(super) fn pack(&self, whole: bool, out: &mut Vec<u8>) {
        let words: &[&[String]] = match self {
            Self::Command { words, .. } => &[words],
            Self::Script { keys, arguments, .. } => &[keys, arguments],
        };
        let words = words.iter().copied().flatten();
        // Three more words, the longest of them a script's text or hash.
        let (count, size) = words.fold((3, 64), |(count, size), word| (count + 1, size + word.len()));
        let mut command = Cmd::with_capacity(count, size);
        match self {
            Self::Command { words, .. } => {
                command.arg(words);
            }
            Self::Script { script, keys, arguments } => {
                if whole {
                    command.arg("EVAL").arg(script.text);
                } else {
                    command.arg("EVALSHA").arg(script.hash());
                }
                command.arg(keys.len()).arg(keys).arg(arguments);
            }
        }
        command.write_packed_command(out);
    }
}

/// Returns `command` of `queue.lua` on the queues of `names`, for the claim `id`.
pub(super) fn on_queues(command: &str, names: &[LockKeys], id: ClaimId, mode: Mode, rest: &[String]) -> Call {
    let mut arguments = vec![command.to_owned(), id.to_string(), mode.to_string()];
    let mut keys = Vec::with_capacity(names.len() * 6);
    for name in names {
        let own = name.claim(id);
        keys.extend([name.lock.clone(), name.queue(), name.writers(), name.leases(), name.counters(), own]);
        arguments.extend([name.claim_prefix(), name.claim_suffix().to_owned()]);
    }
    arguments.extend_from_slice(rest);
    Call::Script { script: &QUEUE, keys, arguments }
}

/// Returns `step` as `commit` in `queue.lua` takes it. `at` is the number of a name.
pub(super) fn written(step: &Step, is_own: bool, at: &dyn Fn(&LockName) -> usize) -> Value {
    match step {
        Step::Hold { slots, .. } => {
            let slots = slots.iter().map(|slot| slot.unwrap_or(0).to_string());
            json!({ "what": "hold", "slots": slots.collect::<Vec<_>>() })
        }
        Step::Remove { id, names, note, .. } => {
            let (why, by) = match note.as_ref().and_then(Note::stored) {
                Some((why, by)) => (Some(why), by),
                // A claim that leaves by itself has had the answers to its requests.
                None => (Some("withdrawn").filter(|_| !is_own), None),
            };
            let by = by.and_then(|by| serde_json::to_string(by).ok()).unwrap_or_default();
            let (names, late) = (names.iter().map(at).collect::<Vec<_>>(), socket::LATE.as_millis());
            let (id, late) = (id.to_string(), u64::try_from(late).unwrap_or(u64::MAX));
            match why {
                Some(why) => {
                    json!({ "what": "remove", "id": id, "names": names, "why": why, "by": by, "late": late })
                }
                None => json!({ "what": "remove", "id": id, "names": names }),
            }
        }
        Step::RemoveForeign(name, _) => json!({ "what": "remove_foreign", "name": at(name) }),
        Step::Change(name, item, change) => {
            let (name, id) = (at(name), &item.key.text);
            let set = |field: &str, value: String| json!({ "what": "change", "name": name, "id": id, "field": field, "value": value });
            match change {
                Change::Asked(by) => set("asked", serde_json::to_string(by).unwrap_or_default()),
                Change::Label(label) => set("label", label.clone()),
                Change::HeldFor(length) => json!({
                    "what": "change", "name": name, "id": id, "field": "held", "held_for": micros(*length)
                }),
            }
        }
        Step::Success { held_for } => json!({ "what": "success", "held_for": micros(*held_for) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_scripts_replicate_effects_before_version_7() {
        for script in [&QUEUE, &NODE] {
            assert!(script.text.contains("redis.replicate_commands()"), "{script:?}");
        }
    }
}
