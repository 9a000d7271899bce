//! The steps that the server takes in one piece.

use std::time::Duration;

use redis::Cmd;

use crate::backend::Evict;
use crate::lock::Request;

/// One Lua script; the server knows it by its hash once it has seen its text.
#[derive(Debug)]
pub(super) struct Script {
    text: &'static str,
    /// SHA-1 of the text, written down so that no run has to work it out; a test compares. `None` of one whose text is
    /// always sent.
    hash: Option<&'static str>,
    /// Whether it makes an entry of the claim that its first argument names.
    enters: bool,
    /// Whether it takes out what its own claim has.
    leaves: bool,
}

impl Script {
    pub(super) const fn new(hash: &'static str, text: &'static str) -> Self {
        Self { text, hash: Some(hash), enters: false, leaves: false }
    }

    /// One that makes an entry.
    pub(super) const fn entering(hash: &'static str, text: &'static str) -> Self {
        Self { text, hash: Some(hash), enters: true, leaves: false }
    }

    /// One that takes out what its own claim has.
    pub(super) const fn leaving(hash: &'static str, text: &'static str) -> Self {
        Self { text, hash: Some(hash), enters: false, leaves: true }
    }

    /// One that is needed seldom, and then also by somebody who may not be there any more when the server answers that it
    /// does not know the hash.
    pub(super) const fn in_full(text: &'static str) -> Self {
        Self { text, hash: None, enters: false, leaves: false }
    }

    #[cfg(test)]
    pub(super) fn is_named_rightly(&self) -> bool {
        self.hash.is_none_or(|hash| hash == redis::Script::new(self.text).get_hash())
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

pub(super) static ENTER: Script = Script::entering(
    "78b9448aff8b840f20d59ee46395f47adc766f78",
    text!("head.lua", "clock.lua", "enter_free.lua", "common.lua", "queue.lua", "enter.lua"),
);
pub(super) static LOOK: Script =
    Script::new("b720d235a6125cbdb3a967137b9d808a32dce303", on_queues!("look.lua"));
pub(super) static RENEW: Script =
    Script::new("80a68de4ed1c8570d3e043e9a0a487621806edcc", on_queues!("renew.lua"));
pub(super) static LEAVE: Script = Script::leaving(
    "cf53cb7aedddee795cc84866de01fed978203cc1",
    text!("head.lua", "success.lua", "leave_alone.lua", "clock.lua", "common.lua", "queue.lua", "leave.lua"),
);
pub(super) static EVICT: Script = Script::in_full(on_queues!("evict.lua"));
pub(super) static EVICT_FOREIGN: Script =
    Script::new("0957be6d6a8f79767f6a5a856c702453e6bc1b40", on_queues!("foreign.lua", "evict_foreign.lua"));
pub(super) static PUBLISH: Script =
    Script::new("55fa4df8ec5d4d2527077abb360aa84d3b3f85d9", on_queues!("publish.lua"));
pub(super) static HOLD: Script = Script::new("335a130e471a3de76921d0bfa79be6c523115d92", text!("hold.lua"));
pub(super) static FREE: Script =
    Script::leaving("bc9af1942289349a90631c15e1a4388c58792907", text!("free.lua"));
/// Lists a claim among the nested ones.
pub(super) static LIST: Script =
    Script::new("bb5b36cbbed3255988881a5cb5e3ecbef8f2e1ae", text!("clock.lua", "list.lua"));
/// Takes one off that list that stands in no queue.
pub(super) static UNLIST: Script = Script::in_full(text!("clock.lua", "unlist.lua"));
pub(super) static INSPECT: Script =
    Script::new("7db1daa1ccd6b30fbf04291a41a492d7ce9c0026", text!("foreign.lua", "inspect.lua"));

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
                match script.hash.filter(|_| !whole) {
                    Some(hash) => command.arg("EVALSHA").arg(hash),
                    None => command.arg("EVAL").arg(script.text),
                };
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
    fn hashes_are_those_of_the_texts() {
        for script in ALL {
            assert!(script.is_named_rightly(), "{script:?}");
        }
    }

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
