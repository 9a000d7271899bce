//! The steps that the server executes, and the arguments that its scripts take.

use std::time::Duration;

use redis::Cmd;

use super::keys::{CLAIM, COUNTERS, LockKeys, QUEUE as LINE};
use crate::lock::{ClaimId, LockName, Mode};
use crate::net::socket;
use crate::queue::store::{Change, Note, Step};

/// One Lua script; the server knows it by the SHA-1 of its text once it has received the text. The hash is written down,
/// since computing it takes a hundredth of a run.
#[derive(Debug)]
pub(super) struct Script {
    text: &'static str,
    hash: &'static str,
}

/// All steps on queues; the first argument selects one.
pub(super) static QUEUE: Script =
    Script { text: include_str!("queue.lua"), hash: "61a299ef4d6a4b9c437f280cddd7abaf78159ef9" };
/// All steps at one node of a Redlock; the first argument selects one.
pub(super) static NODE: Script =
    Script { text: include_str!("redlock/node.lua"), hash: "39d0f643c58bbbf6abb05dbb24e9ee5ffa17968c" };

/// Returns a length in the form that scripts take.
pub(super) fn millis(length: Duration) -> String {
    length.as_millis().max(1).to_string()
}

pub(super) fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

/// A command, or a script with its keys and arguments.
#[derive(Clone, Debug)]
pub(super) struct Call {
    script: Option<&'static Script>,
    /// The words after the script, if there is one.
    words: Vec<String>,
    /// Whether an error reply is an answer like others.
    pub(super) may_fail: bool,
}

impl Call {
    pub(super) fn command(words: impl IntoIterator<Item = impl ToString>) -> Self {
        let words = words.into_iter().map(|word| word.to_string()).collect();
        Self { script: None, words, may_fail: false }
    }

    /// Returns a command to which an error reply is an answer like others.
    pub(super) fn attempt(words: impl IntoIterator<Item = impl ToString>) -> Self {
        Self { may_fail: true, ..Self::command(words) }
    }

    pub(super) fn script(script: &'static Script, keys: Vec<String>, arguments: Vec<String>) -> Self {
        let words = [vec![keys.len().to_string()], keys, arguments].concat();
        Self { script: Some(script), words, may_fail: false }
    }

    /// Appends the encoded step; `whole` sends a script's text, for a server that does not know its hash.
    pub(super) fn pack(&self, whole: bool, out: &mut Vec<u8>) {
        let mut command = Cmd::new();
        match self.script {
            Some(script) if whole => command.arg("EVAL").arg(script.text),
            Some(script) => command.arg("EVALSHA").arg(script.hash),
            None => &mut command,
        };
        command.arg(&self.words).write_packed_command(out);
    }
}

/// Returns `command` of `queue.lua` on the queues of `names`, for the claim `id`.
pub(super) fn on_queues(command: &str, names: &[LockKeys], id: ClaimId, mode: Mode, rest: &[String]) -> Call {
    let mut arguments = vec![command.to_owned(), id.to_string(), mode.to_string()];
    let mut keys = Vec::with_capacity(names.len() * 6);
    for name in names {
        keys.push(name.lock.clone());
        keys.extend([LINE, "writers", "leases", COUNTERS].map(|part| name.side(part)));
        keys.push(name.claim(id));
        arguments.extend([name.side_prefix(CLAIM), name.suffix.clone()]);
    }
    arguments.extend_from_slice(rest);
    Call::script(&QUEUE, keys, arguments)
}

/// Returns the queues that `steps` concern, in the order that [`words`] assumes.
pub(super) fn names_of(steps: &[Step]) -> &[LockName] {
    match steps.first() {
        Some(Step::Remove { names, .. }) => names,
        Some(Step::RemoveForeign(name, _) | Step::Change(name, ..)) => std::slice::from_ref(name),
        Some(Step::Hold { .. } | Step::Success { .. }) | None => &[],
    }
}

/// Returns `steps` as `commit` in `queue.lua` takes them.
pub(super) fn words(steps: &[Step], is_own: bool) -> Vec<String> {
    match steps {
        [Step::Hold { slots, .. }, ..] => {
            let slots = slots.iter().map(|slot| slot.unwrap_or(0).to_string());
            ["hold".to_owned()].into_iter().chain(slots).collect()
        }
        [Step::Remove { id, names, note, .. }, more @ ..] => {
            let held_for = match more {
                [Step::Success { held_for }] => micros(*held_for).to_string(),
                _ => String::new(),
            };
            let mut words = vec!["remove".to_owned(), id.to_string(), names.len().to_string(), held_for];
            let stored = note.as_ref().and_then(Note::stored);
            // A claim that leaves by itself has had the answers to its requests.
            if let Some((why, by)) = stored.or_else(|| (!is_own).then_some(("withdrawn", None))) {
                let by = by.and_then(|by| serde_json::to_string(by).ok()).unwrap_or_default();
                words.extend([millis(socket::LATE), why.to_owned(), by]);
            }
            words
        }
        [Step::Change(_, item, change), ..] => {
            let (field, value) = match change {
                Change::Asked(by) => ("asked", serde_json::to_string(by).unwrap_or_default()),
                Change::Label(label) => ("label", label.clone()),
                Change::HeldFor(length) => ("held", micros(*length).to_string()),
            };
            vec!["change".to_owned(), item.key.text.clone(), field.to_owned(), value]
        }
        [Step::RemoveForeign(..), ..] => vec!["remove_foreign".to_owned()],
        [Step::Success { .. }, ..] | [] => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_texts() {
        for script in [&QUEUE, &NODE] {
            assert_eq!(redis::Script::new(script.text).get_hash(), script.hash);
        }
    }

    #[test]
    fn writing_scripts_replicate_effects_before_version_7() {
        for script in [&QUEUE, &NODE] {
            assert!(script.text.contains("redis.replicate_commands()"), "{script:?}");
        }
    }
}
