//! Waiting for a descriptor to become readable or writable.
#![expect(
    unsafe_code,
    reason = "the runtime cannot see for itself that an OwnedFd stays the same descriptor"
)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// An owner of a descriptor.
///
/// # Safety
/// It keeps the descriptor the same until it is dropped.
pub unsafe trait Owner: AsRawFd {}
// SAFETY: it closes its descriptor only when it is dropped.
unsafe impl Owner for OwnedFd {}
// SAFETY: as above; it never leaves the pointer.
unsafe impl Owner for Arc<OwnedFd> {}

/// Registers `descriptor`, which must be non-blocking, with the running tokio runtime, for readiness to read.
///
/// Errors: the kind of descriptor cannot be polled, or the runtime has no descriptor or memory left.
pub fn watch<T: Owner>(descriptor: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: an Owner always returns the same number. It closes the descriptor only when it is dropped, and AsyncFd
    // deregisters before that.
    let watched = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    watched.map_err(io::Error::from)
}
