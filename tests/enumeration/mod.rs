//! The common parts of the enumerations of faults: the protected command, the choice of points, their trials, and the
//! report.

#![allow(dead_code, unused_imports, reason = "each enumeration uses its own part of this")]

pub(crate) mod command;
pub(crate) mod process;
pub(crate) mod trials;

/// The end of a run without faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Normal {
    Exit(i32),
    Signal(i32),
}
