//! Requests that are held up on a connection that was cut, and done when whoever sent them has long gone on.

use std::time::Duration;

use rustix::process::Signal;

use crate::servers::proxy::{Conduct, Proxy};
use crate::servers::{Server, redis};
use crate::site;
use crate::support::process::is_alive;
use crate::support::wait::{let_pass, until_true};
use crate::support::{Service, TestEnv, within};

/// Short, so that whoever is not answered soon asks again, and longer than what a test takes afterwards.
const OPTIONS: [&str; 3] = ["-q", "--ttl", "9s"];
const LEASE: Duration = Duration::from_secs(9);

/// A way to each server, and two environments: over the ways, and past them. Without a prefix, which nobody else is, and in the first
/// database, which need not be chosen: what is said first on a connection is the claim's request.
struct Site<'a> {
    servers: &'a [Server],
    ways: Vec<Proxy>,
    over: TestEnv,
    past: TestEnv,
    name: &'static str,
}

impl Site<'static> {
    fn new(name: &'static str) -> Self {
        Self::on(site::shared().servers(), name)
    }
}

impl<'a> Site<'a> {
    fn on(servers: &'a [Server], name: &'static str) -> Self {
        let ways: Vec<Proxy> = servers.iter().map(|server| Proxy::to(server.port())).collect();
        let over = ways.iter().map(|way| format!("redis://127.0.0.1:{}", way.port()));
        let env = |endpoint| TestEnv::on(Service { backend: "redis", endpoint, prefix: None });
        let over = env(over.collect::<Vec<_>>().join(","));
        Self { servers, over, past: env(redis::addresses(servers)), ways, name }
    }

    fn all(&self, conduct: Conduct) {
        self.ways.iter().for_each(|way| way.set(conduct));
    }

    /// Has whoever comes now ask over connections that are held up from then on.
    fn ask_in_vain(&self, words: &[&str]) -> crate::support::Running {
        self.all(Conduct::Hole);
        let running = self.over.start(self.over.run(OPTIONS).args(["--name", self.name]).args(words));
        until_true("a connection", || self.ways.iter().all(|way| way.made() > 0));
        // What is said first is said at once; the attempt lasts for some seconds.
        let_pass(Duration::from_millis(500));
        self.ways.iter().for_each(Proxy::leave_behind);
        running
    }

    /// What was held up is done now.
    fn let_in(&self) {
        self.ways.iter().for_each(Proxy::let_in);
        for server in self.servers {
            assert_eq!(redis::raw(server.port(), &["PING"]), "+PONG\r\n");
        }
    }

    /// The servers know no script any more but by its text. Not those that other tests use: these may rely on one.
    fn forget_scripts(&self) {
        for server in self.servers {
            assert_eq!(redis::raw(server.port(), &["SCRIPT", "FLUSH"]), "+OK\r\n");
        }
    }

    /// Of the scripts the servers know those of an ordinary run alone, by which nobody is evicted.
    fn know_entering(&self, mode: &[&str]) {
        self.forget_scripts();
        let mut run = self.past.run(["--name", self.name, "-q"]);
        self.past.finish(run.args(mode).args(["--", "true"])).silently(0);
    }

    /// What is left of the life of the lock's key at each server, in milliseconds.
    fn lives(&self) -> Vec<i64> {
        let life = |server: &Server| {
            let said = redis::raw(server.port(), &["PTTL", &format!("dlock:{}", self.name)]);
            said.trim_start_matches(':').trim_end().parse().expect("a number")
        };
        self.servers.iter().map(life).collect()
    }
}

/// The claim's first request is executed after the run has ended, or after a later one was refused: the entry has no owner.
/// It holds beside nobody, and a newcomer waits for it no longer than its lease.
#[test]
fn a_late_entry_delays_others_by_one_lease() {
    let modes = [("x", &["-x"][..]), ("shared", &["--shared"]), ("slots", &["--slots", "1"])];
    let ended = modes.map(|(name, mode)| {
        let site = Site::new(name);
        let ended = site.ask_in_vain(&[mode, &["--", "true"]].concat()).finish();
        assert_eq!(ended.code(), Some(0), "{}", ended.err);
        (site, mode)
    });
    let refused = Site::new("refused");
    let holder = refused.past.held(&["--name", "refused", "-q"]);
    let told = refused.ask_in_vain(&["--slots", "2", "--", "true"]).finish();
    assert_eq!(told.code(), Some(64), "{}", told.err);
    assert!(told.err.contains("does not mix"), "{}", told.err);
    assert_eq!(holder.release().code(), Some(0));
    let sites = ended.iter().map(|(site, mode)| (site, *mode)).chain([(&refused, &["--slots", "2"][..])]);
    let newcomers: Vec<_> = sites
        .map(|(site, mode)| {
            site.let_in();
            let words = [&["-q", "--name", site.name, "--wait", "30s"], mode, &["--", "true"]].concat();
            (site, site.past.start(&mut site.past.run(words)))
        })
        .collect();
    for (site, newcomer) in newcomers {
        let ended = newcomer.finish();
        assert_eq!(ended.code(), Some(0), "{}: {}", site.name, ended.err);
        within(ended.took, LEASE + Duration::from_secs(1));
        site.past.assert_free(site.name);
    }
}

/// The request is done at once, and the run is told to end before it hears that it holds.
#[test]
fn a_hold_that_its_run_has_not_heard_of_ends_with_the_run() {
    let modes = [
        ("unheard", &["-x"][..]),
        ("unheard-shared", &["--shared"]),
        ("unheard-slots", &["--slots", "1"]),
        ("unheard-two", &["-x", "--name", "unheard-too"]),
    ];
    let own = site::start();
    for (name, mode) in modes {
        let site = Site::on(own.servers(), name);
        site.know_entering(mode);
        site.all(Conduct::Mute);
        let words = [mode, &["--", "true"]].concat();
        let running = site.over.start(site.over.run(OPTIONS).args(["--name", name]).args(words));
        until_true("a lease", || site.lives().iter().all(|life| *life > 0));
        running.signal(Signal::TERM);
        assert_eq!(running.finish().signal(), Some(Signal::TERM.as_raw()), "{mode:?}");
        site.past.assert_free(name);
    }
}

/// Asked again, the service says that the claim holds already: since nearly a ttl.
#[test]
fn a_hold_that_is_found_has_a_whole_ttl() {
    let site = Site::new("found");
    site.all(Conduct::Mute);
    let mut holder = site.over.hold(&["-q", "--ttl", "3s", "--grace", "0", "--name", "found"]);
    // It is asked again when the first answer is two seconds late.
    until_true("a lease", || site.lives().iter().all(|life| *life > 0));
    site.ways.iter().for_each(Proxy::leave_behind);
    holder.await_start();
    let_pass(Duration::from_secs(4));
    assert!(is_alive(holder.command()), "{}", holder.running.err_so_far());
    assert_eq!(holder.release().code(), Some(0));
}
