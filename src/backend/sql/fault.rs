//! Faults of every kind of database.

use crate::lock::{ErrorKind, Reason};
use crate::net::cause;
use crate::net::fault::{Fault, Retry};

/// The transaction was undone, and may be retried at once.
pub(super) fn again(reason: impl Into<Reason>) -> Fault {
    Fault::unavailable(reason).helped_by(Retry::Again)
}

/// The tables are missing.
pub(super) fn no_tables(reason: impl Into<Reason>) -> Fault {
    Fault::new(ErrorKind::Denied, reason).helped_by(Retry::Making)
}

/// The tables differ from those that dlock creates.
pub(super) fn other_tables(said: &str) -> Fault {
    let what = format!("{said}; the tables are another program's, or another version's");
    Fault::new(ErrorKind::Corrupt, Reason::from(what).advising("use another --prefix"))
}

/// The user lacks the right to create or use the tables.
pub(super) fn no_right(said: &str) -> Fault {
    let remedy = "`dlock doctor --schema` prints the tables and the rights that are needed";
    Fault::new(ErrorKind::Denied, cause::no_right(said, remedy))
}
