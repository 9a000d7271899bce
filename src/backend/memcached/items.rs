//! Requests for items by key, for counters and for the list of keys.

use std::time::{Duration, SystemTime};

use super::client::{Client, Commands};
use super::connection::Connection;
use super::fault::nonsense;
use super::keys::{Key, Naming};
use super::wire::Reply;
use crate::lock::name::percent_decoded;
use crate::lock::{ErrorKind, Moment};
use crate::net::fault::{Fault, FaultResult};
use crate::queue::document::{Item, Replaced, Version};

/// The most bytes of keys in one line.
const LINE: usize = 1500;

impl Client {
    /// Replaces the item by compare-and-set, and reads it afterwards. A restarted server numbers its writes from the
    /// beginning, so a version is comparable only over its own connection. Over another one the item is only read.
    pub(super) async fn swap(
        &self,
        key: &[u8],
        version: &Version,
        expiry: &str,
        bytes: &[u8],
        deadline: Moment,
    ) -> FaultResult<Replaced> {
        let commands = |connection: &Connection| {
            let mut commands = Commands::default();
            if connection.number == version.connection {
                let rest = format!("0 {expiry} {} {}", bytes.len(), version.write);
                commands = commands.value("cas", key, &rest, bytes);
            }
            commands.line("gets", key, "")
        };
        let mut replies = self.call_over(deadline, commands).await?;
        if replies.connection != version.connection {
            return Ok(Replaced { done: false, item: replies.next()?.item()? });
        }
        let line = replies.next()?.line()?;
        replaced(&line, replies.next()?.item()?)
    }

    /// Replaces the item with this `version`, or adds one if `version` is `None`, and reads the item afterwards.
    pub(super) async fn put(
        &self,
        key: &[u8],
        version: Option<&Version>,
        bytes: &[u8],
        deadline: Moment,
    ) -> FaultResult<Replaced> {
        if let Some(version) = version {
            return self.swap(key, version, "0", bytes, deadline).await;
        }
        let add = Commands::default().value("add", key, &format!("0 0 {}", bytes.len()), bytes);
        let mut replies = self.call(deadline, add.line("gets", key, "")).await?;
        let line = replies.next()?.line()?;
        let item = replies.next()?.item()?;
        match line.as_str() {
            "STORED" => Ok(Replaced { done: true, item }),
            "NOT_STORED" => Ok(Replaced { done: false, item }),
            other => Err(nonsense(other)),
        }
    }

    /// Reads the item with this key.
    pub(super) async fn get(&self, key: &[u8], deadline: Moment) -> FaultResult<Option<Item>> {
        let mut replies = self.call(deadline, Commands::default().line("gets", key, "")).await?;
        replies.next()?.item()
    }

    /// Reads the items with these keys, and returns those that exist, with their keys.
    pub(super) async fn get_all(&self, keys: &[Key], deadline: Moment) -> FaultResult<Vec<(Vec<u8>, Item)>> {
        let mut items = Vec::new();
        let mut rest = keys;
        while !rest.is_empty() {
            let mut length = 0;
            let fits = |key: &&Key| {
                length += key.len() + 1;
                length <= LINE
            };
            let (some, others) = rest.split_at(rest.iter().take_while(fits).count().max(1));
            let gets = Commands::default().line("gets", &some.join(&b' '), "");
            items.extend(self.call(deadline, gets).await?.next()?.items()?);
            rest = others;
        }
        Ok(items)
    }

    /// Overwrites the item with this key.
    pub(super) async fn set(
        &self,
        key: &[u8],
        expiry: u64,
        bytes: &[u8],
        deadline: Moment,
    ) -> FaultResult<()> {
        let rest = format!("0 {expiry} {}", bytes.len());
        let set = Commands::default().value("set", key, &rest, bytes);
        match self.call(deadline, set).await?.next()?.line()?.as_str() {
            "STORED" => Ok(()),
            other => Err(nonsense(other)),
        }
    }
}

fn replaced(line: &str, item: Option<Item>) -> FaultResult<Replaced> {
    match line {
        "STORED" => Ok(Replaced { done: true, item }),
        "EXISTS" | "NOT_FOUND" => Ok(Replaced { done: false, item }),
        other => Err(nonsense(other)),
    }
}

/// Draws a number greater than `above` from the counter of the lock with the key `lock`. A counter that the server has
/// dropped continues from the clock of this host, in milliseconds. The clock is ahead of the old counter unless it was
/// set back.
pub(super) async fn draw(client: &Client, lock: &[u8], above: u64, deadline: Moment) -> FaultResult<u64> {
    let key = Naming::token(lock);
    let mut step = 1;
    loop {
        let count = Commands::default().line("incr", &key, &step.to_string());
        match drawn(&client.call(deadline, count).await?.next()?.line()?)? {
            Some(number) if number > above => return Ok(number),
            Some(number) => step = above - number + 1,
            None => {
                let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let first = u64::try_from(since.as_millis()).unwrap_or(1).max(above + 1);
                let text = first.to_string();
                let rest = format!("0 0 {}", text.len());
                let begin = Commands::default().value("add", &key, &rest, text.as_bytes());
                if client.call(deadline, begin).await?.next()?.line()? == "STORED" {
                    return Ok(first);
                }
            }
        }
    }
}

/// Parses the answer to `incr`; `None` if there is no counter.
pub(super) fn drawn(line: &str) -> FaultResult<Option<u64>> {
    if line == "NOT_FOUND" {
        return Ok(None);
    }
    line.trim().parse().map(Some).map_err(|_| nonsense(line))
}

/// The pause between two attempts while another client lists the keys.
const PAUSE: Duration = Duration::from_millis(20);

/// Lists all keys of the server over a separate connection, because the server's lister thread takes over the
/// connection.
///
/// Errors: `Unsupported` if that thread is switched off; `Unavailable` if it is busy until the deadline.
pub(super) async fn keys(client: &Client, deadline: Moment) -> FaultResult<Vec<Key>> {
    let client = client.apart();
    loop {
        let ask = Commands::default().line("lru_crawler metadump all", b"", "");
        match client.call(deadline, ask).await?.next()? {
            Reply::Keys(lines) => return Ok(lines.iter().filter_map(|line| key(line)).collect()),
            Reply::Items(_) => return Ok(Vec::new()),
            Reply::Line(line) if line.starts_with("BUSY") => {}
            Reply::Line(line) => {
                return Err(Fault::new(
                    ErrorKind::Unsupported,
                    format!("it does not list its keys ({line}); it does with -o lru_crawler"),
                ));
            }
            Reply::Stats(_) => return Err(super::fault::nonsense("STAT")),
        }
        let next = client.0.clock.now() + PAUSE;
        if next >= deadline {
            return Err(Fault::unavailable("it was busy until the deadline listing its keys for others"));
        }
        client.0.clock.sleep_until(next).await;
    }
}

/// Returns the unescaped key of a line `key=NAME exp=…`.
fn key(line: &str) -> Option<Key> {
    percent_decoded(line.strip_prefix("key=")?.split(' ').next()?.as_bytes())
}
