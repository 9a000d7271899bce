//! The steps that the server takes in one piece.

use std::time::Duration;

use redis::Cmd;

use crate::backend::Evict;

/// One Lua script; the server knows it by its hash once it has seen its text.
#[derive(Debug)]
pub(super) struct Script {
    text: &'static str,
    /// SHA-1 of the text, written down so that no run has to work it out; a test compares.
    hash: &'static str,
    /// Whether it makes an entry of the claim that its first argument names.
    enters: bool,
}

impl Script {
    pub(super) const fn new(hash: &'static str, text: &'static str) -> Self {
        Self { text, hash, enters: false }
    }

    /// One that makes an entry.
    pub(super) const fn entering(hash: &'static str, text: &'static str) -> Self {
        Self { text, hash, enters: true }
    }

    #[cfg(test)]
    pub(super) fn is_named_rightly(&self) -> bool {
        self.hash == redis::Script::new(self.text).get_hash()
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

macro_rules! script {
    ($hash:literal, $($file:literal),+) => {
        Script::new($hash, concat!($(include_str!($file)),+))
    };
}

/// What follows on the library for lines.
macro_rules! on_lines {
    ($hash:literal, $($file:literal),+) => {
        script!($hash, "head.lua", "clock.lua", "common.lua", "line.lua", $($file),+)
    };
}

pub(super) static ENTER: Script = Script::entering(
    "149126ad36bbe73f9cae467567f363a3b039a2f6",
    concat!(
        include_str!("head.lua"),
        include_str!("clock.lua"),
        include_str!("enter_free.lua"),
        include_str!("common.lua"),
        include_str!("line.lua"),
        include_str!("enter.lua")
    ),
);
pub(super) static LOOK: Script = on_lines!("779d1be0c81c3c413bd0b4db0e2d7f47be379916", "look.lua");
pub(super) static RENEW: Script = on_lines!("28c87f58c5f2d4693b7acb6076fc6d565d901031", "renew.lua");
pub(super) static LEAVE: Script = script!(
    "26eb94160c7acf6e89f610ef3c3a10998a8891d6",
    "head.lua",
    "leave_alone.lua",
    "clock.lua",
    "common.lua",
    "line.lua",
    "leave.lua"
);
pub(super) static EVICT: Script = on_lines!("797fb79a80a5ceecb22fbb911e012598d1a73119", "evict.lua");
pub(super) static EVICT_FOREIGN: Script =
    on_lines!("53bffdd9aa6734fb01a2a1e644b4ed42a41b1b25", "foreign.lua", "evict_foreign.lua");
pub(super) static PUBLISH: Script = on_lines!("acb6a5e82c0bd4a927bad6366f478a9732f024bb", "publish.lua");
pub(super) static HOLD: Script = script!("7419b7488513b3294d7b4babb43cd5bb9c90d5f5", "hold.lua");
pub(super) static FREE: Script = script!("bc9af1942289349a90631c15e1a4388c58792907", "free.lua");
pub(super) static INSPECT: Script =
    script!("01f6f562060257c081cd870143adfb0c8905ab74", "foreign.lua", "inspect.lua");

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
                if whole {
                    command.arg("EVAL").arg(script.text);
                } else {
                    command.arg("EVALSHA").arg(script.hash);
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

    #[test]
    fn hashes_are_those_of_the_texts() {
        for script in
            [&ENTER, &LOOK, &RENEW, &LEAVE, &EVICT, &EVICT_FOREIGN, &PUBLISH, &HOLD, &FREE, &INSPECT]
        {
            assert_eq!(script.hash, redis::Script::new(script.text).get_hash(), "of {}", script.text);
        }
    }
}
