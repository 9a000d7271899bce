//! The steps that the server takes in one piece.

use std::sync::OnceLock;
use std::time::Duration;

use redis::Cmd;

use crate::backend::Evict;
use crate::lock::Request;

/// One Lua script; the server knows it by its hash once it has seen its text.
#[derive(Debug)]
pub(super) struct Script {
    text: &'static str,
    /// SHA-1 of the text, computed when it is first sent.
    hash: OnceLock<String>,
    /// Whether the text itself is always sent.
    in_full: bool,
    /// Whether it makes an entry of the claim that its first argument names.
    enters: bool,
    /// Whether it takes out what its own claim has.
    leaves: bool,
}

impl Script {
    pub(super) const fn new(text: &'static str) -> Self {
        Self { text, hash: OnceLock::new(), in_full: false, enters: false, leaves: false }
    }

    /// One that makes an entry.
    pub(super) const fn entering(text: &'static str) -> Self {
        Self { text, hash: OnceLock::new(), in_full: false, enters: true, leaves: false }
    }

    /// One that takes out what its own claim has.
    pub(super) const fn leaving(text: &'static str) -> Self {
        Self { text, hash: OnceLock::new(), in_full: false, enters: false, leaves: true }
    }

    /// One that is needed seldom, and then also by somebody who may not be there any more when the server answers that it
    /// does not know the hash.
    pub(super) const fn in_full(text: &'static str) -> Self {
        Self { text, hash: OnceLock::new(), in_full: true, enters: false, leaves: false }
    }

    fn hash(&self) -> &str {
        self.hash.get_or_init(|| redis::Script::new(self.text).get_hash().to_owned())
    }
}

/// A length as scripts take it.
pub(super) fn millis(length: Duration) -> String {
    length.as_millis().max(1).to_string()
}

/// How to remove an entry, as scripts take it.
pub(super) fn word_for(how: Evict) -> &'static str {
    match how {
        Evict::Ask => "ask",
        Evict::Force => "force",
    }
}

/// Whether a claim takes the place of older ones that say so too, as scripts take it.
pub(super) fn newest(request: &Request) -> &'static str {
    if request.supersede { "1" } else { "0" }
}

macro_rules! text {
    ($($file:literal),+) => { concat!($(include_str!($file)),+) };
}

/// What follows on the library for queues.
macro_rules! on_queues {
    ($($file:literal),+) => { text!("head.lua", "clock.lua", "common.lua", "queue.lua", $($file),+) };
}

pub(super) static ENTER: Script = Script::entering(text!(
    "head.lua",
    "clock.lua",
    "enter_free.lua",
    "common.lua",
    "queue.lua",
    "enter.lua"
));
pub(super) static LOOK: Script = Script::new(on_queues!("look.lua"));
pub(super) static RENEW: Script = Script::new(on_queues!("renew.lua"));
pub(super) static LEAVE: Script = Script::leaving(text!(
    "head.lua",
    "success.lua",
    "leave_alone.lua",
    "clock.lua",
    "common.lua",
    "queue.lua",
    "leave.lua"
));
pub(super) static EVICT: Script = Script::in_full(on_queues!("evict.lua"));
pub(super) static EVICT_FOREIGN: Script = Script::new(on_queues!("foreign.lua", "evict_foreign.lua"));
pub(super) static PUBLISH: Script = Script::new(on_queues!("publish.lua"));
pub(super) static HOLD: Script = Script::new(text!("hold.lua"));
pub(super) static FREE: Script = Script::leaving(text!("free.lua"));
/// Lists a claim among the nested ones.
pub(super) static LIST: Script = Script::new(text!("clock.lua", "list.lua"));
/// Takes one off that list that stands in no queue.
pub(super) static UNLIST: Script = Script::in_full(text!("clock.lua", "unlist.lua"));
pub(super) static INSPECT: Script = Script::new(text!("foreign.lua", "inspect.lua"));

/// A command, or a script with its keys and arguments.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Command(Vec<String>),
    Script { script: &'static Script, keys: Vec<String>, arguments: Vec<String> },
}

impl Step {
    pub(super) fn command<const N: usize>(words: [&str; N]) -> Self {
        Self::Command(words.map(str::to_owned).to_vec())
    }

    /// The claim of which it makes an entry, if it does.
    pub(super) fn enters(&self) -> Option<&str> {
        match self {
            Self::Script { script, arguments, .. } if script.enters => arguments.first().map(String::as_str),
            _ => None,
        }
    }

    /// The same with another last argument.
    pub(super) fn with_last(mut self, word: String) -> Self {
        if let Self::Script { arguments, .. } = &mut self
            && let Some(last) = arguments.last_mut()
        {
            *last = word;
        }
        self
    }

    /// Whether it takes out what its own claim has.
    pub(super) fn leaves(&self) -> bool {
        matches!(self, Self::Script { script, .. } if script.leaves)
    }

    /// Whether others may stand otherwise after it.
    pub(super) fn frees(&self) -> bool {
        matches!(self, Self::Script { script, .. } if [&LEAVE, &FREE, &EVICT, &EVICT_FOREIGN].iter().any(|other| std::ptr::eq(*script, *other)))
    }

    /// Appends the step as it is sent; `whole` sends a script's text, for a server that does not know its hash.
    pub(super) fn pack(&self, whole: bool, out: &mut Vec<u8>) {
        let words: &[&[String]] = match self {
            Self::Command(words) => &[words],
            Self::Script { keys, arguments, .. } => &[keys, arguments],
        };
        let words = words.iter().copied().flatten();
        // Three more words, the longest of them a text or a hash.
        let (count, size) = words.fold((3, 64), |(count, size), word| (count + 1, size + word.len()));
        let mut command = Cmd::with_capacity(count, size);
        match self {
            Self::Command(words) => {
                command.arg(words);
            }
            Self::Script { script, keys, arguments } => {
                if whole || script.in_full {
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

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [&Script; 12] = [
        &ENTER,
        &LOOK,
        &RENEW,
        &LEAVE,
        &EVICT,
        &EVICT_FOREIGN,
        &PUBLISH,
        &HOLD,
        &FREE,
        &LIST,
        &UNLIST,
        &INSPECT,
    ];

    #[test]
    fn what_asks_for_a_time_and_writes_says_so_to_servers_before_7() {
        for script in ALL {
            let has = |words: &[&str]| words.iter().any(|word| script.text.contains(word));
            let writes = has(&["'SET'", "'HSET'", "'DEL'", "'ZADD'", "'ZREM'", "'PEXPIRE'"]);
            if has(&["'TIME'", "'PTTL'"]) && writes {
                assert!(has(&["redis.replicate_commands()"]), "{script:?}");
            }
        }
    }
}
