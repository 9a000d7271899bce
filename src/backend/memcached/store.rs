//! memcached as a keeper of documents.

use std::time::Duration;

use async_trait::async_trait;

use super::client::{Client, Commands};
use super::fault::{NAME, nonsense};
use super::keys::Naming;
use super::wire::Reply;
use super::{examine, items};
use crate::backend::{Capabilities, Examination, TokenStrength, success};
use crate::lock::{ClaimId, LockName, Moment};
use crate::net::fault::{Fault, FaultResult};
use crate::net::rank::Rank;
use crate::queue::document::{Arrival, Item, Items, Replaced, Version};

/// The largest value. By default, an item with its key and its header has at most a mebibyte.
const ROOM: usize = 1_048_576 - 2048;
/// memcached interprets a longer time as a date.
const LONGEST_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);
/// Less than [`LONGEST_LIFE`], since an item is kept a little longer than the ttl.
const LONGEST_TTL: Duration = Duration::from_secs(29 * 24 * 3600);
/// How often an item that was just created may be gone at once.
const VANISHINGS: usize = 5;

/// One memcached.
#[derive(Debug)]
pub(super) struct MemcachedStore {
    client: Client,
    naming: Naming,
}

/// Returns `life` in seconds, rounded up.
fn expiry(life: Duration) -> u64 {
    let life = life.min(LONGEST_LIFE);
    life.as_secs() + u64::from(life.subsec_nanos() > 0)
}

impl MemcachedStore {
    pub(super) fn new(client: Client) -> Self {
        let config = &client.0.dial.config;
        let naming = Naming { prefix: config.prefix.clone(), escapes: config.escapes };
        Self { client, naming }
    }
}

/// Returns the server's time, in milliseconds.
fn time(stats: Reply) -> FaultResult<u64> {
    stats.stats().number("time").map(|seconds| seconds * 1000).ok_or_else(|| nonsense("stats without time"))
}

/// Returns when the last successful run acquired the lock, by the server's clock, in milliseconds.
fn acquired_at(success: &Item) -> Option<u64> {
    std::str::from_utf8(&success.bytes).ok()?.trim().parse().ok()
}

#[async_trait]
impl Items for MemcachedStore {
    fn capabilities(&self) -> Capabilities {
        let (token, abandoned_bound) = (TokenStrength::Volatile, Duration::from_secs(5));
        Capabilities { token, abandoned_bound, ..Capabilities::of(NAME) }
    }

    fn identity(&self) -> String {
        self.client.0.dial.config.identity()
    }

    fn connects_as(&self, rank: Rank) {
        self.client.0.connects_as(rank);
    }

    async fn cut(&self) {
        self.client.cut().await;
    }

    fn has_connected(&self) -> bool {
        self.client.0.has_connected()
    }

    async fn forget(&self, name: &LockName, deadline: Moment) -> FaultResult<()> {
        let counter = Naming::token(&self.naming.lock(name)?);
        let delete = Commands::default().line("delete", &counter, "");
        self.client.call(deadline, delete).await?.next()?.line().map(drop)
    }

    async fn examine(&self, deadline: Moment) -> FaultResult<Examination> {
        examine::examine(&self.client, deadline).await
    }

    fn why_forgotten(&self) -> &'static str {
        "memcached no longer has the item of the lock: it was evicted, deleted or overwritten, or memcached was restarted"
    }

    fn room(&self) -> usize {
        ROOM
    }

    fn longest_ttl(&self) -> Duration {
        LONGEST_TTL
    }

    fn key(&self, name: &LockName) -> FaultResult<Vec<u8>> {
        self.naming.lock(name)
    }

    fn called(&self, name: &LockName) -> String {
        // A name that cannot be a key is refused before an item can be found.
        let key = self.key(name).unwrap_or_default();
        format!("key {}", String::from_utf8_lossy(&key))
    }

    async fn read(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Item>> {
        self.client.get(&self.naming.lock(name)?, deadline).await
    }

    async fn arrive(
        &self,
        name: &LockName,
        empty: &[u8],
        life: Duration,
        deadline: Moment,
    ) -> FaultResult<Arrival> {
        let lock = self.naming.lock(name)?;
        let rest = format!("0 {} {}", expiry(life), empty.len());
        for _ in 0..VANISHINGS {
            let commands = Commands::default()
                .value("add", &lock, &rest, empty)
                .line("gets", &lock, "")
                .line("incr", &Naming::token(&lock), "1");
            let mut replies = self.client.call(deadline, commands).await?;
            replies.next()?.line()?;
            let item = replies.next()?.item()?;
            let number = items::drawn(&replies.next()?.line()?)?;
            let Some(item) = item else { continue };
            let number = match number {
                Some(number) => number,
                None => items::draw(&self.client, &lock, 0, deadline).await?,
            };
            return Ok(Arrival { item, number });
        }
        Err(Fault::unavailable("it does not keep the item of the lock for even a moment"))
    }

    async fn time(&self, deadline: Moment) -> FaultResult<u64> {
        time(self.client.call(deadline, Commands::default().line("stats", b"", "")).await?.next()?)
    }

    async fn number(&self, name: &LockName, above: u64, deadline: Moment) -> FaultResult<u64> {
        items::draw(&self.client, &self.naming.lock(name)?, above, deadline).await
    }

    async fn replace(
        &self,
        name: &LockName,
        version: &Version,
        bytes: &[u8],
        life: Duration,
        deadline: Moment,
    ) -> FaultResult<Replaced> {
        let expiry = expiry(life).to_string();
        self.client.swap(&self.naming.lock(name)?, version, &expiry, bytes, deadline).await
    }

    /// `delete` does not compare versions. A replacement that expires at once does.
    async fn remove(&self, name: &LockName, version: &Version, deadline: Moment) -> FaultResult<Replaced> {
        self.client.swap(&self.naming.lock(name)?, version, "-1", b"", deadline).await
    }

    async fn read_note(&self, name: &LockName, id: ClaimId, deadline: Moment) -> FaultResult<Option<Item>> {
        self.client.get(&self.naming.note(name, id)?, deadline).await
    }

    async fn write_note(
        &self,
        name: &LockName,
        id: ClaimId,
        bytes: &[u8],
        life: Duration,
        deadline: Moment,
    ) -> FaultResult<()> {
        self.client.set(&self.naming.note(name, id)?, expiry(life), bytes, deadline).await
    }

    async fn record_success(&self, name: &LockName, ago: Duration, deadline: Moment) -> FaultResult<()> {
        let key = Naming::success(&self.naming.lock(name)?);
        let commands = Commands::default().line("stats", b"", "").line("gets", &key, "");
        let mut replies = self.client.call(deadline, commands).await?;
        let now = Duration::from_millis(time(replies.next()?)?);
        let acquired = now.saturating_sub(ago);
        let mut last = replies.next()?.item()?;
        // A later time written by another client stays.
        let stays = |known| success::latest(now, Duration::from_millis(known), acquired) > acquired;
        while !last.as_ref().and_then(acquired_at).is_some_and(stays) {
            let version = last.as_ref().map(|last| &last.version);
            let acquired = acquired.as_millis().to_string();
            let replaced = self.client.put(&key, version, acquired.as_bytes(), deadline).await?;
            if replaced.done {
                break;
            }
            last = replaced.item;
        }
        Ok(())
    }

    async fn age_of_success(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Duration>> {
        let key = Naming::success(&self.naming.lock(name)?);
        let Some(item) = self.client.get(&key, deadline).await? else { return Ok(None) };
        let Some(acquired) = acquired_at(&item) else { return Ok(None) };
        let now = self.time(deadline).await?;
        Ok(success::age(Duration::from_millis(now), Duration::from_millis(acquired)))
    }

    async fn all(&self, deadline: Moment) -> FaultResult<Vec<(Vec<u8>, Item)>> {
        let keys = items::keys(&self.client, deadline).await?;
        self.client.get_all(&self.naming.locks_among(&keys), deadline).await
    }
}
