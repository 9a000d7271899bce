//! Places for trials that wait more than they work.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

/// The places of all trials of a test program together.
pub(crate) struct Places {
    for_each_processor: usize,
    busy: Mutex<usize>,
    freed: Condvar,
}

impl Places {
    pub(crate) const fn new(for_each_processor: usize) -> Self {
        Self { for_each_processor, busy: Mutex::new(0), freed: Condvar::new() }
    }

    /// Returns the number of places; `DLOCK_TEST_PLACES` sets the number for each processor.
    pub(crate) fn number(&self) -> usize {
        let given = std::env::var("DLOCK_TEST_PLACES").ok().and_then(|number| number.parse().ok());
        let for_each_processor = given.unwrap_or(self.for_each_processor).max(1);
        thread::available_parallelism().map_or(2, usize::from) * for_each_processor
    }

    /// Waits for a free one.
    pub(crate) fn take(&'static self) -> Place {
        let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.freed.wait_while(busy, |busy| *busy >= self.number());
        *free.unwrap_or_else(PoisonError::into_inner) += 1;
        Place(self)
    }
}

/// The right to one of them.
pub(crate) struct Place(&'static Places);

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.busy.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.freed.notify_one();
    }
}
