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
    Script::entering("c3f092fe359c952df7dccdcab5633ca3a0bde4aa", on_queues!("enter.lua"));
pub(super) static ORDER: Script =
    Script::new("4c097c826d93b524ecc68d4d8bbcd38c28be44bd", on_queues!("order.lua"));
pub(super) static ADJUST: Script =
    Script::new("75cd6d18e99a2c34f38e042dac156ea24a6d3044", on_queues!("adjust.lua"));
pub(super) static CONFIRM: Script =
    Script::new("f924b696380a77bcd4f4e264990d76055d277e89", on_queues!("confirm.lua"));
pub(super) static ASSURE: Script =
    Script::new("62c0c40750bc2183600207a1cf835403317fb250", on_queues!("assure.lua"));
pub(super) static LOOK: Script =
    Script::new("6be140f31aabe1e0d82cc05092a591f66dd10b9c", on_queues!("look.lua"));
pub(super) static RENEW: Script =
    Script::new("8a585ef4873a81e716366767d59e6c3b858e18ef", on_queues!("renew.lua"));
pub(super) static LEAVE: Script =
    Script::leaving("a75861625e5cfc0731d44cf76f6afa8ddb8ed0eb", on_queues!("../success.lua", "leave.lua"));
pub(super) static PUBLISH: Script =
    Script::new("b1b51d401fd8555cc1d9e14ea157cf9cbc336938", on_queues!("../publish.lua"));
pub(super) static EVICT: Script = Script::in_full(on_queues!("../evict.lua"));
pub(super) static EVICT_FOREIGN: Script = Script::new(
    "8a3a6088a7a74fd6bdd9f24087fc5030bfbba94c",
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
