//! The steps that one node takes in one piece.

use crate::backend::redis::script::Script;

macro_rules! script {
    ($hash:literal, $($file:literal),+) => { Script::new($hash, concat!($(include_str!($file)),+)) };
}

pub(super) static ENTER: Script =
    script!("c558db9f7e0d56d569d3a74b8d150847032f7057", "quorum.lua", "enter.lua");
pub(super) static ORDER: Script =
    script!("f7d872f04595b091782282fdf3b57ecf9406777c", "quorum.lua", "order.lua");
pub(super) static ADJUST: Script =
    script!("1fea9c3381b9741fa6fbce1b69b8f45549de69d3", "quorum.lua", "adjust.lua");
pub(super) static CONFIRM: Script =
    script!("b634fbc3a949ec4b89f94dea9a82043a29fd7983", "quorum.lua", "confirm.lua");
pub(super) static LOOK: Script =
    script!("1b05d18183af1815784fe39ffb9d80493b3d28d9", "quorum.lua", "look.lua");
pub(super) static RENEW: Script =
    script!("8fc30c1f024f75abee780726a07da765971b3b71", "quorum.lua", "renew.lua");
pub(super) static LEAVE: Script =
    script!("57f1f4aa22a9b9068ec96ea9358ceb0f1aefe5de", "quorum.lua", "leave.lua");
pub(super) static PUBLISH: Script =
    script!("af208bad55a4aee820b65aed419487f0cc1c3427", "quorum.lua", "publish.lua");
pub(super) static EVICT: Script =
    script!("7d7cd947162bca4518e7941da7fce2bb29745783", "quorum.lua", "evict.lua");
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
