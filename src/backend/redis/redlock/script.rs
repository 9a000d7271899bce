//! The steps that one node takes in one piece.

use crate::backend::redis::script::Script;

macro_rules! text {
    ($($file:literal),+) => { concat!($(include_str!($file)),+) };
}

/// What follows on the library for lines.
macro_rules! on_lines {
    ($($file:literal),+) => { text!("head.lua", "../clock.lua", "../common.lua", "quorum.lua", $($file),+) };
}

pub(super) static ENTER: Script =
    Script::entering("8dbf38073adfb58de60d70602a0bc1a293027d43", on_lines!("enter.lua"));
pub(super) static ORDER: Script =
    Script::new("8255b2a3d48cff7b694dc4001ed7c8310eeb4b4a", on_lines!("order.lua"));
pub(super) static ADJUST: Script =
    Script::new("a0ee1247a8837561e8bd54804037f5b6531dec3c", on_lines!("adjust.lua"));
pub(super) static CONFIRM: Script =
    Script::new("a12820af394c3dd21cb20f1984caa802f361d7d2", on_lines!("confirm.lua"));
pub(super) static LOOK: Script =
    Script::new("35ed4d6614446663bd117c87c1e0034a8b7765da", on_lines!("look.lua"));
pub(super) static RENEW: Script =
    Script::new("b2daa56b27e7825664ea8a4d647b65a4def66941", on_lines!("renew.lua"));
pub(super) static LEAVE: Script =
    Script::leaving("1533c40426cb53c5f2af74f397d2b1165b7e1107", on_lines!("leave.lua"));
pub(super) static PUBLISH: Script =
    Script::new("1831da8a5064c27fd08c252fc4a0faf49f248964", on_lines!("../publish.lua"));
pub(super) static EVICT: Script = Script::in_full(on_lines!("../evict.lua"));
pub(super) static EVICT_FOREIGN: Script = Script::new(
    "94f10a079fb104ea458b93f311228afbbbb7c73e",
    on_lines!("../foreign.lua", "../evict_foreign.lua"),
);
pub(super) static INSPECT: Script =
    Script::new("1092b2a60f3574980f4ad494094c6a58ca293227", text!("../foreign.lua", "inspect.lua"));

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
