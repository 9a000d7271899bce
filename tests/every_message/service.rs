//! The services, and what is left in them.

use std::sync::OnceLock;
use std::time::Duration;

use crate::relay::Protocol;
use crate::relay::http2::Http2;
use crate::relay::memcached::Memcached;
use crate::relay::mysql::Mysql;
use crate::relay::postgres::Postgres;
use crate::relay::resp::Resp;
use crate::relay::zookeeper::Zookeeper;
use crate::servers::etcd::{self, Cluster, Etcd};
use crate::servers::postgres::{self, Postgres as PostgresServer};
use crate::servers::zookeeper::Raw;
use crate::servers::{Server, mariadb, memcached, redis, zookeeper};
use crate::support::{self, Bed};

/// A service, and which of its servers the relays that strike lead to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Service {
    Redis,
    /// The fault is at one of five nodes.
    RedlockOne,
    /// The fault is at three of five nodes.
    RedlockMost,
    Etcd,
    /// Three servers; of one that falls silent, the others are still heard.
    EtcdThree,
    Zookeeper,
    /// Likewise.
    ZookeeperThree,
    Mysql,
    Postgres,
    Memcached,
}

/// What runs.
enum Running {
    Redis(Vec<Server>),
    Etcd(Etcd),
    EtcdThree(Cluster),
    Zookeeper(Vec<Server>),
    Mysql(Server),
    Postgres(PostgresServer),
    Memcached(Server),
}

/// The longest ttl on a Redlock: a younger node has no say. That of every bed.
const MAX_TTL: std::time::Duration = std::time::Duration::from_secs(10);

impl Service {
    pub(crate) const ALL: [Self; 10] = [
        Self::Redis,
        Self::RedlockOne,
        Self::RedlockMost,
        Self::Etcd,
        Self::EtcdThree,
        Self::Zookeeper,
        Self::ZookeeperThree,
        Self::Mysql,
        Self::Postgres,
        Self::Memcached,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::RedlockOne => "redlock-one",
            Self::RedlockMost => "redlock-most",
            Self::Etcd => "etcd",
            Self::EtcdThree => "etcd-three",
            Self::Zookeeper => "zk",
            Self::ZookeeperThree => "zk-three",
            Self::Mysql => "mysql",
            Self::Postgres => "postgres",
            Self::Memcached => "memcached",
        }
    }

    /// As `DLOCK_TEST_REQUIRE` names it.
    pub(crate) fn requirement(self) -> &'static str {
        // What stands behind a hyphen is about the fault.
        self.name().split('-').next().expect("a first part")
    }

    pub(crate) fn is_redlock(self) -> bool {
        matches!(self, Self::RedlockOne | Self::RedlockMost)
    }

    /// Whether an observer is told of every change; elsewhere what was over soon may have been missed.
    pub(crate) fn tells_all(self) -> bool {
        matches!(self, Self::Etcd | Self::EtcdThree)
    }

    /// Why it cannot be had on this machine.
    pub(crate) fn missing(self) -> Option<String> {
        match self {
            Self::Redis | Self::RedlockOne | Self::RedlockMost => redis::missing(),
            Self::Etcd | Self::EtcdThree => etcd::missing(),
            Self::Zookeeper | Self::ZookeeperThree => zookeeper::missing(),
            Self::Mysql => mariadb::missing(),
            Self::Postgres => postgres::missing(),
            Self::Memcached => memcached::missing(),
        }
    }

    /// Whether one server of several may fall silent, and nothing is lost.
    pub(crate) fn bears_silence(self) -> bool {
        matches!(self, Self::RedlockOne | Self::EtcdThree | Self::ZookeeperThree)
    }

    /// How much longer than a ttl a claim may be there that nobody renews. On memcached each observer waits from when it first
    /// saw that.
    pub(crate) fn adds_to_ttl(self) -> Duration {
        Duration::from_secs(if matches!(self, Self::Memcached) { 5 } else { 2 })
    }

    /// The first of its servers' ports, for a relay each. The rest is reached without one.
    pub(crate) fn ways(self, ports: &[u16]) -> Vec<Vec<u16>> {
        match self {
            Self::EtcdThree | Self::ZookeeperThree => vec![ports.to_vec()],
            Self::RedlockMost => ports[..=redis::NODES / 2].iter().map(|port| vec![*port]).collect(),
            _ => vec![vec![ports[0]]],
        }
    }

    /// What its messages are.
    pub(crate) fn protocol(self) -> Protocol {
        match self {
            Self::Redis | Self::RedlockOne | Self::RedlockMost => || Box::new(Resp),
            Self::Etcd | Self::EtcdThree => || Box::<Http2>::default(),
            Self::Zookeeper | Self::ZookeeperThree => || Box::<Zookeeper>::default(),
            Self::Mysql => || Box::<Mysql>::default(),
            Self::Postgres => || Box::<Postgres>::default(),
            Self::Memcached => || Box::new(Memcached),
        }
    }

    /// The address of its servers, at these ports.
    pub(crate) fn at(self, ports: &[u16]) -> support::Service {
        let all = |scheme: &str| {
            ports.iter().map(|port| format!("{scheme}://127.0.0.1:{port}")).collect::<Vec<_>>().join(",")
        };
        let (backend, endpoint) = match self {
            Self::Redis | Self::RedlockOne | Self::RedlockMost => ("redis", all("redis")),
            Self::Etcd | Self::EtcdThree => ("etcd", all("http")),
            Self::Zookeeper | Self::ZookeeperThree => ("zk", all("zk").replace(",zk://", ",")),
            Self::Mysql => ("mysql", mariadb::address_at(ports[0])),
            Self::Postgres => ("postgres", format!("postgres://postgres@127.0.0.1:{}/postgres", ports[0])),
            Self::Memcached => ("memcached", all("memcached")),
        };
        support::Service { backend, endpoint, prefix: None }
    }

    fn running(self) -> &'static Running {
        static ALL: [OnceLock<Running>; Service::ALL.len()] = [const { OnceLock::new() }; Service::ALL.len()];
        // Both kinds of faults at the same nodes.
        let at = if self.is_redlock() { Self::RedlockOne as usize } else { self as usize };
        ALL[at].get_or_init(|| {
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
            Self::EtcdThree => Running::EtcdThree(Cluster::start()),
            Self::Zookeeper => Running::Zookeeper(vec![zookeeper::start()]),
            Self::ZookeeperThree => Running::Zookeeper(zookeeper::start_ensemble()),
            Self::Mysql => Running::Mysql(mariadb::start()),
            Self::Postgres => Running::Postgres(postgres::start_with(&["max_connections=500"])),
            Self::Memcached => Running::Memcached(memcached::start()),
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
                entries(&etcd.ask(&["get", "--prefix", "--keys-only", &format!("dlock/{name}")]))
            }
            Running::EtcdThree(cluster) => {
                entries(&cluster.ask(&["get", "--prefix", "--keys-only", &format!("dlock/{name}")]))
            }
            Running::Zookeeper(servers) => {
                let mut raw = Raw::connect(servers[0].port(), 0);
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
            Running::Memcached(server) => {
                memcached::value(server.port(), name).into_iter().map(|(text, _)| text).collect()
            }
        }
    }
}

impl Running {
    fn ports(&self) -> Vec<u16> {
        match self {
            Self::Redis(servers) | Self::Zookeeper(servers) => servers.iter().map(Server::port).collect(),
            Self::Etcd(etcd) => vec![etcd.server().port()],
            Self::EtcdThree(cluster) => cluster.ports(),
            Self::Mysql(server) | Self::Memcached(server) => vec![server.port()],
            Self::Postgres(postgres) => vec![postgres.port()],
        }
    }
}

/// The entries of a lock among its keys: the time of the last success stays.
fn entries(keys: &str) -> Vec<String> {
    let keys = keys.lines().filter(|key| !key.is_empty() && !key.ends_with("%d"));
    keys.map(str::to_owned).collect()
}

/// The keys of the lock `name` at a node that may not stay.
fn keys(port: u16, name: &str) -> Vec<String> {
    // A node of a Redlock that nobody has come to since a claim ran out there has it in its order, which the next one cleans.
    let script = r"local left = {}
        local function is_idle(key)
          if not key:find(':quorum:') or redis.call('TYPE', key).ok ~= 'zset' then return false end
          for _, claim in ipairs(redis.call('ZRANGE', key, 0, -1)) do
            if #redis.call('KEYS', '*' .. claim .. '*') > 0 then return false end
          end
          return true
        end
        for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
          local keeps_out = redis.call('TYPE', key).ok == 'hash' and redis.call('HGET', key, 'gone')
          if not keeps_out and not is_idle(key) and not key:find(':counters') then table.insert(left, key) end
        end
        return left";
    let said = redis::raw(port, &["EVAL", script, "0", &format!("*{name}*")]);
    said.lines().filter(|line| line.contains(name)).map(str::to_owned).collect()
}
