//! The steps that one node takes in one piece.

use crate::backend::redis::script::Script;

macro_rules! script {
    ($hash:literal, $($file:literal),+) => { Script::new($hash, concat!($(include_str!($file)),+)) };
}

/// What follows on the library for lines.
macro_rules! on_lines {
    ($hash:literal, $($file:literal),+) => {
        script!($hash, "head.lua", "../clock.lua", "../common.lua", "quorum.lua", $($file),+)
    };
}

pub(super) static ENTER: Script = Script::entering(
    "8dbf38073adfb58de60d70602a0bc1a293027d43",
    concat!(
        include_str!("head.lua"),
        include_str!("../clock.lua"),
        include_str!("../common.lua"),
        include_str!("quorum.lua"),
        include_str!("enter.lua")
    ),
);
pub(super) static ORDER: Script = on_lines!("8255b2a3d48cff7b694dc4001ed7c8310eeb4b4a", "order.lua");
pub(super) static ADJUST: Script = on_lines!("a0ee1247a8837561e8bd54804037f5b6531dec3c", "adjust.lua");
pub(super) static CONFIRM: Script = on_lines!("a12820af394c3dd21cb20f1984caa802f361d7d2", "confirm.lua");
pub(super) static LOOK: Script = on_lines!("35ed4d6614446663bd117c87c1e0034a8b7765da", "look.lua");
pub(super) static RENEW: Script = on_lines!("b2daa56b27e7825664ea8a4d647b65a4def66941", "renew.lua");
pub(super) static LEAVE: Script = on_lines!("1533c40426cb53c5f2af74f397d2b1165b7e1107", "leave.lua");
pub(super) static PUBLISH: Script = on_lines!("1831da8a5064c27fd08c252fc4a0faf49f248964", "../publish.lua");
pub(super) static EVICT: Script = on_lines!("6aed7acf7daec845f3b4a688c5362551b4aaffca", "../evict.lua");
pub(super) static EVICT_FOREIGN: Script =
    on_lines!("94f10a079fb104ea458b93f311228afbbbb7c73e", "../foreign.lua", "../evict_foreign.lua");
pub(super) static INSPECT: Script =
    script!("1092b2a60f3574980f4ad494094c6a58ca293227", "../foreign.lua", "inspect.lua");

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
