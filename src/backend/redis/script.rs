//! The steps that the server takes in one piece.

use redis::Cmd;

/// One Lua script; the server knows it by its hash once it has seen its text.
#[derive(Debug)]
pub(super) struct Script {
    text: &'static str,
    /// SHA-1 of the text, written down so that no run has to work it out; a test compares.
    hash: &'static str,
}

impl Script {
    pub(super) const fn new(hash: &'static str, text: &'static str) -> Self {
        Self { text, hash }
    }

    #[cfg(test)]
    pub(super) fn is_named_rightly(&self) -> bool {
        self.hash == redis::Script::new(self.text).get_hash()
    }
}

macro_rules! script {
    ($hash:literal, $($file:literal),+) => {
        Script { text: concat!($(include_str!($file)),+), hash: $hash }
    };
}

pub(super) static ENTER: Script = script!(
    "a990deea1dcdeb01a10c65fafcbaf7c4d4b32d88",
    "head.lua",
    "clock.lua",
    "enter_free.lua",
    "line.lua",
    "enter.lua"
);
pub(super) static LOOK: Script =
    script!("8314160353fcffd18f4311e712fc43dab7819db4", "head.lua", "clock.lua", "line.lua", "look.lua");
pub(super) static RENEW: Script =
    script!("d83efaae1f757877385af8b57e10054854797493", "head.lua", "clock.lua", "line.lua", "renew.lua");
pub(super) static LEAVE: Script = script!(
    "171bac2ff8ca28d2b919e93739d8d80ac757765d",
    "head.lua",
    "leave_alone.lua",
    "clock.lua",
    "line.lua",
    "leave.lua"
);
pub(super) static EVICT: Script =
    script!("bfb0f89b887b9c30ff23910d138f54e3f00413c6", "head.lua", "clock.lua", "line.lua", "evict.lua");
pub(super) static PUBLISH: Script =
    script!("2e9e83b784661ac455b526a71046ee8a46eba22d", "head.lua", "clock.lua", "line.lua", "publish.lua");
pub(super) static HOLD: Script = script!("7419b7488513b3294d7b4babb43cd5bb9c90d5f5", "hold.lua");
pub(super) static FREE: Script = script!("bc9af1942289349a90631c15e1a4388c58792907", "free.lua");
pub(super) static INSPECT: Script = script!("82079119cb02fbd4a2372bcd950d6f2ec901e045", "inspect.lua");

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

    /// Whether others may stand otherwise after it.
    pub(super) fn frees(&self) -> bool {
        matches!(self, Self::Script { script, .. } if [&LEAVE, &FREE, &EVICT].iter().any(|other| std::ptr::eq(*script, *other)))
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
        for script in [&ENTER, &LOOK, &RENEW, &LEAVE, &EVICT, &PUBLISH, &HOLD, &FREE, &INSPECT] {
            assert_eq!(script.hash, redis::Script::new(script.text).get_hash(), "of {}", script.text);
        }
    }
}
