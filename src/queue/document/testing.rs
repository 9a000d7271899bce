//! A store in memory with programmed faults.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::{DocumentStore, Items, Stored, Version, Which};
use crate::backend::{Capabilities, Examination, ServiceClient};
use crate::clock::Clock;
use crate::lock::{LockName, Moment};
use crate::net::fault::{Fault, FaultResult};
use crate::queue::Queues;
use crate::sync::locked;

/// Returns the queues of a new store, for a client in real time.
pub(crate) fn queues() -> Queues {
    Queues::new(Arc::new(DocumentStore::new(Arc::new(Fake::new(1_000_000)), Clock::Boot)), Clock::Boot)
}

/// The fault of one replacement of a lock's item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mishap {
    /// The replacement is not made: the connection broke.
    RequestLost,
    /// The replacement is made, and the connection broke before its answer.
    AnswerLost,
    /// The replacement is made and answered at [`Fake::resume`].
    Held,
    /// There is no answer until the deadline, and the replacement is made at [`Fake::deliver`].
    Late,
}

#[derive(Debug, Default)]
struct State {
    items: HashMap<String, Stored>,
    counters: HashMap<String, u64>,
    writes: u64,
    mishaps: VecDeque<Option<Mishap>>,
    late: Vec<(String, Version, Option<Vec<u8>>)>,
}

impl State {
    /// Writes or removes, if the item has this version.
    fn swap(&mut self, key: &str, version: &Version, bytes: Option<&[u8]>) -> bool {
        let is_same = self.items.get(key).is_some_and(|item| item.version == *version);
        match bytes.filter(|_| is_same) {
            Some(bytes) => self.set(key, bytes),
            None if is_same => drop(self.items.remove(key)),
            None => {}
        }
        is_same
    }

    fn set(&mut self, key: &str, bytes: &[u8]) {
        self.writes += 1;
        let version = Version { write: self.writes.to_string(), connection: 0 };
        self.items.insert(key.to_owned(), Stored { bytes: bytes.to_vec(), version });
    }
}

/// The store. Its items do not expire.
#[derive(Debug)]
pub(super) struct Fake {
    state: Mutex<State>,
    room: usize,
    resumed: Notify,
}

impl Fake {
    pub(super) fn new(room: usize) -> Self {
        Self { state: Mutex::default(), room, resumed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Sets the faults of the next replacements.
    pub(super) fn expect(&self, mishaps: &[Option<Mishap>]) {
        self.state().mishaps = mishaps.iter().copied().collect();
    }

    /// Executes the late replacements. Returns for each whether it took effect.
    pub(super) fn deliver(&self) -> Vec<bool> {
        let mut state = self.state();
        let late = std::mem::take(&mut state.late);
        late.iter().map(|(key, version, bytes)| state.swap(key, version, bytes.as_deref())).collect()
    }

    /// Continues the held replacements.
    pub(super) fn resume(&self) {
        self.resumed.notify_waiters();
    }

    /// Drops an item.
    pub(super) fn forget(&self, key: &str) {
        self.state().items.remove(key);
    }

    /// Drops the counter of a lock.
    pub(super) fn forget_counter(&self, key: &str) {
        self.state().counters.remove(key);
    }

    /// Writes an item, as another program's client does.
    pub(super) fn write(&self, key: &str, bytes: &[u8]) {
        self.state().set(key, bytes);
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.state().items.contains_key(key)
    }

    async fn strike(&self, key: &str, version: &Version, bytes: Option<&[u8]>) -> FaultResult<bool> {
        let mishap = self.state().mishaps.pop_front().flatten();
        if mishap == Some(Mishap::Held) {
            self.resumed.notified().await;
        }
        let mut state = self.state();
        match mishap {
            Some(Mishap::RequestLost) => Ok(false),
            Some(Mishap::Late) => {
                state.late.push((key.to_owned(), version.clone(), bytes.map(<[u8]>::to_vec)));
                Err(Fault::unavailable("it does not answer in time"))
            }
            Some(Mishap::AnswerLost | Mishap::Held) | None => {
                Ok(state.swap(key, version, bytes) && mishap != Some(Mishap::AnswerLost))
            }
        }
    }
}

fn key(which: Which<'_>) -> String {
    match which {
        Which::Queue(name) => name.to_string(),
        Which::Gone(name, id) => format!("{name}/gone/{id}"),
        Which::Success(name) => format!("{name}/success"),
    }
}

impl ServiceClient for Fake {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: "fake",
            queue: true,
            leased: true,
            renewals_per_ttl: 3,
            look_while_running: false,
            abandoned_bound: Duration::from_secs(5),
        }
    }

    fn identity(&self) -> String {
        "fake".to_owned()
    }
}

#[async_trait]
impl Items for Fake {
    async fn examine(&self, _: Moment) -> FaultResult<Examination> {
        Err(Fault::unavailable("there is nothing to examine"))
    }

    fn room(&self) -> usize {
        self.room
    }

    fn key(&self, which: Which<'_>) -> FaultResult<Vec<u8>> {
        Ok(key(which).into_bytes())
    }

    async fn read(&self, which: Which<'_>, _: Moment) -> FaultResult<Option<Stored>> {
        Ok(self.state().items.get(&key(which)).cloned())
    }

    async fn write(&self, which: Which<'_>, bytes: &[u8], _: Option<Duration>, _: Moment) -> FaultResult<()> {
        self.state().set(&key(which), bytes);
        Ok(())
    }

    async fn arrive(
        &self,
        name: &LockName,
        empty: &[u8],
        _: Duration,
        deadline: Moment,
    ) -> FaultResult<(Stored, Option<u64>)> {
        if !self.has(name.as_str()) {
            self.state().set(name.as_str(), empty);
        }
        let item = self.state().items.get(name.as_str()).cloned().expect("made");
        let number = self.number(name, 0, deadline).await?;
        Ok((item, Some(number)))
    }

    async fn time(&self, _: Moment) -> FaultResult<u64> {
        Ok(0)
    }

    async fn number(&self, name: &LockName, above: u64, _: Moment) -> FaultResult<u64> {
        let mut state = self.state();
        let counter = state.counters.entry(name.to_string()).or_default();
        *counter = (*counter).max(above) + 1;
        Ok(*counter)
    }

    async fn swap(
        &self,
        name: &LockName,
        version: &Version,
        new: Option<(Vec<u8>, Duration)>,
        _: Moment,
    ) -> FaultResult<bool> {
        self.strike(name.as_str(), version, new.as_ref().map(|(bytes, _)| bytes.as_slice())).await
    }

    async fn all(&self, _: Moment) -> FaultResult<Vec<(Vec<u8>, Stored)>> {
        let all = self.state().items.clone().into_iter();
        Ok(all.map(|(key, item)| (key.into_bytes(), item)).collect())
    }
}
