//! The steps that one node takes in one piece.

use crate::backend::redis::script::Script;

macro_rules! text {
    ($($file:literal),+) => { concat!($(include_str!($file)),+) };
}

pub(super) static ACQUIRE: Script = Script::in_full(text!("keys.lua", "acquire.lua"));
pub(super) static EXTEND: Script = Script::in_full(text!("keys.lua", "extend.lua"));
pub(super) static CHANGE: Script = Script::in_full(text!("keys.lua", "change.lua"));
pub(super) static INSPECT: Script = Script::in_full(text!("keys.lua", "foreign.lua", "inspect.lua"));
pub(super) static EVICT_FOREIGN: Script = Script::in_full(text!("foreign.lua", "evict_foreign.lua"));
