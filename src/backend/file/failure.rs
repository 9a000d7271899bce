//! The failure of a waiter, for which every claim behind it waits.

use super::core::FileClaim;
use super::fault::transient;
use super::grant;
use crate::clock;
use crate::net::fault::{Fault, FaultResult};

impl FileClaim {
    /// Handles the result of a look at the queue.
    ///
    /// A waiter's failure counts as transient at first; meanwhile it keeps none of the lock's files locked. After its
    /// patience the failure is final, unless the failure itself says that it will pass.
    ///
    /// The claim then leaves the queue without the guards, and even if nothing can be written: with its FIFO closed it
    /// blocks no other claim. A hold stays, since the kernel keeps it.
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
        // The record stays. Other claims remove it.
        let _ = self.go(None, false);
        Err(fault)
    }
}

/// Returns whether the failure itself says that it will pass.
fn is_transient(fault: &Fault) -> bool {
    fault.is_transient()
}
