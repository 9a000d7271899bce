//! A service of a kind, and what an enemy can do to it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use crate::servers::etcd::{self, Etcd};
use crate::servers::postgres::{self, Postgres};
use crate::servers::{Server, mariadb, memcached, redis, zookeeper};
use crate::support::Service;

/// A kind of service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Etcd,
    Memcached,
    Mysql,
    Redis,
    Redlock,
    Zk,
    Postgres,
}

/// The longest ttl on a Redlock: a node that is younger has no say, and its tests wait for that.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(10);
/// How many tests want a Redlock of their own.
const OWN_REDLOCKS: usize = 15;

impl Kind {
    /// That of the running test, if its name says one.
    pub(crate) fn of_this_test() -> Option<Self> {
        match std::thread::current().name()?.split("::").next()? {
            "on_etcd" => Some(Self::Etcd),
            "on_memcached" => Some(Self::Memcached),
            "on_mysql" => Some(Self::Mysql),
            "on_redis" => Some(Self::Redis),
            "on_redlock" => Some(Self::Redlock),
            "on_zk" => Some(Self::Zk),
            "on_postgres" => Some(Self::Postgres),
            _ => None,
        }
    }

    /// As `--backend` calls it.
    pub(crate) fn backend(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Memcached => "memcached",
            Self::Mysql => "mysql",
            Self::Redis | Self::Redlock => "redis",
            Self::Zk => "zk",
            Self::Postgres => "postgres",
        }
    }

    /// The address of a port of this host; of several nodes the others are not there.
    pub(crate) fn address(self, port: u16) -> String {
        if self == Self::Redlock {
            return (1..=3).map(|n| format!("redis://127.0.0.{n}:{port}")).collect::<Vec<_>>().join(",");
        }
        let scheme = match self {
            Self::Etcd => "http",
            Self::Memcached => "memcached",
            Self::Mysql => return mariadb::address_at(port),
            Self::Redis | Self::Redlock => "redis",
            Self::Zk => "zk",
            Self::Postgres => return format!("postgres://postgres@127.0.0.1:{port}/postgres"),
        };
        format!("{scheme}://127.0.0.1:{port}")
    }

    /// How long after a loss at the service dlock may hear of it, if it renews every `interval`: where that is not
    /// pushed, at the next renewal.
    pub(crate) fn news_within(self, interval: Duration) -> Duration {
        match self {
            Self::Etcd | Self::Mysql | Self::Zk => Duration::ZERO,
            Self::Redis | Self::Redlock => interval / 3,
            Self::Memcached | Self::Postgres => interval,
        }
    }

    /// Whether a restart changes nothing.
    pub(crate) fn keeps_data(self) -> bool {
        self != Self::Memcached
    }

    /// How long after its ttl a claim that nobody renews may stand.
    pub(crate) fn abandoned_bound(self) -> Duration {
        match self {
            Self::Etcd => Duration::from_secs(2),
            Self::Memcached => Duration::from_secs(5),
            Self::Mysql | Self::Redis | Self::Redlock | Self::Postgres => Duration::from_secs(1),
            Self::Zk => zookeeper::TICK * 2,
        }
    }

    fn missing(self) -> Option<String> {
        match self {
            Self::Etcd => etcd::missing(),
            Self::Memcached => memcached::missing(),
            Self::Mysql => mariadb::missing(),
            Self::Redis | Self::Redlock => redis::missing(),
            Self::Zk => zookeeper::missing(),
            Self::Postgres => postgres::missing(),
        }
    }
}

/// A running service.
pub(crate) enum Site {
    Etcd(Etcd),
    Memcached(Server),
    Mysql(Server),
    Redis(Server),
    Redlock(Vec<Server>),
    Zk(Server),
    Postgres(Postgres),
}

/// The one that most tests of a kind share. It ends with this process, and its folder with it.
pub(crate) fn shared() -> &'static Site {
    static ALL: [OnceLock<Site>; 7] = [const { OnceLock::new() }; 7];
    let kind = Kind::of_this_test().expect("a test of a service");
    ALL[kind as usize].get_or_init(Site::start)
}

impl Site {
    /// Starts one of the running test's kind.
    pub(crate) fn start() -> Self {
        let kind = Kind::of_this_test().expect("a test of a service");
        if let Some(reason) = kind.missing() {
            panic!("{reason}; tests/run installs it");
        }
        match kind {
            Kind::Etcd => Self::Etcd(Etcd::start()),
            Kind::Memcached => Self::Memcached(memcached::start()),
            Kind::Mysql => Self::Mysql(mariadb::start()),
            // A database for each test.
            Kind::Redis => Self::Redis(redis::start_with(&["--databases", "4096"])),
            Kind::Redlock => Self::Redlock(nodes()),
            Kind::Zk => Self::Zk(zookeeper::start()),
            Kind::Postgres => Self::Postgres(postgres::start_with(&["fsync=on", "max_connections=600"])),
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Etcd(_) => Kind::Etcd,
            Self::Memcached(_) => Kind::Memcached,
            Self::Mysql(_) => Kind::Mysql,
            Self::Redis(_) => Kind::Redis,
            Self::Redlock(_) => Kind::Redlock,
            Self::Zk(_) => Kind::Zk,
            Self::Postgres(_) => Kind::Postgres,
        }
    }

    pub(crate) fn servers(&self) -> &[Server] {
        match self {
            Self::Etcd(etcd) => std::slice::from_ref(etcd.server()),
            Self::Memcached(server) | Self::Mysql(server) | Self::Redis(server) | Self::Zk(server) => {
                std::slice::from_ref(server)
            }
            Self::Redlock(nodes) => nodes,
            Self::Postgres(postgres) => std::slice::from_ref(postgres.server()),
        }
    }

    /// All of it accepts and answers nothing, until [`Site::thaw`].
    pub(crate) fn freeze(&self) {
        match self {
            Self::Postgres(postgres) => postgres.freeze(),
            _ => self.servers().iter().for_each(Server::freeze),
        }
    }

    /// Ends a freeze.
    pub(crate) fn thaw(&self) {
        match self {
            Self::Postgres(postgres) => postgres.thaw(),
            _ => self.servers().iter().for_each(Server::thaw),
        }
    }

    /// A part of the service that no other test uses.
    pub(crate) fn part(&self) -> Service {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let kind = self.kind();
        let endpoint = kind.address(self.servers()[0].port());
        let (endpoint, prefix) = match kind {
            Kind::Redlock => {
                let nodes = self.servers().iter().map(|node| format!("{}/{n}", redis::address(node)));
                (nodes.collect::<Vec<_>>().join(","), None)
            }
            Kind::Etcd | Kind::Memcached => (endpoint, Some(format!("t{n}/"))),
            Kind::Redis => (format!("{endpoint}/{n}"), None),
            Kind::Zk => (endpoint, Some(format!("/t{n}/"))),
            Kind::Mysql | Kind::Postgres => (endpoint, Some(format!("t{n}_"))),
        };
        Service { backend: kind.backend(), endpoint, prefix }
    }

    /// Takes the claim that holds the lock `name` in `part` away, behind the back of who holds it.
    pub(crate) fn lose(&self, part: &Service, name: &str) {
        let raw = format!("{}{name}", part.prefix.as_deref().unwrap_or_default());
        match self {
            Self::Etcd(etcd) => etcd.lose(&raw),
            Self::Memcached(server) => memcached::lose(server.port(), &raw),
            Self::Mysql(server) => mariadb::lose(server, part.prefix.as_deref().unwrap_or_default(), name),
            Self::Redis(server) => {
                let database = part.endpoint.rsplit('/').next().expect("a number");
                redis::lose_in(server.port(), database, name);
            }
            // At the least majority.
            Self::Redlock(nodes) => {
                let database = part.endpoint.rsplit('/').next().expect("a number");
                for node in &nodes[redis::NODES / 2..] {
                    redis::lose_in(node.port(), database, name);
                }
            }
            Self::Zk(server) => zookeeper::remove_first(server.port(), &raw),
            Self::Postgres(postgres) => postgres.lose(part.prefix.as_deref().unwrap_or_default(), name),
        }
    }

    /// How many requests it has had. On Redis commands inside scripts count as well, on MySQL steps on
    /// lines; on PostgreSQL what was asked over connections that are younger than the first call.
    pub(crate) fn requests(&self) -> u64 {
        let number = |text: &str| text.trim().parse::<u64>().expect("a number");
        let commands = |server: &Server| {
            let said = redis::raw(server.port(), &["INFO", "stats"]);
            said.lines().find_map(|line| line.strip_prefix("total_commands_processed:")).map(number)
        };
        match self {
            Self::Etcd(etcd) => etcd.requests(),
            Self::Memcached(server) => {
                let said = memcached::raw(server.port(), b"stats\r\n");
                let count = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)).map(number);
                ["STAT cmd_get ", "STAT cmd_set "].into_iter().filter_map(count).sum()
            }
            Self::Redis(server) => commands(server).expect("a count"),
            Self::Redlock(nodes) => nodes.iter().map(|node| commands(node).expect("a count")).sum(),
            Self::Zk(server) => {
                let said = zookeeper::said(server.port(), *b"srvr").expect("answers");
                said.lines().find_map(|line| line.strip_prefix("Received: ")).map(number).expect("a count")
            }
            Self::Mysql(server) => number(&mariadb::ask(
                server,
                "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'COM_BEGIN'",
            )),
            Self::Postgres(postgres) => postgres.requests(),
        }
    }

    /// SIGKILL to a database.
    pub(crate) fn down(&self) {
        match self {
            Self::Postgres(postgres) => postgres.down(),
            _ => self.servers().iter().for_each(Server::down),
        }
    }

    /// SIGKILL, and up again with its data.
    pub(crate) fn restart(&self) {
        match self {
            Self::Etcd(etcd) => etcd.restart(),
            Self::Mysql(server) => mariadb::restart(server),
            Self::Redis(server) => {
                server.restart();
                redis::ready(server);
            }
            // A minority: restarted nodes have no say for a while.
            Self::Redlock(nodes) => {
                for node in &nodes[..redis::NODES / 2] {
                    node.restart();
                    redis::ready(node);
                }
            }
            // A memcached is up again without what it knew.
            Self::Memcached(server) | Self::Zk(server) => server.restart(),
            Self::Postgres(postgres) => postgres.crash(),
        }
    }
}

/// The nodes that tests share which do nothing to them; each with a database of its own.
pub(crate) fn shared_nodes() -> (&'static [Server], u64) {
    static SHARED: OnceLock<Vec<Server>> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(1);
    (SHARED.get_or_init(nodes), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Nodes that are old enough to have a say. All that the tests will want are started at once, so that they grow old
/// together.
pub(crate) fn nodes() -> Vec<Server> {
    static STARTED: OnceLock<Mutex<Vec<Vec<Server>>>> = OnceLock::new();
    let start = || redis::start_nodes(&["--databases", "4096"]);
    let started = STARTED.get_or_init(|| Mutex::new((0..=OWN_REDLOCKS).map(|_| start()).collect()));
    let nodes = started.lock().expect("not poisoned").pop().unwrap_or_else(start);
    for node in &nodes {
        redis::await_age(node, MAX_TTL);
    }
    nodes
}
