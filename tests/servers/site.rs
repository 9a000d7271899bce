//! The descriptions of services for tests, and the faults that tests cause. Each service is described once, in the file
//! of its servers.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dlock::backend::{Backend, Options};
use dlock::clock::Clock;

use super::relay::Protocol;
use super::{KINDS, Server};
use crate::support::Service;

/// A property of a service that a test may need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// Claims expire by a TTL on the server.
    Leased,
    /// Waiters are in a queue: they hold in order of arrival, know how many are ahead, and are shown.
    Queue,
    /// Claims can hold together without slots.
    Shared,
    /// A claim need not belong to a process.
    Detached,
    /// Several names enter in one step.
    AtomicNames,
    /// It can be frozen: it accepts connections and answers nothing for a while.
    Freeze,
    /// It can be restarted, and keeps its data.
    Restart,
    /// A test can remove the object that carries a claim.
    Sever,
    /// A client can vanish without closing its session.
    Abandon,
    /// A client's clock can be wrong.
    Skew,
    /// A request may arrive after a later request of another client, even if its client no longer waits for the answer.
    Overtaking,
}

/// The services that a test process will start.
pub(crate) struct Order {
    /// Confirmed data survives a kill. If false, no test kills the service, and it may skip the work for that.
    pub(crate) keeps: bool,
    /// The number of services of a kind. Services that must have an age before they are useful age together.
    pub(crate) in_all: usize,
    /// The number of clients at once, if that is more than usual.
    pub(crate) clients: usize,
}

pub(crate) struct Kind {
    /// The name in `DLOCK_TEST_REQUIRE`.
    pub(crate) name: &'static str,
    /// The name for `--backend`.
    pub(crate) backend: &'static str,
    /// Returns the reason if this machine does not have it.
    pub(crate) missing: fn() -> Option<String>,
    pub(crate) start: fn(&Order) -> Arc<dyn Site>,
    /// Starts three servers that are one service, if the kind has that. One of them may fall silent.
    pub(crate) cluster: Option<fn() -> Arc<dyn Site>>,
    /// Starts one with encryption and a password.
    pub(crate) secure: Option<fn() -> Arc<dyn Site>>,
    /// Returns the address of its servers at these ports of this host. If the kind takes several servers and one port
    /// is given, no server listens at the others.
    pub(crate) address: fn(&[u16]) -> String,
    /// Turns the whole service into its `n`th part. Parts are independent of each other.
    pub(crate) part: fn(Service, u64) -> Service,
    /// Returns a client of a part, in which every name can be a lock's. It uses the given clock, if clients of the kind
    /// have clocks.
    pub(crate) client: fn(&Service, Clock) -> Arc<dyn Backend>,
    /// The reader of its messages.
    pub(crate) protocol: Protocol,
    /// Its promises and time limits.
    pub(crate) facts: Facts,
}

/// The promises and the time limits of a service.
#[derive(Clone, Copy)]
pub(crate) struct Facts {
    /// The needs that it does not meet, with the reasons.
    pub(crate) lacks: &'static [(Need, &'static str)],
    pub(crate) max_ttl: Option<Duration>,
    /// The time after its TTL for which a claim without renewals may stay.
    pub(crate) abandoned_bound: Duration,
    /// The time after which dlock learns of a loss at the service, for this interval of renewals. If the service sends
    /// no notification, dlock learns of it at the next renewal.
    pub(crate) news_within: fn(Duration) -> Duration,
    /// Whether the service notifies a waiter that its entry was removed. If not, the waiter learns of it when it
    /// renews.
    pub(crate) tells_waiters: bool,
    /// Whether claims belong to a session. The client keeps the session by its own clock and ends it when it is
    /// dropped.
    pub(crate) has_sessions: bool,
    /// The time limit for a call that waits for no TTL.
    pub(crate) patience: Duration,
    /// The time of watching after which a test concludes that nothing happens.
    pub(crate) blink: Duration,
    /// The most [`Site::requests`] for one hand-over: a poll, a release, and the reads and watches between them.
    pub(crate) hand_over: f64,
    /// Returns the number of unrelated requests that may arrive within this time.
    pub(crate) besides: fn(Duration) -> f64,
}

impl Facts {
    /// The facts of a service that meets all needs and reports a loss at a renewal, and whose clients send no unrelated
    /// requests.
    pub(super) const USUAL: Self = Self {
        lacks: &[],
        max_ttl: None,
        abandoned_bound: Duration::from_secs(1),
        news_within: |interval| interval,
        tells_waiters: true,
        has_sessions: false,
        patience: Duration::from_secs(2),
        blink: Duration::from_millis(30),
        hand_over: 2.0,
        besides: |_| 0.0,
    };
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Kind {}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Kind {
    /// Returns the kind with this name in `DLOCK_TEST_REQUIRE`.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        KINDS.into_iter().find(|kind| kind.name == name)
    }

    /// Returns the reason if it does not meet `need`.
    pub(crate) fn lacks(&self, need: Need) -> Option<&'static str> {
        self.facts.lacks.iter().find(|(lacking, _)| *lacking == need).map(|(_, why)| *why)
    }

    /// Returns whether claims hold in the order of arrival with rising tokens, and waiters are shown.
    pub(crate) fn has_queue(&self) -> bool {
        self.lacks(Need::Queue).is_none()
    }

    /// Returns whether it keeps its data over a restart.
    pub(crate) fn keeps_data(&self) -> bool {
        self.lacks(Need::Restart).is_none()
    }

    /// Returns `wanted`, or a TTL a second shorter than the longest one.
    pub(crate) fn ttl(&self, wanted: Duration) -> Duration {
        self.facts.max_ttl.map_or(wanted, |most| wanted.min(most.saturating_sub(Duration::from_secs(1))))
    }

    /// Returns the whole service with its servers at these ports of this host.
    pub(crate) fn at(&self, ports: &[u16]) -> Service {
        Service { backend: self.backend, endpoint: (self.address)(ports), prefix: None }
    }

    /// Returns the service that all tests of a process share if they do not disturb it.
    pub(crate) fn shared(&self, order: &Order) -> &'static Arc<dyn Site> {
        static ALL: [OnceLock<Arc<dyn Site>>; KINDS.len()] = [const { OnceLock::new() }; KINDS.len()];
        let at = KINDS.iter().position(|kind| *kind == self).expect("it is listed");
        ALL[at].get_or_init(|| (self.start)(order))
    }
}

/// A running service. It ends when it is dropped, or with this process.
pub(crate) trait Site: Send + Sync {
    fn kind(&self) -> &'static Kind;

    fn servers(&self) -> &[Server];

    /// Returns the whole service with its servers at these ports of this host.
    fn at(&self, ports: &[u16]) -> Service {
        self.kind().at(ports)
    }

    /// Returns the variables that a client needs to log in.
    fn variables(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Returns the reader of its messages.
    fn protocol(&self) -> Protocol {
        self.kind().protocol
    }

    /// Freezes all servers until [`Site::thaw`]: they accept connections and answer nothing.
    fn freeze(&self) {
        self.servers().iter().for_each(Server::freeze);
    }

    fn thaw(&self) {
        self.servers().iter().for_each(Server::thaw);
    }

    /// Sends SIGKILL.
    fn down(&self) {
        self.servers().iter().for_each(Server::down);
    }

    /// Kills servers and starts them again with their data. If the servers need each other, no more are killed at once
    /// than may be missing.
    fn restart(&self);

    /// Restarts it as an administrator does, if that makes a difference. No confirmed data is lost.
    fn restart_in_order(&self) {
        self.restart();
    }

    /// Removes the claim `id` on the lock `name` in `part` without its client's knowledge.
    fn lose(&self, part: &Service, name: &str, id: &str);

    /// Also removes the object that carries the claim, so that clients that wait for its end are notified.
    fn sever(&self, part: &Service, name: &str, id: &str) {
        self.lose(part, name, id);
    }

    /// Returns the number of requests so far.
    fn requests(&self) -> u64;

    /// Returns the leftovers of the lock `name` in the whole service that must not stay. A token counter may stay, and
    /// so may notes that keep late requests out.
    fn remains(&self, name: &str) -> Vec<String>;
}

impl dyn Site + '_ {
    pub(crate) fn ports(&self) -> Vec<u16> {
        self.servers().iter().map(Server::port).collect()
    }

    /// Returns the whole service.
    pub(crate) fn whole(&self) -> Service {
        self.at(&self.ports())
    }

    /// Returns a part of it for one test alone.
    pub(crate) fn part(&self) -> Service {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        (self.kind().part)(self.whole(), NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Returns the addresses of these ports of this host, each after `scheme`.
pub(super) fn addresses(scheme: &str, ports: &[u16]) -> String {
    ports.iter().map(|port| format!("{scheme}127.0.0.1:{port}")).collect::<Vec<_>>().join(",")
}

/// Parses the number in a server's answer.
pub(super) fn number(text: &str) -> u64 {
    text.trim().parse().expect("a number")
}

/// Returns the command-line options of `part`.
pub(super) fn options(part: &Service) -> Options {
    Options { endpoints: vec![part.endpoint.clone()], prefix: part.prefix.clone(), ..Options::default() }
}
