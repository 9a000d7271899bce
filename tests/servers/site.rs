//! What tests know of a service, and do to one. Each is described once, in the file of its servers.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dlock::backend::{Backend, Options};
use dlock::clock::Clock;

use super::relay::Protocol;
use super::{KINDS, Server};
use crate::support::Service;

/// What a test may need of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// Claims end by a ttl on the server.
    Leased,
    /// Waiters stand in a queue: they hold in order of arrival, know how many are ahead, and are shown.
    Queue,
    /// Claims can hold together without slots.
    Shared,
    /// A claim can be nobody's process's.
    Detached,
    /// Several names enter in one step.
    AtomicNames,
    /// It can be made to accept and answer nothing for a while.
    Freeze,
    /// It can be restarted, and keeps its data.
    Restart,
    /// What carries a claim can be taken away.
    Sever,
    /// A client can vanish without goodbye.
    Abandon,
    /// A client's clock can be wrong.
    Skew,
    /// Another process can become a client.
    OtherProcess,
    /// A request may come after one that another client sent later, also if nobody waits for its answer any more.
    Overtaking,
}

impl Need {
    /// Every need.
    pub(crate) const ALL: [Self; 12] = [
        Self::Leased,
        Self::Queue,
        Self::Shared,
        Self::Detached,
        Self::AtomicNames,
        Self::Freeze,
        Self::Restart,
        Self::Sever,
        Self::Abandon,
        Self::Skew,
        Self::OtherProcess,
        Self::Overtaking,
    ];
}

/// What a test process wants of the services that it starts.
pub(crate) struct Order {
    /// What they confirmed outlasts their end. Otherwise nobody ends them, and they need not take time for that.
    pub(crate) keeps: bool,
    /// How many of a kind it wants in all: those that are of use only when they are old grow old together.
    pub(crate) in_all: usize,
    /// How many clients there may be at once, if that is more than usual.
    pub(crate) clients: usize,
}

/// A kind of service.
pub(crate) struct Kind {
    /// As `DLOCK_TEST_REQUIRE` calls it.
    pub(crate) name: &'static str,
    /// As `--backend` calls it.
    pub(crate) backend: &'static str,
    /// Why there can be none on this machine.
    pub(crate) missing: fn() -> Option<String>,
    /// Starts one.
    pub(crate) start: fn(&Order) -> Arc<dyn Site>,
    /// Starts three servers that are one service, where there is that; one of them may fall silent.
    pub(crate) cluster: Option<fn() -> Arc<dyn Site>>,
    /// The same, encrypted, and closed to those without a password.
    pub(crate) secure: Option<fn() -> Arc<dyn Site>>,
    /// The address of its servers at these ports of this host. Where it takes several and one port is given, there is
    /// nobody at the others.
    pub(crate) address: fn(&[u16]) -> String,
    /// Makes of the whole service its `n`th part, which has nothing to do with the others.
    pub(crate) part: fn(Service, u64) -> Service,
    /// A client of a part, in which any name can be a lock's. One by a clock of its own, where clients have clocks.
    pub(crate) client: fn(&Service, Clock) -> Arc<dyn Backend>,
    /// What its messages are.
    pub(crate) protocol: Protocol,
    /// What it promises, and how soon.
    pub(crate) facts: Facts,
}

/// What a service promises, and how soon.
#[derive(Clone, Copy)]
pub(crate) struct Facts {
    /// What it does not meet, and why.
    pub(crate) lacks: &'static [(Need, &'static str)],
    /// The longest ttl.
    pub(crate) max_ttl: Option<Duration>,
    /// How long after its ttl a claim that nobody renews may stand.
    pub(crate) abandoned_bound: Duration,
    /// How long after a loss at the service dlock may hear of it, if it renews at this interval: where that is not
    /// pushed, at the next renewal.
    pub(crate) news_within: fn(Duration) -> Duration,
    /// Whether a claim that waits is told that it has been removed; elsewhere it learns that when it renews.
    pub(crate) tells_waiters: bool,
    /// Whether claims are a session's, which a client keeps by its own clock, and ends when it is dropped.
    pub(crate) has_sessions: bool,
    /// How long anything may take that waits for no ttl.
    pub(crate) patience: Duration,
    /// How long one looks on before believing that nothing happens.
    pub(crate) blink: Duration,
    /// The most [`Site::requests`] for one hand-over: a look, a release, and what has to be read and watched between them.
    pub(crate) hand_over: f64,
    /// How many requests that belong to no hand-over may come within this time.
    pub(crate) besides: fn(Duration) -> f64,
}

impl Facts {
    /// Those of a service that meets all needs, tells of losses when it is asked, and whose clients ask for nothing unasked.
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
    /// The one that `DLOCK_TEST_REQUIRE` calls so.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        KINDS.into_iter().find(|kind| kind.name == name)
    }

    /// Why it does not meet `need`, if it does not.
    pub(crate) fn lacks(&self, need: Need) -> Option<&'static str> {
        self.facts.lacks.iter().find(|(lacking, _)| *lacking == need).map(|(_, why)| *why)
    }

    /// Whether claims hold in the order of arrival, with rising tokens, and waiters are shown.
    pub(crate) fn has_queue(&self) -> bool {
        self.lacks(Need::Queue).is_none()
    }

    /// Whether a restart changes nothing.
    pub(crate) fn keeps_data(&self) -> bool {
        self.lacks(Need::Restart).is_none()
    }

    /// `wanted`, or as much as there can be of it in a ttl.
    pub(crate) fn ttl(&self, wanted: Duration) -> Duration {
        self.facts.max_ttl.map_or(wanted, |most| wanted.min(most.saturating_sub(Duration::from_secs(1))))
    }

    /// The whole service, with its servers at these ports of this host.
    pub(crate) fn at(&self, ports: &[u16]) -> Service {
        Service { backend: self.backend, endpoint: (self.address)(ports), prefix: None }
    }

    /// The one that all tests of a process share which do nothing to it.
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

    /// The whole service, with its servers at these ports of this host.
    fn at(&self, ports: &[u16]) -> Service {
        self.kind().at(ports)
    }

    /// What lets a client in.
    fn variables(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// What its messages are.
    fn protocol(&self) -> Protocol {
        self.kind().protocol
    }

    /// All of it accepts and answers nothing, until [`Site::thaw`].
    fn freeze(&self) {
        self.servers().iter().for_each(Server::freeze);
    }

    /// Ends a freeze.
    fn thaw(&self) {
        self.servers().iter().for_each(Server::thaw);
    }

    /// SIGKILL.
    fn down(&self) {
        self.servers().iter().for_each(Server::down);
    }

    /// SIGKILL, and up again with its data. Of several servers that need each other no more than may be missing.
    fn restart(&self);

    /// As an administrator does it, where that makes a difference: nothing of what was confirmed is lost.
    fn restart_in_order(&self) {
        self.restart();
    }

    /// Takes the claim `id` on the lock `name` in `part` away, behind the back of who has it.
    fn lose(&self, part: &Service, name: &str, id: &str);

    /// The same with what carries the claim, so that whoever waits for its end hears of it.
    fn sever(&self, part: &Service, name: &str, id: &str) {
        self.lose(part, name, id);
    }

    /// Dates the last success of the lock `name` in `part` an hour later, as a clock that is ahead does.
    fn postdate(&self, part: &Service, name: &str) {
        unreachable!("{name} in {part:?} is dated by a clock that cannot be set")
    }

    /// How many requests it has had.
    fn requests(&self) -> u64;

    /// What is left of the lock `name` and may not stay, in the whole service. A counter of tokens may, and what keeps late
    /// requests out.
    fn remains(&self, name: &str) -> Vec<String>;
}

impl dyn Site + '_ {
    pub(crate) fn ports(&self) -> Vec<u16> {
        self.servers().iter().map(Server::port).collect()
    }

    /// All of it.
    pub(crate) fn whole(&self) -> Service {
        self.at(&self.ports())
    }

    /// A part of it that nobody else uses.
    pub(crate) fn part(&self) -> Service {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        (self.kind().part)(self.whole(), NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The addresses of these ports of this host, each after `scheme`.
pub(super) fn addresses(scheme: &str, ports: &[u16]) -> String {
    ports.iter().map(|port| format!("{scheme}127.0.0.1:{port}")).collect::<Vec<_>>().join(",")
}

/// The number in a server's answer.
pub(super) fn number(text: &str) -> u64 {
    text.trim().parse().expect("a number")
}

/// What the options of the command line say of `part`.
pub(super) fn options(part: &Service) -> Options {
    Options { endpoints: vec![part.endpoint.clone()], prefix: part.prefix.clone(), ..Options::default() }
}
