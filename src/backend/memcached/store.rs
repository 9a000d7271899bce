//! memcached as a store of documents.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use super::client::{Client, Commands, Replies};
use super::connection::Connection;
use super::fault::{NAME, nonsense};
use super::keys::{Key, Naming};
use super::wire::Reply;
use super::{examine, list};
use crate::backend::document::{Arrival, Item, Replaced, Store, Version};
use crate::backend::{Capabilities, Examination, TokenStrength, success};
use crate::lock::{ClaimId, LockName, Moment};
use crate::net::fault::{Fault, FaultResult};

/// What an item may have with its key and its header, if the server was not told otherwise, is a mebibyte.
const ROOM: usize = 1_048_576 - 2048;
/// memcached takes a longer time for a date.
const LONGEST_LIFE: Duration = Duration::from_hours(30 * 24);
/// Some less, since an item is kept a little longer than the ttl.
const LONGEST_TTL: Duration = Duration::from_hours(29 * 24);
/// How many bytes of keys are asked for in one line.
const LINE: usize = 1500;
/// How often an item may be gone at once that was made just now.
const VANISHINGS: usize = 5;

/// One memcached.
#[derive(Debug)]
pub(super) struct MemcachedStore {
    client: Arc<Client>,
    naming: Naming,
}

/// `life` as the protocol has it, rounded up.
fn expiry(life: Duration) -> u64 {
    let life = life.min(LONGEST_LIFE);
    life.as_secs() + u64::from(life.subsec_nanos() > 0)
}

fn replaced(line: &str, item: Option<Item>) -> FaultResult<Replaced> {
    match line {
        "STORED" => Ok(Replaced { done: true, item }),
        "EXISTS" | "NOT_FOUND" => Ok(Replaced { done: false, item }),
        other => Err(nonsense(other)),
    }
}

impl MemcachedStore {
    pub(super) fn new(client: Arc<Client>) -> Self {
        let naming = Naming { prefix: client.config().prefix.clone() };
        Self { client, naming }
    }

    async fn call(&self, deadline: Moment, commands: Commands) -> FaultResult<Replies> {
        self.client.call(deadline, commands).await
    }

    /// Compares and sets, and reads what is there then. A server that was restarted numbers its writes from the beginning, so a
    /// version says nothing over another connection than its own: there the item is only read.
    async fn swap(
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
        let mut replies = self.client.call_over(deadline, commands).await?;
        if replies.connection != version.connection {
            return Ok(Replaced { done: false, item: replies.next()?.item()? });
        }
        let line = replies.next()?.line()?;
        replaced(&line, replies.next()?.item()?)
    }

    /// Puts `bytes` in the place of the item with this `version`, or where nothing is if that is `None`, and reads what is there
    /// then.
    async fn put(
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

    async fn get(&self, key: &[u8], deadline: Moment) -> FaultResult<Option<Item>> {
        let mut replies = self.call(deadline, Commands::default().line("gets", key, "")).await?;
        replies.next()?.item()
    }

    /// Draws a number greater than `above` from the counter of the lock with the key `lock`. A counter that the server has
    /// forgotten goes on from the clock of this host, in milliseconds, which is higher unless that clock was set back.
    async fn draw(&self, lock: &[u8], above: u64, deadline: Moment) -> FaultResult<u64> {
        let key = Naming::token(lock);
        let mut step = 1;
        loop {
            let count = Commands::default().line("incr", &key, &step.to_string());
            match drawn(&self.call(deadline, count).await?.next()?.line()?)? {
                Some(number) if number > above => return Ok(number),
                Some(number) => step = above - number + 1,
                None => {
                    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                    let first = u64::try_from(since.as_millis()).unwrap_or(1).max(above + 1);
                    let text = first.to_string();
                    let rest = format!("0 0 {}", text.len());
                    let begin = Commands::default().value("add", &key, &rest, text.as_bytes());
                    if self.call(deadline, begin).await?.next()?.line()? == "STORED" {
                        return Ok(first);
                    }
                }
            }
        }
    }

    async fn set(&self, key: &[u8], expiry: u64, bytes: &[u8], deadline: Moment) -> FaultResult<()> {
        let rest = format!("0 {expiry} {}", bytes.len());
        let set = Commands::default().value("set", key, &rest, bytes);
        match self.call(deadline, set).await?.next()?.line()?.as_str() {
            "STORED" => Ok(()),
            other => Err(nonsense(other)),
        }
    }
}

/// The server's time, in milliseconds.
fn time(stats: Reply) -> FaultResult<u64> {
    stats.stats().number("time").map(|seconds| seconds * 1000).ok_or_else(|| nonsense("stats without time"))
}

/// When the run had acquired the lock that is the last success, on the server's clock, in milliseconds.
fn acquired_at(success: &Item) -> Option<u64> {
    std::str::from_utf8(&success.bytes).ok()?.trim().parse().ok()
}

/// What `incr` says; `None` if there is no counter.
fn drawn(line: &str) -> FaultResult<Option<u64>> {
    if line == "NOT_FOUND" {
        return Ok(None);
    }
    line.trim().parse().map(Some).map_err(|_| nonsense(line))
}

#[async_trait]
impl Store for MemcachedStore {
    fn backend(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: NAME,
            queue: true,
            shared: true,
            token: TokenStrength::Volatile,
            leased: true,
            renewals_per_ttl: 3,
            look_while_running: true,
            abandoned_bound: Duration::from_secs(5),
        }
    }

    fn identity(&self) -> String {
        self.client.config().identity()
    }

    fn has_connected(&self) -> bool {
        self.client.has_connected()
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
        // A name that cannot be written as a key was refused before anything was found there.
        let key = self.key(name).unwrap_or_default();
        format!("key {}", String::from_utf8_lossy(&key))
    }

    async fn read(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Item>> {
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
        for _ in 0..VANISHINGS {
            let commands = Commands::default()
                .value("add", &lock, &rest, empty)
                .line("gets", &lock, "")
                .line("incr", &Naming::token(&lock), "1");
            let mut replies = self.call(deadline, commands).await?;
            replies.next()?.line()?;
            let item = replies.next()?.item()?;
            let number = drawn(&replies.next()?.line()?)?;
            let Some(item) = item else { continue };
            let number = match number {
                Some(number) => number,
                None => self.draw(&lock, 0, deadline).await?,
            };
            return Ok(Arrival { item, number });
        }
        Err(Fault::unavailable("it does not keep the item of the lock for even a moment"))
    }

    async fn time(&self, deadline: Moment) -> FaultResult<u64> {
        time(self.call(deadline, Commands::default().line("stats", b"", "")).await?.next()?)
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
    ) -> FaultResult<Replaced> {
        let expiry = expiry(life).to_string();
        self.swap(&self.naming.lock(name)?, version, &expiry, bytes, deadline).await
    }

    /// `delete` does not compare, but a replacement that has expired at once does.
    async fn remove(&self, name: &LockName, version: &Version, deadline: Moment) -> FaultResult<Replaced> {
        self.swap(&self.naming.lock(name)?, version, "-1", b"", deadline).await
    }

    async fn read_note(&self, name: &LockName, id: ClaimId, deadline: Moment) -> FaultResult<Option<Item>> {
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

    async fn record_success(&self, name: &LockName, ago: Duration, deadline: Moment) -> FaultResult<()> {
        let key = Naming::success(&self.naming.lock(name)?);
        let commands = Commands::default().line("stats", b"", "").line("gets", &key, "");
        let mut replies = self.call(deadline, commands).await?;
        let now = Duration::from_millis(time(replies.next()?)?);
        let acquired = now.saturating_sub(ago);
        let mut last = replies.next()?.item()?;
        // Whoever is faster writes a later one, and what is later than this stays.
        let stays = |known| success::latest(now, Duration::from_millis(known), acquired) > acquired;
        while !last.as_ref().and_then(acquired_at).is_some_and(stays) {
            let version = last.as_ref().map(|last| &last.version);
            let acquired = acquired.as_millis().to_string();
            let replaced = self.put(&key, version, acquired.as_bytes(), deadline).await?;
            if replaced.done {
                break;
            }
            last = replaced.item;
        }
        Ok(())
    }

    async fn age_of_success(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Duration>> {
        let key = Naming::success(&self.naming.lock(name)?);
        let Some(item) = self.get(&key, deadline).await? else { return Ok(None) };
        let Some(acquired) = acquired_at(&item) else { return Ok(None) };
        let now = self.time(deadline).await?;
        Ok(success::age(Duration::from_millis(now), Duration::from_millis(acquired)))
    }

    async fn all(&self, deadline: Moment) -> FaultResult<Vec<(Vec<u8>, Item)>> {
        let keys: Vec<Key> = list::keys(&self.client, deadline).await?;
        let mut items = Vec::new();
        let locks = self.naming.locks_among(&keys);
        let mut rest = locks.as_slice();
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
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use super::super::config::MemcachedConfig;
    use super::*;
    use crate::backend::Options;
    use crate::clock::Clock;

    /// The item x, as the server of the first connection has it and as the one of the second does: by the same number.
    const ITEMS: [&str; 2] = ["VALUE x 0 1 3\r\na\r\nEND\r\n", "VALUE x 0 1 3\r\nb\r\nEND\r\n"];

    #[tokio::test]
    async fn a_comparison_is_not_sent_again_over_another_connection() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listens");
        let options = Options {
            endpoints: vec![format!("memcached://{}", listener.local_addr().expect("bound"))],
            ..Options::default()
        };
        let server = thread::spawn(move || {
            let mut heard = Vec::new();
            // The first is asked to change the item as well, and is gone then.
            for (item, requests) in ITEMS.into_iter().zip([2, 1]) {
                let (mut stream, _) = listener.accept().expect("accepts");
                for _ in 0..requests {
                    let mut buffer = [0; 1024];
                    let got = stream.read(&mut buffer).expect("is asked");
                    heard.push(String::from_utf8_lossy(&buffer[..got]).into_owned());
                    if buffer.starts_with(b"gets ") {
                        stream.write_all(item.as_bytes()).expect("answers");
                    }
                }
            }
            heard
        });
        let config = MemcachedConfig::parse(&options).expect("valid");
        let client = Arc::new(Client::new(config, Clock::Boot));
        let deadline = client.clock().now() + Duration::from_secs(10);
        let (store, name) = (MemcachedStore::new(client), "x".parse().expect("valid"));
        let read = store.read(&name, deadline).await.expect("reads").expect("an item");
        let replaced = store.remove(&name, &read.version, deadline).await.expect("is answered");
        assert!(!replaced.done, "it is another's");
        let after = replaced.item.expect("an item");
        assert_eq!((after.bytes.as_slice(), &after.version.write), (&b"b"[..], &read.version.write));
        assert!(after.version != read.version);
        assert_eq!(
            server.join().expect("ends"),
            ["gets x\r\n", "cas x 0 -1 0 3\r\n\r\ngets x\r\n", "gets x\r\n"]
        );
    }
}
