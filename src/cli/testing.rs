//! Fixed queues, for tests of the commands that show them.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use super::out::Out;
use crate::backend::{Backend, Capabilities, Claim, Evict, Examination, Observer, TokenStrength};
use crate::lock::{
    ClaimId, Entry, Error, ErrorKind, Holder, LockName, LockStatus, Mode, Moment, Request, Result,
};
use crate::output::status::Layout;

type Observed = Vec<Result<LockStatus>>;

/// A backend with fixed queues.
#[derive(Debug)]
#[expect(clippy::struct_field_names, reason = "the queues are what it is about")]
pub(crate) struct Queues {
    queues: Vec<LockStatus>,
    observations: Mutex<Vec<Observed>>,
    evicted: Mutex<Vec<(ClaimId, Evict)>>,
    left: Mutex<bool>,
    published: Mutex<Vec<String>>,
}

impl Queues {
    pub(crate) fn new(queues: Vec<LockStatus>) -> Self {
        Self {
            queues,
            observations: Mutex::default(),
            evicted: Mutex::default(),
            left: Mutex::default(),
            published: Mutex::default(),
        }
    }

    /// Sets the observations, one list for each observer.
    pub(crate) fn will_observe(&self, mut observations: Vec<Observed>) {
        observations.reverse();
        *self.observations.lock().expect("not poisoned") = observations;
    }

    pub(crate) fn evicted(&self) -> Vec<(ClaimId, Evict)> {
        self.evicted.lock().expect("not poisoned").clone()
    }

    pub(crate) fn published(&self) -> Vec<String> {
        self.published.lock().expect("not poisoned").clone()
    }

    /// From now on all claims are gone, although the queues still show them.
    pub(crate) fn all_left(&self) {
        *self.left.lock().expect("not poisoned") = true;
    }
}

#[derive(Debug)]
struct Recorded(std::vec::IntoIter<Result<LockStatus>>);

#[async_trait]
impl Observer for Recorded {
    async fn next(&mut self) -> Result<LockStatus> {
        self.0.next().expect("the test ends before the record does")
    }
}

#[async_trait]
impl Backend for Queues {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: "fake",
            queue: true,
            shared: true,
            token: TokenStrength::BestEffort,
            leased: false,
            renewals_per_ttl: 3,
            look_while_running: false,
            abandoned_bound: Duration::ZERO,
        }
    }

    fn identity(&self) -> String {
        "fake".into()
    }

    async fn enter(&self, _: &Request, _: Moment) -> Result<Arc<dyn Claim>> {
        Err(Error::new(ErrorKind::Unsupported, "these queues stand still"))
    }

    async fn inspect(&self, name: &LockName, _: Moment) -> Result<LockStatus> {
        let known = self.queues.iter().find(|queue| queue.name == *name).cloned();
        Ok(known.unwrap_or(LockStatus { name: name.clone(), holders: vec![], waiters: vec![] }))
    }

    async fn list(&self, prefix: &str, _: Moment) -> Result<Vec<LockStatus>> {
        Ok(self.queues.iter().filter(|queue| queue.name.as_str().starts_with(prefix)).cloned().collect())
    }

    async fn observe(&self, _: &LockName) -> Result<Box<dyn Observer>> {
        let next = self.observations.lock().expect("not poisoned").pop();
        Ok(Box::new(Recorded(next.expect("one record for each observer").into_iter())))
    }

    async fn evict(&self, _: &LockName, id: ClaimId, how: Evict, _: &Holder, _: Moment) -> Result<bool> {
        self.evicted.lock().expect("not poisoned").push((id, how));
        Ok(!*self.left.lock().expect("not poisoned"))
    }

    async fn publish(&self, name: &LockName, id: ClaimId, value: &str, _: Moment) -> Result<bool> {
        let queue = self.queues.iter().find(|queue| queue.name == *name);
        let holds = queue.is_some_and(|queue| queue.holders.iter().any(|entry| entry.claim == Some(id)));
        if holds {
            self.published.lock().expect("not poisoned").push(value.to_owned());
        }
        Ok(holds)
    }

    async fn evict_foreign(&self, _: &LockName, id: ClaimId, _: Moment) -> Result<bool> {
        self.evicted.lock().expect("not poisoned").push((id, Evict::Force));
        Ok(!*self.left.lock().expect("not poisoned"))
    }

    async fn examine(&self, _: Moment) -> Result<Examination> {
        Err(Error::new(ErrorKind::Unsupported, "not examined"))
    }

    async fn last_success(&self, _: &LockName, _: Moment) -> Result<Option<Duration>> {
        Ok(None)
    }
}

/// Creates a queue. The entries' PIDs and the last digits of their claims count from 1.
pub(crate) fn queue(name: &str, holders: u8, waiters: u8) -> LockStatus {
    let entry = |n: u8| {
        let mut id = [0; 16];
        // The first eight digits are the same, so that they are ambiguous.
        id[4] = n;
        Entry {
            claim: Some(ClaimId::from_bytes(id)),
            mode: Some(Mode::Exclusive),
            host: Some("host7".into()),
            user: Some("ci".into()),
            pid: Some(n.into()),
            command: Some("./x".into()),
            ahead: (n > holders).then_some(u32::from(n - 1)),
            ..Entry::default()
        }
    };
    LockStatus {
        name: name.parse().expect("valid"),
        holders: (1..=holders).map(entry).collect(),
        waiters: (holders + 1..=holders + waiters).map(entry).collect(),
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
    pub(crate) gone: bool,
}

impl Out for Page {
    fn write(&mut self, text: &str) -> anyhow::Result<()> {
        if self.gone {
            return Err(rustix::io::Errno::PIPE.into());
        }
        self.text.push_str(text);
        Ok(())
    }

    fn layout(&self) -> Layout {
        let now = SystemTime::UNIX_EPOCH;
        Layout { width: None, colour: false, now }
    }
}
