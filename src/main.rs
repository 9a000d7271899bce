//! The `dlock` program.
//!
//! It does without the standard library's start-up code, which would ignore SIGPIPE, open /dev/null for closed
//! standard streams and look up the stack's limits before anybody could see how the process was started:
//! `dlock run` hands all of that to its command as it was, and starts faster without it.
#![no_main]
#![expect(unsafe_code, reason = "the C start-up code calls `main` by its unmangled name")]

use std::ffi::{c_char, c_int};

/// Called by the C start-up code. The standard library finds the arguments by itself.
#[unsafe(no_mangle)]
pub extern "C" fn main(_count: c_int, _arguments: *const *const c_char) -> c_int {
    dlock::cli::main()
}
