//! The steps that one node takes in one piece.

use crate::backend::redis::script::Script;

macro_rules! text {
    ($($file:literal),+) => { concat!($(include_str!($file)),+) };
}

/// What follows on the library for queues.
macro_rules! on_queues {
    ($($file:literal),+) => { text!("head.lua", "clock.lua", "common.lua", "quorum.lua", $($file),+) };
}

pub(super) static ENTER: Script = Script::entering(on_queues!("enter.lua"));
pub(super) static ORDER: Script = Script::new(on_queues!("order.lua"));
pub(super) static ADJUST: Script = Script::new(on_queues!("adjust.lua"));
pub(super) static CONFIRM: Script = Script::new(on_queues!("confirm.lua"));
pub(super) static ASSURE: Script = Script::new(on_queues!("assure.lua"));
pub(super) static LOOK: Script = Script::new(on_queues!("look.lua"));
pub(super) static RENEW: Script = Script::new(on_queues!("renew.lua"));
pub(super) static LEAVE: Script = Script::new(on_queues!("success.lua", "leave.lua"));
pub(super) static PUBLISH: Script = Script::new(on_queues!("publish.lua"));
pub(super) static EVICT: Script = Script::in_full(on_queues!("evict.lua"));
pub(super) static EVICT_FOREIGN: Script = Script::new(on_queues!("foreign.lua", "evict_foreign.lua"));
pub(super) static INSPECT: Script = Script::new(text!("foreign.lua", "inspect.lua"));
/// Lists a claim among the nested ones.
pub(super) static LIST: Script = Script::new(text!("clock.lua", "list.lua"));
/// Takes one off that list that stands in no queue.
pub(super) static UNLIST: Script = Script::in_full(text!("clock.lua", "unlist.lua"));
