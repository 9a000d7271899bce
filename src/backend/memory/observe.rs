//! A view of one line.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Fault, MemoryServer};
use crate::backend::Observer;
use crate::lock::{LockName, LockStatus, Moment, Result};

#[derive(Debug)]
pub(super) struct MemoryObserver {
    server: Arc<MemoryServer>,
    name: LockName,
    seen: Option<LockStatus>,
}

impl MemoryObserver {
    pub(super) fn new(server: Arc<MemoryServer>, name: LockName) -> Self {
        Self { server, name, seen: None }
    }
}

/// The line without what time alone changes.
fn at_rest(line: &LockStatus) -> LockStatus {
    let mut line = line.clone();
    line.holders.iter_mut().chain(&mut line.waiters).for_each(|entry| entry.ttl = None);
    line
}

#[async_trait]
impl Observer for MemoryObserver {
    async fn next(&mut self) -> Result<LockStatus> {
        let mut changes = self.server.changes();
        loop {
            self.server.thawed().await;
            let (line, next) = self.server.step(|lines, now| {
                let expiries = lines.entries.iter().map(|e| e.expires).filter(|when| *when > now);
                (lines.status(&self.name, now), expiries.min().unwrap_or(Moment::NEVER))
            });
            let rest = Some(at_rest(&line));
            let asleep = self.seen.is_some() && self.server.has(Fault::ObserverSleeps);
            if self.seen != rest && !asleep {
                self.seen = rest;
                return Ok(line);
            }
            tokio::select! {
                Ok(()) = changes.changed() => {}
                () = self.server.clock().sleep_until(next) => {}
            }
        }
    }
}
