//! Watching one queue, over a separate session: a session is not told of its own changes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::dialect::Session;
use super::sessions::Sessions;
use crate::backend::claim_state::POLL;
use crate::backend::observe::LOOK;
use crate::lock::{LockName, Moment};
use crate::net::fault::{FaultResult, Retry};
use crate::queue::store::Seen;
use crate::sync::locked;

/// The time between two reads if no change is reported or foreseen, which limits the effect of a lost message.
const AT_LEAST: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) service: Sessions,
    /// The session that reports changes.
    told_by: Mutex<Option<Arc<dyn Session>>>,
}

impl Watcher {
    pub(super) fn new(service: &Sessions) -> Self {
        Self { service: service.another(), told_by: Mutex::default() }
    }

    /// Completes after a change since `seen`, or when the queue is to be read in any case.
    pub(super) async fn changed(&self, name: &LockName, seen: Seen, until: Moment) -> FaultResult<()> {
        let clock = self.service.clock;
        let told_by = locked(&self.told_by).clone();
        let is_same =
            |session: &Arc<dyn Session>| session.is_open() && session.notified_count() >> 32 == seen >> 32;
        let Some(session) = told_by.filter(is_same) else {
            let told_by = self.ask(name, clock.now() + LOOK).await?;
            let tells = told_by.is_some();
            *locked(&self.told_by) = told_by;
            // Earlier changes are read now.
            clock.sleep_until(if tells { clock.now() } else { until.min(clock.now() + POLL) }).await;
            return Ok(());
        };
        tokio::select! {
            () = session.notified_after(seen, None) => {}
            () = clock.sleep_until(until.min(clock.now() + AT_LEAST)) => {}
        }
        Ok(())
    }

    /// Returns the session that reports changes from now on; `None` if no session does, and the observer polls. A
    /// session behind a pooler must remain unchanged, and reports nothing.
    async fn ask(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Arc<dyn Session>>> {
        let watch = self.service.dialect.watch(name);
        if watch.is_empty() {
            return Ok(None);
        }
        let first = self.service.read(deadline, "SELECT 1;").await?;
        if !first.is_some_and(|reply| reply.session.can_notify()) {
            return Ok(None);
        }
        // In a separate exchange, because changes are reported only after its end.
        match self.service.read(deadline, &watch).await {
            // Another transaction prevents the registration of this watcher.
            Err(fault) if fault.retry == Retry::Again => Ok(None),
            reply => Ok(reply?.map(|reply| reply.session)),
        }
    }
}
