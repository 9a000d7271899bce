//! Why dlock is built as it is: decision records, traps, and what changed.

#[doc = include_str!("gotchas.md")]
pub mod gotchas {}

#[doc = include_str!("changelog.md")]
pub mod changelog {}

#[doc = include_str!("adr.md")]
pub mod adr {}
