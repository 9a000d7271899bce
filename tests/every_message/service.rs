//! The services, and which of their servers a fault meets.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::servers::{KINDS, Kind, Order, Site};
use crate::support::TestEnv;

/// Nobody restarts a service here, and one of a kind does.
const ORDER: Order = Order { keeps: false, in_all: 1, clients: 0 };

/// Which of a service's servers the relays that strike lead to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layout {
    /// To the only one.
    Only,
    /// To one of several that know nothing of each other.
    One,
    /// To the least majority of these.
    Most,
    /// To all of three that are one service; of one that falls silent, the others are still heard.
    Three,
    /// The same with a service that is encrypted and wants a password.
    Secure,
}

/// A service, and where its faults are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Service {
    /// What tests know of it.
    pub(crate) kind: &'static Kind,
    layout: Layout,
}

impl Service {
    /// Every service, in each of its layouts.
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

    /// The one with this [`Service::name`]; also one whose messages cannot be read, so that none of them is chosen for a
    /// fault.
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

    /// Whether one server of several may fall silent, and nothing is lost.
    pub(crate) fn bears_silence(self) -> bool {
        matches!(self.layout, Layout::One | Layout::Three | Layout::Secure)
    }

    /// How much longer than a ttl a claim may be there that nobody renews.
    pub(crate) fn adds_to_ttl(self) -> Duration {
        self.kind.facts.abandoned_bound.max(Duration::from_secs(2))
    }

    /// The first of its servers' ports, for a relay each. The rest is reached without one.
    pub(crate) fn ways(self, ports: &[u16]) -> Vec<Vec<u16>> {
        match self.layout {
            Layout::Three | Layout::Secure => vec![ports.to_vec()],
            Layout::Most => ports[..=ports.len() / 2].iter().map(|port| vec![*port]).collect(),
            Layout::Only | Layout::One => vec![vec![ports[0]]],
        }
    }

    /// What runs; faults of either layout of a Redlock are at the same nodes.
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
            // What the first run makes is there from now on.
            let env = TestEnv::on(site.whole()).with_variables(site.variables());
            let first = env.finish(&mut env.run(["--name", "first", "--", "true"]));
            assert_eq!(first.code(), Some(0), "{}", first.err);
            site
        });
        &**site
    }
}
