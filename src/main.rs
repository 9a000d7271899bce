//! The `dlock` program.
//!
//! It runs without the standard library's start-up code. That code would ignore SIGPIPE, open /dev/null for closed
//! standard streams and look up the stack's limits before dlock could see how the process was started. `dlock run`
//! passes all of that to its command unchanged, and starts faster.
#![no_main]
#![expect(unsafe_code, reason = "the C start-up code calls `main` by its unmangled name, with C's arguments")]

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

#[cfg(not(target_env = "musl"))]
use std::alloc::System as Allocator;

// The allocator of musl returns small memory to the system at once and takes it back for the next request: of the 40
// calls between the end of a wait and the start of the command, 25 were that.
#[cfg(target_env = "musl")]
use dlmalloc::GlobalDlmalloc as Allocator;

/// Ends dlock with a message and status 71 if the system refuses memory. The standard library would end it by SIGABRT.
struct Memory;

#[global_allocator]
static MEMORY: Memory = Memory;

// SAFETY: the allocator's own results are passed on.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for the caller.
        granted(unsafe { Allocator.alloc(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for the caller.
        granted(unsafe { Allocator.realloc(memory, layout, size) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as for the caller.
        unsafe { Allocator.dealloc(memory, layout) }
    }
}

fn granted(memory: *mut u8) -> *mut u8 {
    if memory.is_null() { dlock::cli::end_without_memory() } else { memory }
}

/// Entry point for the C start-up code. With some C libraries the standard library could not find the arguments by
/// itself.
///
/// # Safety
/// There must be `count` strings at `arguments`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn main(count: c_int, arguments: *const *const c_char) -> c_int {
    let word = |n| {
        // SAFETY: the C start-up code passes `count` strings.
        let word = unsafe { CStr::from_ptr(*arguments.add(n)) };
        OsStr::from_bytes(word.to_bytes()).to_owned()
    };
    dlock::cli::main((1..usize::try_from(count).unwrap_or(0)).map(word).collect())
}
