//! A request that dlock can neither confirm nor withdraw. dlock reports that it may hold the lock.

use rustix::process::Signal;

use crate::servers::proxy::{Conduct, Proxy};
use crate::site;
use crate::support::wait::until_true;
use crate::support::{Service, TestEnv};

/// A text that the request to enter has, and none before it.
const LABEL: &str = "unconfirmed-label";
/// The message about it.
const SAID: [&str; 2] = ["cannot withdraw the request for x", "if it was granted, it ends by itself within"];

/// A part of the service over relays to all of its servers.
pub(super) struct Ways {
    pub(super) over: TestEnv,
    pub(super) past: TestEnv,
    pub(super) each: Vec<Proxy>,
}

impl Ways {
    pub(super) fn new() -> Self {
        let site = site::shared();
        let past = TestEnv::on(site.part());
        // So that everything exists that a first run creates.
        past.finish(&mut past.run(["--name", "x", "-q", "--", "true"])).silently(0);
        let mut service: Service = past.service().clone();
        let each: Vec<Proxy> = site.servers().iter().map(|server| Proxy::to(server.port())).collect();
        for (server, way) in site.servers().iter().zip(&each) {
            service = service.through(way.port(), server.port());
        }
        Self { over: TestEnv::on(service), past, each }
    }

    pub(super) fn all(&self, conduct: Conduct) {
        self.each.iter().for_each(|way| way.set(conduct));
    }

    /// Starts a run whose request to enter is executed, wholly or in part. It receives no answer, and its later
    /// requests do not arrive.
    fn cut_off(&self, options: &[&str]) -> crate::support::Running {
        self.all(Conduct::MuteFrom(LABEL));
        let mut run = self.over.run(["--name", "x", "--ttl", "30s", "--label", LABEL]);
        let running = self.over.start(run.args(options).args(["--", "true"]));
        until_true("a request", || self.each.iter().all(|way| way.conduct() == Conduct::Mute));
        self.all(Conduct::Hole);
        running
    }
}

#[test]
fn interrupted_run_warns_of_an_unconfirmed_withdrawal() {
    let ways = Ways::new();
    let running = ways.cut_off(&["-q"]);
    running.signal(Signal::TERM);
    let ended = running.finish();
    assert_eq!(ended.signal(), Some(Signal::TERM.as_raw()), "{}", ended.err);
    ended.said_one_line(&SAID);
    ways.all(Conduct::Pass);
}

/// dlock reports that the service does not answer, and no more.
#[test]
fn giving_up_on_a_silent_service_prints_one_line() {
    let ways = Ways::new();
    let running = ways.cut_off(&["-q", "--wait", "2s"]);
    running.finish().failed(69, &["gave up after 2"]);
    ways.all(Conduct::Pass);
}
