//! The steps that one node takes in one piece.

use crate::backend::redis::script::Script;

macro_rules! script {
    ($hash:literal, $($file:literal),+) => { Script::new($hash, concat!($(include_str!($file)),+)) };
}

pub(super) static ENTER: Script = Script::entering(
    "2f8128631f6e37370b7e0a5753aebb76e6777283",
    concat!(include_str!("quorum.lua"), include_str!("enter.lua")),
);
pub(super) static ORDER: Script =
    script!("bd4cb5685f44b0d7cd618bb058e6297d7309d312", "quorum.lua", "order.lua");
pub(super) static ADJUST: Script =
    script!("b15f4248041e052e4bdde9d6e2aacd8843919356", "quorum.lua", "adjust.lua");
pub(super) static CONFIRM: Script =
    script!("1ae27879dbd114141ef5746125e2656ece3a841d", "quorum.lua", "confirm.lua");
pub(super) static LOOK: Script =
    script!("739f239af547d2b0935a1629feebced4cbe8bf56", "quorum.lua", "look.lua");
pub(super) static RENEW: Script =
    script!("23f4a1b39418c5a9c76b36bd95a630c23e21a75f", "quorum.lua", "renew.lua");
pub(super) static LEAVE: Script =
    script!("c8a2dfde04cd7e72bec81f517d12cbcebeee1718", "quorum.lua", "leave.lua");
pub(super) static PUBLISH: Script =
    script!("7eb7e1466310d0f1cdd82a80d3064721cf2871ab", "quorum.lua", "publish.lua");
pub(super) static EVICT: Script =
    script!("c2be952f887fc2e8b675ba3249c53376263cb04a", "quorum.lua", "evict.lua");
pub(super) static EVICT_FOREIGN: Script = script!(
    "dad3a241ad21da35d8a1ef7df4b6109438a1af0b",
    "quorum.lua",
    "../foreign.lua",
    "../evict_foreign.lua"
);
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
