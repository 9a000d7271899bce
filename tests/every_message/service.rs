//! The services, and what is left in them.

use std::sync::OnceLock;

use crate::http2::Http2;
use crate::mysql::Mysql;
use crate::postgres::Postgres;
use crate::resp::Resp;
use crate::servers::etcd::{self, Etcd};
use crate::servers::postgres::{self, Postgres as PostgresServer};
use crate::servers::zookeeper::Raw;
use crate::servers::{Server, mariadb, redis, zookeeper};
use crate::support::{self, Bed};
use crate::wire::Wire;
use crate::zookeeper::Zookeeper;

/// A service, and which of its servers the relays that strike lead to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Service {
    Redis,
    /// The fault is at one of five nodes.
    RedlockOne,
    /// The fault is at three of five nodes.
    RedlockMost,
    Etcd,
    Zookeeper,
    Mysql,
    Postgres,
}

/// What runs.
enum Running {
    Redis(Vec<Server>),
    Etcd(Etcd),
    Zookeeper(Server),
    Mysql(Server),
    Postgres(PostgresServer),
}

/// The longest ttl on a Redlock: a younger node has no say. That of every bed.
const MAX_TTL: std::time::Duration = std::time::Duration::from_secs(10);

impl Service {
    pub(crate) const ALL: [Self; 7] = [
        Self::Redis,
        Self::RedlockOne,
        Self::RedlockMost,
        Self::Etcd,
        Self::Zookeeper,
        Self::Mysql,
        Self::Postgres,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::RedlockOne => "redlock-one",
            Self::RedlockMost => "redlock-most",
            Self::Etcd => "etcd",
            Self::Zookeeper => "zk",
            Self::Mysql => "mysql",
            Self::Postgres => "postgres",
        }
    }

    /// As `DLOCK_TEST_REQUIRE` names it.
    pub(crate) fn requirement(self) -> &'static str {
        if self.is_redlock() { "redlock" } else { self.name() }
    }

    pub(crate) fn is_redlock(self) -> bool {
        matches!(self, Self::RedlockOne | Self::RedlockMost)
    }

    /// Why it cannot be had on this machine.
    pub(crate) fn missing(self) -> Option<String> {
        match self {
            Self::Redis | Self::RedlockOne | Self::RedlockMost => redis::missing(),
            Self::Etcd => etcd::missing(),
            Self::Zookeeper => zookeeper::missing(),
            Self::Mysql => mariadb::missing(),
            Self::Postgres => postgres::missing(),
        }
    }

    /// How many of its servers, the first ones, are reached through a relay that strikes.
    pub(crate) fn struck(self) -> usize {
        if self == Self::RedlockMost { redis::NODES / 2 + 1 } else { 1 }
    }

    /// What its messages are.
    pub(crate) fn wire(self) -> fn() -> Box<dyn Wire> {
        match self {
            Self::Redis | Self::RedlockOne | Self::RedlockMost => || Box::new(Resp),
            Self::Etcd => || Box::<Http2>::default(),
            Self::Zookeeper => || Box::<Zookeeper>::default(),
            Self::Mysql => || Box::<Mysql>::default(),
            Self::Postgres => || Box::<Postgres>::default(),
        }
    }

    /// The address of its servers, at these ports.
    pub(crate) fn at(self, ports: &[u16]) -> support::Service {
        let all = |scheme: &str| {
            ports.iter().map(|port| format!("{scheme}://127.0.0.1:{port}")).collect::<Vec<_>>().join(",")
        };
        let (backend, endpoint) = match self {
            Self::Redis | Self::RedlockOne | Self::RedlockMost => ("redis", all("redis")),
            Self::Etcd => ("etcd", all("http")),
            Self::Zookeeper => ("zk", all("zk")),
            Self::Mysql => ("mysql", mariadb::address_at(ports[0])),
            Self::Postgres => ("postgres", format!("postgres://postgres@127.0.0.1:{}/postgres", ports[0])),
        };
        support::Service { backend, endpoint, prefix: None }
    }

    fn running(self) -> &'static Running {
        static ALL: [OnceLock<Running>; 6] = [const { OnceLock::new() }; 6];
        let at = if self.is_redlock() { Self::RedlockOne as usize } else { self as usize };
        let slot = if at > 1 { at - 1 } else { at };
        ALL[slot].get_or_init(|| {
            let running = self.start();
            // What the first run makes is there from now on.
            let bed = Bed::on(self.at(&running.ports()));
            let first = bed.finish(&mut bed.run(["--name", "first", "--", "true"]));
            assert_eq!(first.code(), Some(0), "{}", first.err);
            running
        })
    }

    fn start(self) -> Running {
        match self {
            Self::Redis => Running::Redis(vec![redis::start_with(&["--appendonly", "no"])]),
            Self::RedlockOne | Self::RedlockMost => {
                let nodes = redis::start_nodes(&[]);
                for node in &nodes {
                    redis::await_age(node, MAX_TTL);
                }
                Running::Redis(nodes)
            }
            Self::Etcd => Running::Etcd(Etcd::start()),
            Self::Zookeeper => Running::Zookeeper(zookeeper::start()),
            Self::Mysql => Running::Mysql(mariadb::start()),
            Self::Postgres => Running::Postgres(postgres::start_with(&["max_connections=500"])),
        }
    }

    /// The ports of its servers.
    pub(crate) fn ports(self) -> Vec<u16> {
        self.running().ports()
    }

    /// What is left of the lock `name` and may not stay. A counter of tokens may, and what keeps late requests out.
    pub(crate) fn remains(self, name: &str) -> Vec<String> {
        let lines = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
        match self.running() {
            Running::Redis(nodes) => nodes.iter().flat_map(|node| keys(node.port(), name)).collect(),
            Running::Etcd(etcd) => {
                let keys = lines(etcd.ask(&["get", "--prefix", "--keys-only", &format!("dlock/{name}")]));
                keys.into_iter().filter(|key| !key.is_empty() && !key.ends_with("%d")).collect()
            }
            Running::Zookeeper(server) => {
                let mut raw = Raw::connect(server.port(), 0);
                let line = format!("/dlock/{name}");
                // Curator's leases are in a container, which the server itself removes in the end.
                let leases = raw.children(&format!("{line}/leases"));
                raw.children(&line).into_iter().filter(|node| node != "leases").chain(leases).collect()
            }
            Running::Mysql(server) => {
                let table = format!("{}.dlock_claim", mariadb::DATABASE);
                lines(mariadb::ask(server, &format!("SELECT claim FROM {table} WHERE name = '{name}'")))
            }
            Running::Postgres(postgres) => {
                let rows = postgres.sql(&format!("SELECT claim FROM dlock_claim WHERE name = '{name}'"));
                lines(rows).into_iter().filter(|row| !row.is_empty()).collect()
            }
        }
    }
}

impl Running {
    fn ports(&self) -> Vec<u16> {
        match self {
            Self::Redis(nodes) => nodes.iter().map(Server::port).collect(),
            Self::Etcd(etcd) => vec![etcd.server().port()],
            Self::Zookeeper(server) | Self::Mysql(server) => vec![server.port()],
            Self::Postgres(postgres) => vec![postgres.port()],
        }
    }
}

/// The keys of the lock `name` at a node that may not stay.
fn keys(port: u16, name: &str) -> Vec<String> {
    let script = r"local left = {}
        for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
          local keeps_out = redis.call('TYPE', key).ok == 'hash' and redis.call('HGET', key, 'gone')
          if not keeps_out and not key:find(':counters') then table.insert(left, key) end
        end
        return left";
    let said = redis::raw(port, &["EVAL", script, "0", &format!("*{name}*")]);
    said.lines().filter(|line| line.contains(name)).map(str::to_owned).collect()
}
