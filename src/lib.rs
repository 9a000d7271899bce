//! dlock puts a distributed lock in front of a shell command.
//!
//! | module | what is in it |
//! |---|---|
//! | [`lock`] | the domain, pure: names, claims, the grant rule, lease arithmetic |
//! | [`clock`] | instants that count suspend |
//! | [`fd`] | waiting for descriptors |
//! | [`backend`] | the services behind one pair of traits, and the contract that all of them keep |
//! | [`net`] | connections to services: addresses, encryption, credentials, causes |
//! | [`lease`] | renews one claim on schedule and says how long it may be relied on |
//! | [`hold`] | enter, wait, run, stop, leave: one explicit state machine |
//! | [`election`] | who leads, and when a candidate stands again |
//! | [`supervise`] | front, keeper and command: processes, signals, terminal; knows nothing of locks |
//! | [`output`] | every sentence shown to people, and the renderers |
//! | [`cli`] | arguments, settings, exit codes, one file per subcommand |
//! | [`docs`] | why it is so: decision records, traps, the change log |
//!
//! Imports run one way: `main → cli → {election, hold, output} → {lease, supervise, backend} → net → lock`.

#![doc(test(attr(deny(warnings))))]

pub mod backend;
pub mod cli;
pub mod clock;
pub mod docs;
pub mod election;
pub mod fd;
pub mod hold;
pub mod lease;
pub mod lock;
pub mod net;
pub mod output;
pub mod supervise;
