//! The steps that one node takes in one piece.

use crate::backend::redis::script::Script;

macro_rules! text {
    ($($file:literal),+) => { concat!($(include_str!($file)),+) };
}

/// What follows on the library for queues.
macro_rules! on_queues {
    ($($file:literal),+) => { text!("head.lua", "../clock.lua", "../common.lua", "quorum.lua", $($file),+) };
}

pub(super) static ENTER: Script =
    Script::entering("d79806e6558787d8d469670e514aa18e6abccc2b", on_queues!("enter.lua"));
pub(super) static ORDER: Script =
    Script::new("c98a4b3e2b6143329cdeb96baa9dfdd34f5045b1", on_queues!("order.lua"));
pub(super) static ADJUST: Script =
    Script::new("8e6ad552a349cb9d92fc4532a83a3fb0396714a3", on_queues!("adjust.lua"));
pub(super) static CONFIRM: Script =
    Script::new("1253bf0ea64587dfa9343ca37922bde64a172982", on_queues!("confirm.lua"));
pub(super) static ASSURE: Script =
    Script::new("a63b2b864d5b118c75c6ba04eec90cb127bc8c3b", on_queues!("assure.lua"));
pub(super) static LOOK: Script =
    Script::new("c972f85729ac9da879bfd8e09c84d879bc092989", on_queues!("look.lua"));
pub(super) static RENEW: Script =
    Script::new("f7cba7c9bf8d2239e0c00d263f23653b45f9d215", on_queues!("renew.lua"));
pub(super) static LEAVE: Script =
    Script::leaving("452225cab921545230c469f8bcc9e3f46bcf5eb6", on_queues!("../success.lua", "leave.lua"));
pub(super) static PUBLISH: Script =
    Script::new("69427ebe0cfe05294eb9f2b25b2ed6eae2fd902c", on_queues!("../publish.lua"));
pub(super) static EVICT: Script = Script::in_full(on_queues!("../evict.lua"));
pub(super) static EVICT_FOREIGN: Script = Script::new(
    "823e44ccb889657e331252781cc47446e05140de",
    on_queues!("../foreign.lua", "../evict_foreign.lua"),
);
pub(super) static INSPECT: Script =
    Script::new("97f308fdf3abddf624cb543495340e3fac26ee11", text!("../foreign.lua", "inspect.lua"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_texts() {
        for script in [
            &ENTER,
            &ORDER,
            &ADJUST,
            &CONFIRM,
            &ASSURE,
            &LOOK,
            &RENEW,
            &LEAVE,
            &PUBLISH,
            &EVICT,
            &EVICT_FOREIGN,
            &INSPECT,
        ] {
            assert!(script.is_named_rightly(), "{script:?}");
        }
    }
}
