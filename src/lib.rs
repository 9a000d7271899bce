//! dlock puts a distributed lock in front of a shell command.
//!
//! | module | what is in it |
//! |---|---|
//! | [`lock`] | the domain, pure: names, claims, the grant rule, lease arithmetic |
//! | [`clock`] | instants that count suspend |
//! | [`fd`] | waiting for descriptors |
//! | [`sync`] | locking a mutex |
//! | [`backend`] | the services behind one pair of traits, and the contract that all of them keep |
//! | [`queue`] | the engine of every service with a queue: enters, waits, holds, leaves, shows; what a service stores for it |
//! | [`net`] | connections to services: addresses, encryption, credentials, causes |
//! | [`lease`] | renews one claim on schedule and says how long it may be relied on |
//! | [`hold`] | enter, wait, run, stop, leave: one explicit state machine |
//! | [`election`] | which claim leads, and when a candidate campaigns again |
//! | [`supervise`] | front, keeper and command: processes, signals, terminal; knows nothing of locks |
//! | [`output`] | every sentence shown to people, and the renderers |
//! | [`cli`] | arguments, settings, exit codes, one file per subcommand |
//! | [`docs`] | reasons: decision records, traps, the change log |
//!
//! Imports run one way: `main → cli → {election, hold, output} → {lease, supervise, backend} → net → lock`, and
//! `backend/<service> → queue → backend`, which is the traits there.
//!
//! # Words
//!
//! | word | meaning |
//! |---|---|
//! | claim | one entry in the queue of a lock: it waits, then holds, then is gone |
//! | front | the process that users see: signals, job control, the guard; [`supervise::front`] |
//! | keeper | the front's child, named `lease-keeper`: the connection, the lease, the command; [`supervise::keeper`] |
//! | caller | the parent of the front under `dlock acquire`: the process that the shell waits for; [`supervise::caller`] |
//! | tree | the command, or the adopted process, and all its descendants |
//! | adopted process | a process that runs already and that a hold is for (`--for-pid`); [`supervise::adopted`] |
//! | gate | the word that front and keeper share and that lets the command start, or not |
//! | guard instant | when the front kills the tree if the keeper has not |
//! | ender | the code that stops and kills a tree and finds it *gone*, *alive* or *unknown*; [`supervise::ender`] |
//! | anchor | a descriptor that the tree inherits; while a process has it, the kernel keeps the lock, or the mark |
//! | mark | a shared lock on a pipe of the outer keeper: while a nested run has it, the outer hold stays; [`supervise::mark`] |
//! | board | the pipe that one keeper's marks are on |
//! | Redlock | the algorithm over several independent Redis servers: a majority of them grants |

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
pub mod queue;
pub mod supervise;
pub mod sync;
