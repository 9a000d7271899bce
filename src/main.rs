//! The `dlock` program.
//!
//! It does without the standard library's start-up code, which would ignore SIGPIPE, open /dev/null for closed
//! standard streams and look up the stack's limits before anybody could see how the process was started:
//! `dlock run` hands all of that to its command as it was, and starts faster without it.
#![no_main]
#![expect(unsafe_code, reason = "the C start-up code calls `main` by its unmangled name, with C's arguments")]

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

/// Called by the C start-up code. The standard library would find the arguments by itself, but not with every C
/// library.
///
/// # Safety
/// There must be `count` strings at `arguments`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn main(count: c_int, arguments: *const *const c_char) -> c_int {
    let word = |n| {
        // SAFETY: as the caller promises, who is the C start-up code.
        let word = unsafe { CStr::from_ptr(*arguments.add(n)) };
        OsStr::from_bytes(word.to_bytes()).to_owned()
    };
    dlock::cli::main((1..usize::try_from(count).unwrap_or(0)).map(word).collect())
}
