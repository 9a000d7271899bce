//! Waiting until a descriptor can be read or written.
#![expect(
    unsafe_code,
    reason = "the runtime cannot see for itself that an OwnedFd stays the same descriptor"
)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// What may be watched: an owner that keeps its descriptor the same until it is dropped.
pub trait Owner: AsRawFd + sealed::Sealed {}
impl Owner for OwnedFd {}
impl Owner for Arc<OwnedFd> {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::OwnedFd {}
    impl Sealed for super::Arc<super::OwnedFd> {}
}

/// Hands `descriptor`, which must be non-blocking, to the running tokio runtime.
///
/// Errors: the kind of descriptor cannot be polled, or none is left for the runtime.
pub fn watch<T: Owner>(descriptor: T) -> io::Result<AsyncFd<T>> {
    watch_for(descriptor, Interest::READABLE)
}

/// As [`watch`], for what is told otherwise than by something to read.
pub fn watch_for<T: Owner>(descriptor: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    // SAFETY: each Owner always answers with the same number, and closes it only when it is dropped, which
    // AsyncFd does after deregistering.
    let watched = unsafe { AsyncFd::register_with_interest(descriptor, interest) };
    watched.map_err(io::Error::from)
}
