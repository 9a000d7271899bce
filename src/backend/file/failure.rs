//! The failure of a waiter, for which everybody behind it waits.

use super::core::FileClaim;
use super::fault::transient;
use super::grant;
use crate::clock;
use crate::net::fault::{Fault, FaultResult};

impl FileClaim {
    /// Takes what a look at the queue came to.
    ///
    /// A failure of a waiter is one for now at first, and nothing of the lock is kept meanwhile. After a while it is for
    /// good: the claim leaves the queue, without the guards and whatever cannot be written, since with its FIFO closed it
    /// stands in nobody's way. A hold stays; the kernel keeps it.
    pub(super) fn conclude(&self, looked: FaultResult<()>) -> FaultResult<()> {
        let Err(fault) = looked else {
            self.inner().failing_since = None;
            return Ok(());
        };
        {
            let inner = &mut *self.inner();
            if inner.grant.is_some() || inner.is_over() {
                return Err(fault);
            }
            grant::release(&mut inner.places);
            let now = clock::now();
            let since = *inner.failing_since.get_or_insert(now);
            if now.since(since) < self.patience || is_transient(&fault) {
                return Err(transient(fault));
            }
        }
        // That the record stays is for others to mend.
        let _ = self.go(None, false);
        Err(fault)
    }
}

/// Whether the failure says itself that it will pass.
fn is_transient(fault: &Fault) -> bool {
    fault.is_transient()
}
