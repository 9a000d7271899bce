//! The steps that one node takes in one piece.

use crate::backend::redis::script::Script;

macro_rules! script {
    ($hash:literal, $($file:literal),+) => { Script::new($hash, concat!($(include_str!($file)),+)) };
}

pub(super) static ENTER: Script =
    script!("42094d2567703d9f7d80260561ee97ae11b5f381", "quorum.lua", "enter.lua");
pub(super) static ORDER: Script =
    script!("c8dcc4d2c82575b4b31ac23dab232526f948e587", "quorum.lua", "order.lua");
pub(super) static ADJUST: Script =
    script!("c51cc5eea00728930b676b72751ff81ed79ff8b5", "quorum.lua", "adjust.lua");
pub(super) static CONFIRM: Script =
    script!("dff7b754a5a7f1f61b542dada62a81c13744694c", "quorum.lua", "confirm.lua");
pub(super) static LOOK: Script =
    script!("689e7e77ff27026e315d07ecfc5dee76c3b3340d", "quorum.lua", "look.lua");
pub(super) static RENEW: Script =
    script!("5ef7731c1553e278c618d10f7f875ddf689697c5", "quorum.lua", "renew.lua");
pub(super) static LEAVE: Script =
    script!("adf437c3ee10202cc07a3cc6b1c3c9fadc9bb6af", "quorum.lua", "leave.lua");
pub(super) static PUBLISH: Script =
    script!("0f6800eded000023cf6aab90be7efd4a22c2008b", "quorum.lua", "publish.lua");
pub(super) static EVICT: Script =
    script!("417b9ab85ba7ed75a528810e96389e64f217a0f7", "quorum.lua", "evict.lua");
pub(super) static INSPECT: Script = script!("0860fed64d4e7b5cf23b3f4608f8011ba6c0ccad", "inspect.lua");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_texts() {
        for script in [&ENTER, &ORDER, &ADJUST, &CONFIRM, &LOOK, &RENEW, &LEAVE, &PUBLISH, &EVICT, &INSPECT] {
            assert!(script.is_named_rightly(), "{script:?}");
        }
    }
}
