//! The services, and the servers of each that a fault strikes.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::servers::{KINDS, Kind, Order, Site};
use crate::support::TestEnv;

/// The services are shared, and not restarted.
const ORDER: Order = Order { keeps: false, in_all: 1, clients: 0 };

/// The servers of a service whose relays strike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layout {
    /// The only one.
    Only,
    /// One of several that know nothing of each other.
    One,
    /// The smallest majority of these.
    Most,
    /// All three servers of one service. If one falls silent, the others still answer.
    Three,
    /// All of a service with encryption and a password.
    Secure,
}

/// A service, and the place of its faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Service {
    /// Its description for tests.
    pub(crate) kind: &'static Kind,
    layout: Layout,
}

impl Service {
    /// Returns every service, in each of its layouts.
    pub(crate) fn all() -> Vec<Self> {
        let layouts = |kind: &Kind| match kind {
            _ if kind.cluster.is_some() => &[Layout::Only, Layout::Three][..],
            _ if kind.has_queue() => &[Layout::Only],
            _ => &[Layout::One, Layout::Most],
        };
        let of = |kind: &&'static Kind| {
            let kind = *kind;
            layouts(kind).iter().map(move |layout| Self { kind, layout: *layout })
        };
        KINDS.iter().flat_map(of).collect()
    }

    /// Returns the one with this [`Service::name`]; also a service whose messages cannot be read, which no choice of
    /// faults includes.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let encrypted = KINDS.into_iter().filter(|kind| kind.secure.is_some());
        let encrypted = encrypted.map(|kind| Self { kind, layout: Layout::Secure });
        Self::all().into_iter().chain(encrypted).find(|service| service.name() == name)
    }

    pub(crate) fn name(self) -> String {
        let layout = match self.layout {
            Layout::Only => "",
            Layout::One => "-one",
            Layout::Most => "-most",
            Layout::Three => "-three",
            Layout::Secure => "-secure",
        };
        format!("{}{layout}", self.kind.name)
    }

    /// Returns whether one server of several may fall silent without a loss.
    pub(crate) fn bears_silence(self) -> bool {
        matches!(self.layout, Layout::One | Layout::Three | Layout::Secure)
    }

    /// Returns how much longer than a TTL a claim without renewals may remain.
    pub(crate) fn adds_to_ttl(self) -> Duration {
        self.kind.facts.abandoned_bound.max(Duration::from_secs(2))
    }

    /// Returns the first of its servers' ports, with a relay for each. The others are reached directly.
    pub(crate) fn ways(self, ports: &[u16]) -> Vec<Vec<u16>> {
        match self.layout {
            Layout::Three | Layout::Secure => vec![ports.to_vec()],
            Layout::Most => ports[..=ports.len() / 2].iter().map(|port| vec![*port]).collect(),
            Layout::Only | Layout::One => vec![vec![ports[0]]],
        }
    }

    /// Returns the running service; both layouts of a Redlock have the same nodes.
    pub(crate) fn site(self) -> &'static dyn Site {
        static ALL: [[OnceLock<Arc<dyn Site>>; 3]; KINDS.len()] =
            [const { [const { OnceLock::new() }; 3] }; KINDS.len()];
        let at = KINDS.iter().position(|kind| *kind == self.kind).expect("it is listed");
        let (which, several) = match self.layout {
            Layout::Only | Layout::One | Layout::Most => (0, None),
            Layout::Three => (1, self.kind.cluster),
            Layout::Secure => (2, self.kind.secure),
        };
        let site = ALL[at][which].get_or_init(|| {
            let site = several.map_or_else(|| (self.kind.start)(&ORDER), |start| start());
            // Later runs find the directories and tables that the first run creates.
            let env = TestEnv::on(site.whole()).with_variables(site.variables());
            let first = env.finish(&mut env.run(["--name", "first", "--", "true"]));
            assert_eq!(first.code(), Some(0), "{}", first.err);
            site
        });
        &**site
    }
}
