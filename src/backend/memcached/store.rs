//! memcached as a keeper of documents.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use super::client::{Client, Commands};
use super::examine;
use super::fault::{NAME, nonsense};
use super::keys::Naming;
use super::wire::Reply;
use crate::backend::{Capabilities, Examination, ServiceClient};
use crate::lock::name::percent_decoded;
use crate::lock::{ErrorKind, LockName, Moment};
use crate::net::fault::{Fault, FaultResult};
use crate::net::rank::Rank;
use crate::queue::document::{Items, Stored, Version, Which};

/// The largest value. By default, an item with its key and its header has at most a mebibyte.
const ROOM: usize = 1_048_576 - 2048;
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

impl ServiceClient for MemcachedStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { abandoned_bound: Duration::from_secs(5), ..Capabilities::of(NAME) }
    }

    fn identity(&self) -> String {
        self.client.config().identity()
    }

    fn connects_as(&self, rank: Rank) {
        self.client.0.connects_as(rank);
    }

    fn has_connected(&self) -> bool {
        self.client.0.has_connected()
    }
}

#[async_trait]
impl Items for MemcachedStore {
    async fn forget(&self, name: &LockName, deadline: Moment) -> FaultResult<()> {
        let counter = Naming::token(&self.naming.lock(name)?);
        let delete = Commands::default().line("delete", &counter, "");
        let [reply] = self.client.call(deadline, delete).await?;
        reply.line().map(drop)
    }

    async fn examine(&self, deadline: Moment) -> FaultResult<Examination> {
        examine::examine(&self.client, deadline).await
    }

    fn room(&self) -> usize {
        ROOM
    }

    fn key(&self, which: Which<'_>) -> FaultResult<Vec<u8>> {
        self.naming.of(which)
    }

    async fn read(&self, which: Which<'_>, deadline: Moment) -> FaultResult<Option<Stored>> {
        let gets = Commands::default().line("gets", &self.naming.of(which)?, "");
        let [reply] = self.client.call(deadline, gets).await?;
        reply.item()
    }

    async fn write(
        &self,
        which: Which<'_>,
        bytes: &[u8],
        life: Option<Duration>,
        deadline: Moment,
    ) -> FaultResult<()> {
        let rest = format!("0 {} {}", life.map_or(0, expiry), bytes.len());
        let set = Commands::default().line("set", &self.naming.of(which)?, &rest).data(bytes);
        let [reply] = self.client.call(deadline, set).await?;
        match reply.line()?.as_str() {
            "STORED" => Ok(()),
            other => Err(nonsense(other)),
        }
    }

    async fn arrive(
        &self,
        name: &LockName,
        empty: &[u8],
        life: Duration,
        deadline: Moment,
    ) -> FaultResult<(Stored, Option<u64>)> {
        let lock = self.naming.lock(name)?;
        let rest = format!("0 {} {}", expiry(life), empty.len());
        let commands = Commands::default().line("add", &lock, &rest).data(empty);
        let commands = commands.line("gets", &lock, "").line("incr", &Naming::token(&lock), "1");
        let [added, item, counted] = self.client.call(deadline, commands).await?;
        added.line()?;
        let vanished = || Fault::unavailable("it does not keep the item of the lock for even a moment");
        Ok((item.item()?.ok_or_else(vanished)?, drawn(&counted.line()?)?))
    }

    async fn time(&self, deadline: Moment) -> FaultResult<u64> {
        let [stats] = self.client.call(deadline, Commands::default().line("stats", b"", "")).await?;
        let seconds = stats.stats().number("time");
        seconds.map(|seconds| seconds * 1000).ok_or_else(|| nonsense("stats without time"))
    }

    /// A counter that the server has dropped continues from the clock of this host, in milliseconds. The clock is ahead of
    /// the old counter unless it was set back.
    async fn number(&self, name: &LockName, above: u64, deadline: Moment) -> FaultResult<u64> {
        let key = Naming::token(&self.naming.lock(name)?);
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

    /// A restarted server numbers its writes from the beginning, so a version is comparable only over its own connection.
    /// Over another one nothing is written. `delete` does not compare versions. A replacement that expires at once does.
    async fn swap(
        &self,
        name: &LockName,
        version: &Version,
        new: Option<(Vec<u8>, Duration)>,
        deadline: Moment,
    ) -> FaultResult<bool> {
        let (bytes, expiry) = match new {
            Some((bytes, life)) => (bytes, expiry(life).to_string()),
            None => (Vec::new(), "-1".to_owned()),
        };
        // The command has the version after the length.
        let rest = format!("0 {expiry} {} {}", bytes.len(), version.write);
        let cas = Commands::default().line("cas", &self.naming.lock(name)?, &rest).data(&bytes);
        let mut replies = self.client.send(Some(version.connection), 1, deadline, cas).await?;
        let Some(reply) = replies.pop() else { return Ok(false) };
        match reply.line()?.as_str() {
            "STORED" => Ok(true),
            "EXISTS" | "NOT_FOUND" => Ok(false),
            other => Err(nonsense(other)),
        }
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
