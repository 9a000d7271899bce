//! memcached as a keeper of documents.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use super::client::{Client, Commands};
use super::examine;
use super::fault::{NAME, nonsense};
use super::keys::Naming;
use super::wire::Reply;
use crate::backend::{Capabilities, Examination, success};
use crate::lock::name::percent_decoded;
use crate::lock::{ClaimId, ErrorKind, LockName, Moment};
use crate::net::fault::{Fault, FaultResult};
use crate::net::rank::Rank;
use crate::queue::document::{Arrival, Items, Stored, Version};

/// The largest value. By default, an item with its key and its header has at most a mebibyte.
const ROOM: usize = 1_048_576 - 2048;
/// Less than 30 days, which memcached would take for a date, since an item is kept a little longer than the ttl.
const LONGEST_TTL: Duration = Duration::from_secs(29 * 24 * 3600);
/// The most keys in one line, which has at most 2048 bytes.
const MOST_KEYS: usize = 8;
/// The pause between two attempts while another client lists the keys.
const PAUSE: Duration = Duration::from_millis(20);

/// One memcached.
#[derive(Debug)]
pub(super) struct MemcachedStore {
    client: Client,
    naming: Naming,
}

/// Returns `life` in seconds, rounded up.
fn expiry(life: Duration) -> u64 {
    life.as_secs() + u64::from(life.subsec_nanos() > 0)
}

/// Returns the server's time, in milliseconds.
fn time(stats: Reply) -> FaultResult<u64> {
    stats.stats().number("time").map(|seconds| seconds * 1000).ok_or_else(|| nonsense("stats without time"))
}

/// Returns when the last successful run acquired the lock, by the server's clock, in milliseconds.
fn acquired_at(success: &Stored) -> Option<u64> {
    std::str::from_utf8(&success.bytes).ok()?.trim().parse().ok()
}

/// Parses the answer to `incr`; `None` if there is no counter.
fn drawn(line: &str) -> FaultResult<Option<u64>> {
    if line == "NOT_FOUND" {
        return Ok(None);
    }
    line.trim().parse().map(Some).map_err(|_| nonsense(line))
}

impl MemcachedStore {
    pub(super) fn new(client: Client) -> Self {
        let config = client.config();
        let naming = Naming { prefix: config.prefix.clone(), escapes: config.escapes };
        Self { client, naming }
    }

    /// Writes the item if it has this `version`, and returns whether it did. A restarted server numbers its writes from
    /// the beginning, so a version is comparable only over its own connection. Over another one nothing is written.
    async fn swap(
        &self,
        name: &LockName,
        version: &Version,
        expiry: &str,
        bytes: &[u8],
        deadline: Moment,
    ) -> FaultResult<bool> {
        // The command has the version after the length.
        let rest = format!("0 {expiry} {} {}", bytes.len(), version.write);
        let cas = Commands::default().line("cas", &self.naming.lock(name)?, &rest).data(bytes);
        let Some(reply) = self.client.call_over(version.connection, deadline, cas).await? else {
            return Ok(false);
        };
        match reply.line()?.as_str() {
            "STORED" => Ok(true),
            "EXISTS" | "NOT_FOUND" => Ok(false),
            other => Err(nonsense(other)),
        }
    }

    /// Reads the item with this key.
    async fn get(&self, key: &[u8], deadline: Moment) -> FaultResult<Option<Stored>> {
        let [reply] = self.client.call(deadline, Commands::default().line("gets", key, "")).await?;
        reply.item()
    }

    /// Overwrites the item with this key.
    async fn set(&self, key: &[u8], expiry: u64, bytes: &[u8], deadline: Moment) -> FaultResult<()> {
        let rest = format!("0 {expiry} {}", bytes.len());
        let [reply] =
            self.client.call(deadline, Commands::default().line("set", key, &rest).data(bytes)).await?;
        match reply.line()?.as_str() {
            "STORED" => Ok(()),
            other => Err(nonsense(other)),
        }
    }

    /// Draws a number greater than `above` from the counter of the lock with the key `lock`. A counter that the server
    /// has dropped continues from the clock of this host, in milliseconds. The clock is ahead of the old counter unless
    /// it was set back.
    async fn draw(&self, lock: &[u8], above: u64, deadline: Moment) -> FaultResult<u64> {
        let key = Naming::token(lock);
        let mut step = 1;
        loop {
            let count = Commands::default().line("incr", &key, &step.to_string());
            let [reply] = self.client.call(deadline, count).await?;
            match drawn(&reply.line()?)? {
                Some(number) if number > above => return Ok(number),
                Some(number) => step = above - number + 1,
                None => {
                    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                    let first = u64::try_from(since.as_millis()).unwrap_or(1).max(above + 1);
                    let text = first.to_string();
                    let rest = format!("0 0 {}", text.len());
                    let begin = Commands::default().line("add", &key, &rest).data(text.as_bytes());
                    let [reply] = self.client.call(deadline, begin).await?;
                    if reply.line()? == "STORED" {
                        return Ok(first);
                    }
                }
            }
        }
    }

    /// Lists all keys of the server over a separate connection, because the server's lister thread takes over the
    /// connection.
    ///
    /// Errors: `Unsupported` if that thread is switched off; `Unavailable` if it is busy until the deadline.
    async fn keys(&self, deadline: Moment) -> FaultResult<Vec<Vec<u8>>> {
        let (client, clock) = (self.client.apart(), self.client.0.clock);
        while clock.now() < deadline {
            let ask = Commands::default().line("lru_crawler metadump all", b"", "");
            let [reply] = client.call(deadline, ask).await?;
            match reply {
                // A line is `key=NAME exp=…`, with the name escaped.
                Reply::List(lines) => {
                    let name = |line: &String| {
                        percent_decoded(line.strip_prefix("key=")?.split(' ').next()?.as_bytes())
                    };
                    return Ok(lines.iter().filter_map(name).collect());
                }
                Reply::Items(_) => return Ok(Vec::new()),
                Reply::Line(line) if line.starts_with("BUSY") => clock.sleep_until(clock.now() + PAUSE).await,
                Reply::Line(line) => {
                    let why = format!("it does not list its keys ({line}); it does with -o lru_crawler");
                    return Err(Fault::new(ErrorKind::Unsupported, why));
                }
            }
        }
        Err(Fault::unavailable("it was busy until the deadline listing its keys for others"))
    }
}

#[async_trait]
impl Items for MemcachedStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { abandoned_bound: Duration::from_secs(5), ..Capabilities::of(NAME) }
    }

    fn identity(&self) -> String {
        self.client.config().identity()
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
        let [reply] = self.client.call(deadline, delete).await?;
        reply.line().map(drop)
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

    async fn read(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Stored>> {
        self.get(&self.naming.lock(name)?, deadline).await
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
        let commands = Commands::default().line("add", &lock, &rest).data(empty);
        let commands = commands.line("gets", &lock, "").line("incr", &Naming::token(&lock), "1");
        let [added, item, counted] = self.client.call(deadline, commands).await?;
        added.line()?;
        let item = item.item()?;
        let number = match drawn(&counted.line()?)? {
            Some(number) => number,
            None => self.draw(&lock, 0, deadline).await?,
        };
        let vanished = || Fault::unavailable("it does not keep the item of the lock for even a moment");
        Ok(Arrival { item: item.ok_or_else(vanished)?, number })
    }

    async fn time(&self, deadline: Moment) -> FaultResult<u64> {
        let [stats] = self.client.call(deadline, Commands::default().line("stats", b"", "")).await?;
        time(stats)
    }

    async fn number(&self, name: &LockName, above: u64, deadline: Moment) -> FaultResult<u64> {
        self.draw(&self.naming.lock(name)?, above, deadline).await
    }

    async fn replace(
        &self,
        name: &LockName,
        version: &Version,
        bytes: &[u8],
        life: Duration,
        deadline: Moment,
    ) -> FaultResult<bool> {
        self.swap(name, version, &expiry(life).to_string(), bytes, deadline).await
    }

    /// `delete` does not compare versions. A replacement that expires at once does.
    async fn remove(&self, name: &LockName, version: &Version, deadline: Moment) -> FaultResult<bool> {
        self.swap(name, version, "-1", b"", deadline).await
    }

    async fn read_note(&self, name: &LockName, id: ClaimId, deadline: Moment) -> FaultResult<Option<Stored>> {
        self.get(&self.naming.note(name, id)?, deadline).await
    }

    async fn write_note(
        &self,
        name: &LockName,
        id: ClaimId,
        bytes: &[u8],
        life: Duration,
        deadline: Moment,
    ) -> FaultResult<()> {
        self.set(&self.naming.note(name, id)?, expiry(life), bytes, deadline).await
    }

    /// Claims that held together may overwrite each other's record. Each of them is of a run that succeeded.
    async fn record_success(&self, name: &LockName, ago: Duration, deadline: Moment) -> FaultResult<()> {
        let key = Naming::success(&self.naming.lock(name)?);
        let commands = Commands::default().line("stats", b"", "").line("gets", &key, "");
        let [stats, last] = self.client.call(deadline, commands).await?;
        let now = Duration::from_millis(time(stats)?);
        let mut acquired = now.saturating_sub(ago);
        // A later time written by another client stays.
        if let Some(known) = last.item()?.as_ref().and_then(acquired_at) {
            acquired = success::latest(now, Duration::from_millis(known), acquired);
        }
        self.set(&key, 0, acquired.as_millis().to_string().as_bytes(), deadline).await
    }

    async fn age_of_success(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Duration>> {
        let key = Naming::success(&self.naming.lock(name)?);
        let commands = Commands::default().line("stats", b"", "").line("gets", &key, "");
        let [stats, last] = self.client.call(deadline, commands).await?;
        let Some(acquired) = last.item()?.as_ref().and_then(acquired_at) else { return Ok(None) };
        Ok(success::age(Duration::from_millis(time(stats)?), Duration::from_millis(acquired)))
    }

    async fn all(&self, deadline: Moment) -> FaultResult<Vec<(Vec<u8>, Stored)>> {
        let mut items = Vec::new();
        for keys in self.naming.locks_among(&self.keys(deadline).await?).chunks(MOST_KEYS) {
            let gets = Commands::default().line("gets", &keys.join(&b' '), "");
            let [reply] = self.client.call(deadline, gets).await?;
            items.extend(reply.items()?);
        }
        Ok(items)
    }
}
