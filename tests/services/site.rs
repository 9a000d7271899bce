//! A service of a kind, and what an enemy can do to it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::servers::etcd::{self, Etcd};
use crate::servers::postgres::{self, Postgres};
use crate::servers::{Server, mariadb, redis, zookeeper};
use crate::support::Service;

/// A kind of service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Etcd,
    Mysql,
    Redis,
    Zk,
    Postgres,
}

impl Kind {
    /// That of the running test, if its name says one.
    pub(crate) fn of_this_test() -> Option<Self> {
        match std::thread::current().name()?.split("::").next()? {
            "on_etcd" => Some(Self::Etcd),
            "on_mysql" => Some(Self::Mysql),
            "on_redis" => Some(Self::Redis),
            "on_zk" => Some(Self::Zk),
            "on_postgres" => Some(Self::Postgres),
            _ => None,
        }
    }

    /// As `--backend` calls it.
    pub(crate) fn backend(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Mysql => "mysql",
            Self::Redis => "redis",
            Self::Zk => "zk",
            Self::Postgres => "postgres",
        }
    }

    /// The address of a port of this host.
    pub(crate) fn address(self, port: u16) -> String {
        let scheme = match self {
            Self::Etcd => "http",
            Self::Mysql => return mariadb::address_at(port),
            Self::Redis => "redis",
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
            Self::Redis => interval / 3,
            Self::Postgres => interval,
        }
    }

    /// How long after its ttl a claim that nobody renews may stand.
    pub(crate) fn abandoned_bound(self) -> Duration {
        match self {
            Self::Etcd => Duration::from_secs(2),
            Self::Mysql | Self::Redis | Self::Postgres => Duration::from_secs(1),
            Self::Zk => zookeeper::TICK * 2,
        }
    }

    fn missing(self) -> Option<String> {
        match self {
            Self::Etcd => etcd::missing(),
            Self::Mysql => mariadb::missing(),
            Self::Redis => redis::missing(),
            Self::Zk => zookeeper::missing(),
            Self::Postgres => postgres::missing(),
        }
    }
}

/// A running service.
pub(crate) enum Site {
    Etcd(Etcd),
    Mysql(Server),
    Redis(Server),
    Zk(Server),
    Postgres(Postgres),
}

/// The one that most tests of a kind share. It ends with this process, and its folder with it.
pub(crate) fn shared() -> &'static Site {
    static ALL: [OnceLock<Site>; 5] = [const { OnceLock::new() }; 5];
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
            Kind::Mysql => Self::Mysql(mariadb::start()),
            // A database for each test.
            Kind::Redis => Self::Redis(redis::start_with(&["--databases", "4096"])),
            Kind::Zk => Self::Zk(zookeeper::start()),
            Kind::Postgres => Self::Postgres(postgres::start_with(&["fsync=on", "max_connections=600"])),
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Etcd(_) => Kind::Etcd,
            Self::Mysql(_) => Kind::Mysql,
            Self::Redis(_) => Kind::Redis,
            Self::Zk(_) => Kind::Zk,
            Self::Postgres(_) => Kind::Postgres,
        }
    }

    pub(crate) fn server(&self) -> &Server {
        match self {
            Self::Etcd(etcd) => etcd.server(),
            Self::Mysql(server) | Self::Redis(server) | Self::Zk(server) => server,
            Self::Postgres(postgres) => postgres.server(),
        }
    }

    /// It accepts and answers nothing, until [`Site::thaw`].
    pub(crate) fn freeze(&self) {
        match self {
            Self::Postgres(postgres) => postgres.freeze(),
            _ => self.server().freeze(),
        }
    }

    /// Ends a freeze.
    pub(crate) fn thaw(&self) {
        match self {
            Self::Postgres(postgres) => postgres.thaw(),
            _ => self.server().thaw(),
        }
    }

    /// A part of the service that no other test uses.
    pub(crate) fn part(&self) -> Service {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let kind = self.kind();
        let endpoint = kind.address(self.server().port());
        let (endpoint, prefix) = match kind {
            Kind::Etcd => (endpoint, Some(format!("t{n}/"))),
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
            Self::Mysql(server) => mariadb::lose(server, part.prefix.as_deref().unwrap_or_default(), name),
            Self::Redis(server) => {
                let database = part.endpoint.rsplit('/').next().expect("a number");
                redis::lose_in(server.port(), database, name);
            }
            Self::Zk(server) => zookeeper::remove_first(server.port(), &raw),
            Self::Postgres(postgres) => postgres.lose(part.prefix.as_deref().unwrap_or_default(), name),
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
            Self::Zk(server) => server.restart(),
            Self::Postgres(postgres) => postgres.crash(),
        }
    }
}
