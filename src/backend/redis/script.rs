//! The steps that the server executes atomically.

use std::sync::OnceLock;
use std::time::Duration;

use redis::Cmd;

use super::keys::LockKeys;
use crate::lock::{ClaimId, Mode};

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
/// The steps on an exclusive hold that need only its lock's key.
pub(super) static HOLD: Script = Script::new(include_str!("hold.lua"));
/// All steps at one node of a Redlock; the first argument selects one.
pub(super) static NODE: Script = Script::new(include_str!("redlock/node.lua"));

/// Returns a length in the form that scripts take.
pub(super) fn millis(length: Duration) -> String {
    length.as_millis().max(1).to_string()
}

/// A command, or a script with its keys and arguments.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Command(Vec<String>),
    Script { script: &'static Script, keys: Vec<String>, arguments: Vec<String> },
}

impl Call {
    pub(super) fn command<const N: usize>(words: [&str; N]) -> Self {
        Self::Command(words.map(str::to_owned).to_vec())
    }

    /// Returns the name of the command that is sent.
    pub(super) fn verb(&self) -> &str {
        match self {
            Self::Command(words) => words.first().map_or("", String::as_str),
            Self::Script { .. } => "EVAL",
        }
    }

    /// Returns whether it ends claims, which may change the state of others.
    pub(super) fn frees(&self) -> bool {
        let Self::Script { arguments, .. } = self else { return false };
        matches!(arguments.first().map(String::as_str), Some("commit" | "leave" | "evict" | "evict_foreign"))
    }

    /// Appends the encoded step; `whole` sends a script's text, for a server that does not know its hash.
    pub(super) fn pack(&self, whole: bool, out: &mut Vec<u8>) {
        let words: &[&[String]] = match self {
            Self::Command(words) => &[words],
            Self::Script { keys, arguments, .. } => &[keys, arguments],
        };
        let words = words.iter().copied().flatten();
        // Three more words, the longest of them a script's text or hash.
        let (count, size) = words.fold((3, 64), |(count, size), word| (count + 1, size + word.len()));
        let mut command = Cmd::with_capacity(count, size);
        match self {
            Self::Command(words) => {
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

/// Returns the step of `hold.lua` that renews an exclusive hold by `ttl`, or releases it without one.
pub(super) fn on_hold(names: &[LockKeys], id: ClaimId, ttl: Option<Duration>) -> Call {
    let details = names.iter().flat_map(|name| [name.leases(), name.claim(id), name.queue(), name.writers()]);
    let ttl = ttl.map_or_else(|| "0".to_owned(), millis);
    let arguments = [id.to_string(), ttl].into_iter().chain(details).collect();
    Call::Script { script: &HOLD, keys: names.iter().map(|name| name.lock.clone()).collect(), arguments }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_scripts_replicate_effects_before_version_7() {
        for script in [&QUEUE, &HOLD, &NODE] {
            assert!(script.text.contains("redis.replicate_commands()"), "{script:?}");
        }
    }
}
