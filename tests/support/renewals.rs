//! Renewals of a lease, as `status` shows them.

use std::time::Duration;

use super::test_env::TestEnv;
use super::wait::{let_pass, until_true};

impl TestEnv {
    /// Waits for `count` renewals of the lease of the first holder of `name`. Not for files, memcached and ZooKeeper, which
    /// do not show how much of a lease is left.
    #[track_caller]
    pub(crate) fn await_renewals(&self, name: &str, count: usize) {
        self.await_renewals_in("holders", name, count);
    }

    /// Does the same for the first of the `holders` or the `waiters`.
    #[track_caller]
    pub(crate) fn await_renewals_in(&self, list: &str, name: &str, count: usize) {
        let left = || {
            let status = self.status(name);
            status[list][0]["ttl_ms"].as_u64().unwrap_or_else(|| panic!("no lease of the {list}: {status}"))
        };
        let mut before = left();
        for n in 1..=count {
            until_true(&format!("renewal {n} of {name}"), || {
                let_pass(Duration::from_millis(100));
                let now = left();
                std::mem::replace(&mut before, now) < now
            });
        }
    }
}
