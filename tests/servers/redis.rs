//! Redis servers.

mod messages;
mod spread;

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use dlock::backend::Backend;
use dlock::backend::context::with_context;
use dlock::backend::redis::redlock::{RedlockBackend, RedlockConfig};
use dlock::backend::redis::{RedisConfig, with_clock};
use dlock::clock::Clock;

use super::process::{Server, dying_with_us, free_port, lacking, shared_folder};
use super::site::{self, Facts, Kind, Need, Order, Site, number};
use crate::support::Service;

pub(crate) use spread::spread;

/// One server.
pub(crate) static KIND: Kind = Kind {
    name: "redis",
    backend: "redis",
    missing,
    start: |order| {
        let words: &[&str] = if order.keeps { &[] } else { &["--appendonly", "no"] };
        Arc::new(Redis { kind: &KIND, nodes: vec![start_with(words)] })
    },
    cluster: None,
    secure: None,
    address: |ports| site::addresses("redis://", ports),
    part: |whole, n| Service { prefix: Some(format!("t{n}:")), ..whole },
    client: |part, clock| {
        let config = RedisConfig::parse(&site::options(part)).expect("valid");
        with_context(Arc::new(with_clock(config, clock)))
    },
    protocol: || Box::new(messages::Resp),
    facts: Facts { news_within: |interval| interval / 3, hand_over: 80.0, ..Facts::USUAL },
};

/// Several servers that know nothing of each other.
pub(crate) static REDLOCK: Kind = Kind {
    name: "redlock",
    start: |order| Arc::new(Redis { kind: &REDLOCK, nodes: old_nodes(order) }),
    address: |ports| match ports {
        [port] => (1..=3).map(|n| format!("redis://127.0.0.{n}:{port}")).collect::<Vec<_>>().join(","),
        _ => site::addresses("redis://", ports),
    },
    client: |part, clock| {
        let options = dlock::backend::Options { max_ttl: Some(MAX_TTL), ..site::options(part) };
        let config = RedlockConfig::parse(&options).expect("valid").expect("several");
        with_context(Arc::new(RedlockBackend::with_clock(config, clock)))
    },
    facts: Facts {
        lacks: &[
            (Need::Queue, "a waiter for a Redlock tries by itself"),
            (Need::Shared, "a Redlock is exclusive or has slots"),
            (Need::Detached, "a Redlock is held by a process"),
            (Need::AtomicNames, "the nodes of a Redlock do not take several names in one step together"),
            (Need::Overtaking, "a request that comes late sets a key that ends with its ttl"),
        ],
        max_ttl: Some(MAX_TTL),
        hand_over: 800.0,
        // All TTLs are short. A renewal takes a few commands at each node.
        besides: |time| (time.as_secs_f64() / (MAX_TTL / 3).as_secs_f64() + 1.0) * 30.0,
        ..KIND.facts
    },
    ..KIND
};

/// The longest TTL on a Redlock. A younger node does not vote.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(10);

/// Returns the reason if this machine has no Redis.
pub(crate) fn missing() -> Option<String> {
    lacking(&["redis-server"], "redis-server")
}

/// Starts a server that keeps all data.
pub(crate) fn start() -> Server {
    start_with(&[])
}

/// Starts a server with these additional options.
pub(crate) fn start_with(options: &[&str]) -> Server {
    let port = free_port();
    start_in(shared_folder("redis"), port, &["--port", &port.to_string()], options)
}

/// Starts a server that listens on `port` with the options `listening`.
pub(crate) fn start_in(folder: PathBuf, port: u16, listening: &[&str], options: &[&str]) -> Server {
    let fixed = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--appendfsync", "always"];
    let all: Vec<String> =
        listening.iter().chain(&fixed).chain(options).map(|word| (*word).to_owned()).collect();
    Server::start(folder, port, move || {
        let mut command = dying_with_us("redis-server");
        command.args(&all);
        command
    })
}

/// Returns the address of a server.
pub(crate) fn address(server: &Server) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}

/// Returns the answer of the server at `port` to a command, in the server's own protocol.
#[track_caller]
pub(crate) fn raw(port: u16, words: &[&str]) -> String {
    try_raw(port, words).expect("answers")
}

/// Does the same as [`raw`] for a node to which the keys are moving.
#[track_caller]
pub(crate) fn asking(port: u16, words: &[&str]) -> String {
    let both = said(port, "*1\r\n$6\r\nASKING\r\n", words).expect("answers");
    both.strip_prefix("+OK\r\n").expect("it may be asked").to_owned()
}

/// Does the same as [`raw`] for a server that may be stopping.
pub(crate) fn try_raw(port: u16, words: &[&str]) -> io::Result<String> {
    said(port, "", words)
}

fn said(port: u16, before: &str, words: &[&str]) -> io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut request = format!("{before}{}", request(words));
    // The second command marks the end of the answer to the first.
    request.push_str("*2\r\n$4\r\nPING\r\n$11\r\ndlock-fence\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    let end = b"$11\r\ndlock-fence\r\n";
    while !answer.ends_with(end) {
        let got = stream.read(&mut buffer)?;
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        answer.extend_from_slice(&buffer[..got]);
    }
    answer.truncate(answer.len() - end.len());
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Returns the bytes of a command.
fn request(words: &[&str]) -> String {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        write!(text, "${}\r\n{word}\r\n", word.len()).expect("writes");
    }
    text
}

/// A Redis, or the nodes of a Redlock.
struct Redis {
    kind: &'static Kind,
    nodes: Vec<Server>,
}

impl Redis {
    /// Returns the part of a key that tells a Redlock from one Redis.
    fn group(&self) -> &'static str {
        if self.nodes.len() > 1 { "redlock:" } else { "" }
    }
}

impl Site for Redis {
    fn kind(&self) -> &'static Kind {
        self.kind
    }

    fn servers(&self) -> &[Server] {
        &self.nodes
    }

    /// Of several nodes, restarts the largest minority. A restarted node does not vote for a while, whatever data it
    /// kept.
    fn restart(&self) {
        for node in &self.nodes[..((self.nodes.len() - 1) / 2).max(1)] {
            node.restart();
            ready(node);
        }
    }

    /// Of several nodes, on the smallest majority.
    fn lose(&self, part: &Service, name: &str, id: &str) {
        let key = part.key("dlock:", name);
        let sides: &[&str] = if self.nodes.len() > 1 { &["redlock:slot1", "redlock:slot2"] } else { &[] };
        let sides = sides.iter().map(|side| format!("{{{key}}}:dlock:{side}"));
        let keys: Vec<String> = std::iter::once(key.clone()).chain(sides).collect();
        for node in &self.nodes[self.nodes.len() / 2..] {
            let says = |key: &&String| raw(node.port(), &["GET", key]).contains(id);
            let gone = keys.iter().find(says).cloned();
            let gone = gone.unwrap_or_else(|| format!("{{{key}}}:dlock:claim:{id}"));
            assert_eq!(raw(node.port(), &["DEL", &gone]), ":1\r\n", "{id} was there");
        }
    }

    /// Commands inside scripts count as well.
    fn requests(&self) -> u64 {
        let commands = |node: &Server| {
            let said = raw(node.port(), &["INFO", "stats"]);
            said.lines().find_map(|line| line.strip_prefix("total_commands_processed:")).map(number)
        };
        self.nodes.iter().map(|node| commands(node).expect("a count")).sum()
    }

    fn remains(&self, name: &str) -> Vec<String> {
        let script = r"local left = {}
            for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
              local keeps_out = redis.call('TYPE', key).ok == 'hash' and redis.call('HGET', key, 'gone')
              if not keeps_out and not key:find(':counters') then table.insert(left, key) end
            end
            return left";
        let all =
            self.nodes.iter().map(|node| raw(node.port(), &["EVAL", script, "0", &format!("*{name}*")]));
        all.flat_map(|said| said.lines().map(str::to_owned).collect::<Vec<_>>())
            .filter(|line| line.contains(name))
            .collect()
    }
}

/// The number of servers of a Redlock.
const NODES: usize = 5;

/// Starts independent servers that lose their data at a restart.
pub(crate) fn start_nodes() -> Vec<Server> {
    (0..NODES).map(|_| start_with(&["--appendonly", "no", "--databases", "4096"])).collect()
}

/// Returns such servers, old enough to vote. The first call starts all that this process will want, so that they age
/// together.
pub(crate) fn old_nodes(order: &Order) -> Vec<Server> {
    static STARTED: OnceLock<Mutex<Vec<Vec<Server>>>> = OnceLock::new();
    let started = STARTED.get_or_init(|| Mutex::new((0..order.in_all).map(|_| start_nodes()).collect()));
    let another = started.lock().expect("not poisoned").pop();
    let nodes = another.unwrap_or_else(start_nodes);
    for node in &nodes {
        await_age(node, MAX_TTL);
    }
    nodes
}

/// Returns the endpoints of several servers.
pub(crate) fn addresses(nodes: &[Server]) -> String {
    nodes.iter().map(address).collect::<Vec<_>>().join(",")
}

/// Returns the uptime that a node reports, in whole seconds.
pub(crate) fn age(node: &Server) -> Option<Duration> {
    let info = try_raw(node.port(), &["INFO", "server"]).ok()?;
    let uptime = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"))?;
    uptime.trim().parse().ok().map(Duration::from_secs)
}

/// Waits until a node has run for at least this long.
pub(crate) fn await_age(node: &Server, length: Duration) {
    let begun = Instant::now();
    while age(node).is_none_or(|age| age.as_secs() <= length.as_secs()) {
        assert!(begun.elapsed() < length + Duration::from_secs(60), "the node does not grow older");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the server answers.
pub(crate) fn ready(server: &Server) {
    while !try_raw(server.port(), &["PING"]).is_ok_and(|answer| answer.starts_with("+PONG")) {
        std::thread::yield_now();
    }
}

/// Starts a sentinel that watches the master at `port` under the name main, and decides alone.
pub(crate) fn start_sentinel(master: u16) -> Server {
    start_sentinel_with(master, "port", &[])
}

/// Starts one on another kind of port, with these additional lines in its configuration.
pub(crate) fn start_sentinel_with(master: u16, kind_of_port: &str, lines: &[String]) -> Server {
    let (folder, port) = (shared_folder("sentinel"), free_port());
    let monitor = format!("sentinel monitor main 127.0.0.1 {master} 1");
    let text = format!("{kind_of_port} {port}\nbind 127.0.0.1\n{monitor}\n{}\n", lines.join("\n"));
    let file = folder.join("sentinel.conf");
    fs::write(&file, text).expect("writes");
    Server::start(folder, port, move || {
        let mut command = dying_with_us("redis-server");
        command.arg(&file).arg("--sentinel");
        command
    })
}
