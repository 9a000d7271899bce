//! A lock service in memory with claims on one lock, for tests of the commands that act on claims.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::out::Out;
use crate::backend::{Backend as _, Claim};
use crate::clock;
use crate::lock::{ClaimId, Holder, LockStatus, Mode, Moment, Request, Verb};
use crate::output::status::Layout;
use crate::queue::Queues;
use crate::queue::document::testing::queues;

/// The service, with claims on the lock `a`.
pub(crate) struct Service {
    pub(crate) queues: Queues,
    claims: Vec<Arc<dyn Claim>>,
}

pub(crate) fn soon() -> Moment {
    clock::now() + Duration::from_secs(20)
}

impl Service {
    pub(crate) fn new() -> Self {
        Self { queues: queues(), claims: Vec::new() }
    }

    /// Enters a claim of the subcommand `verb`. The PIDs and the last digits of the claims count from 1, and the first
    /// eight digits are the same.
    pub(crate) async fn enter(&mut self, verb: Verb, mode: Mode) -> ClaimId {
        let pid = u32::try_from(self.claims.len() + 1).expect("few");
        let (host, user, command) = ("host7".into(), "ci".into(), "./x".into());
        let request = Request {
            names: vec!["a".parse().expect("valid")],
            id: ClaimId::from_number(pid.into()),
            mode,
            ttl: Duration::from_secs(30),
            holder: Holder { host, pid, user, command, verb, ..Holder::default() },
            ancestors: Vec::new(),
            supersede: false,
        };
        self.claims.push(self.queues.enter(&request, soon()).await.expect("enters"));
        request.id
    }

    pub(crate) async fn status(&self) -> LockStatus {
        self.queues.inspect(&"a".parse().expect("valid"), soon()).await.expect("a queue")
    }
}

pub(crate) fn by() -> Holder {
    Holder {
        host: "host1".into(),
        pid: 9,
        user: "op".into(),
        command: "dlock break".into(),
        ..Holder::default()
    }
}

/// Collects the standard output.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) text: String,
}

impl Out for Page {
    fn write(&mut self, text: &str) -> anyhow::Result<()> {
        self.text.push_str(text);
        Ok(())
    }

    fn layout(&self) -> Layout {
        let now = SystemTime::UNIX_EPOCH;
        Layout { width: None, colour: false, now }
    }
}
