//! Processes: the front that users see, the keeper behind it, the command and its tree.
//!
//! ```text
//! front (the pid users see)      keeper (child of front)             command (child of keeper)
//! signals, job control,  <pipe>  runtime, connection, lease; spawns  on a terminal: the front's group;
//! deadline guard         <word>  starts and reaps the command        without: a group of its own
//! ```
//!
//! This module knows nothing of locks: the code above it passes what the keeper does. It makes each of the two
//! processes watch the other: if one dies or hangs, the other kills the command's whole tree.

pub mod adopted;
pub mod ancestry;
pub mod caller;
mod carrier;
pub mod channel;
pub mod command;
mod diagnosis;
pub mod ender;
pub mod ender_adopted;
pub mod exit_status;
pub mod failure;
pub mod front;
mod gate;
mod guard;
pub mod inherited;
pub mod keeper;
pub mod launch;
pub mod limits;
pub mod mark;
pub mod notify;
mod proc_dir;
mod proc_files;
pub mod process_table;
mod proof;
pub mod shared;
pub mod signals;
pub mod start;
pub mod sys;
pub mod terminal;
pub mod tree_state;
mod unlisted;
pub mod wait;
mod watch;
