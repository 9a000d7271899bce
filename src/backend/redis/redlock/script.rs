//! The steps that one node takes in one piece.

use crate::backend::redis::script::Script;

macro_rules! script {
    ($hash:literal, $($file:literal),+) => { Script::new($hash, concat!($(include_str!($file)),+)) };
}

pub(super) static ENTER: Script =
    script!("90dfd0886e6f08fbb762ab54f610959586cad7c1", "quorum.lua", "enter.lua");
pub(super) static ORDER: Script =
    script!("27d2a1ca00c99a76f7ee19dcb7343070abe546fb", "quorum.lua", "order.lua");
pub(super) static ADJUST: Script =
    script!("d3d822e0c0374be7b976d91bc424be4d7e3a9334", "quorum.lua", "adjust.lua");
pub(super) static CONFIRM: Script =
    script!("5f0ef38f6fc243af08a6ed571b7443cbc0abe1d2", "quorum.lua", "confirm.lua");
pub(super) static LOOK: Script =
    script!("80ac93dfa45da1f3d8548c34475b2dff6fdd3cfc", "quorum.lua", "look.lua");
pub(super) static RENEW: Script =
    script!("eda6ad55af2d0592db60038756f441e8a4fb4eef", "quorum.lua", "renew.lua");
pub(super) static LEAVE: Script =
    script!("55756f0f13af7dfa72a58eb85aebd554a28a2f1b", "quorum.lua", "leave.lua");
pub(super) static PUBLISH: Script =
    script!("b6040921bf1f7569418819f3214238c175656714", "quorum.lua", "publish.lua");
pub(super) static EVICT: Script =
    script!("d9bb7b1bf93d3e3719cc3ce4557a15fa13fa8bc8", "quorum.lua", "evict.lua");
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
