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
    Script::entering("05dcf9c266eb29f2597c21e32a9f7a947d021f61", on_queues!("enter.lua"));
pub(super) static ORDER: Script =
    Script::new("2c4a0fa132ffa68bc28877a0f0c78b0e541a073f", on_queues!("order.lua"));
pub(super) static ADJUST: Script =
    Script::new("c78dfde4eae50aa5b365ce6349c2de4cfa89961c", on_queues!("adjust.lua"));
pub(super) static CONFIRM: Script =
    Script::new("8f79897c0df518674c3c101bd1efd5d5a911608a", on_queues!("confirm.lua"));
pub(super) static LOOK: Script =
    Script::new("cfad04e5f6eebb89b0084f60c5e0d9857dbe4107", on_queues!("look.lua"));
pub(super) static RENEW: Script =
    Script::new("9eb5e0039da780d9247631c8e969a17c17b697a8", on_queues!("renew.lua"));
pub(super) static LEAVE: Script =
    Script::leaving("e3d651d692d4f15f5ff781fedd9ee37b57318e88", on_queues!("../success.lua", "leave.lua"));
pub(super) static PUBLISH: Script =
    Script::new("7bb073a980bc54cfac75fef1d13be2a0096d9b8e", on_queues!("../publish.lua"));
pub(super) static EVICT: Script = Script::in_full(on_queues!("../evict.lua"));
pub(super) static EVICT_FOREIGN: Script = Script::new(
    "b0d864c9ff6eb579d4f9dde40b5d7529e6d3b49c",
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
