//! Requests that are held up on a cut connection and executed long after their sender has continued.

use std::time::Duration;

use rustix::process::Signal;

use crate::servers::proxy::{Conduct, Proxy};
use crate::servers::{Server, redis};
use crate::site;
use crate::support::process::is_alive;
use crate::support::wait::{let_pass, until_true};
use crate::support::{Service, TestEnv, within};

/// Short, so that a client without an answer soon asks again. Longer than the rest of a test.
const OPTIONS: [&str; 3] = ["-q", "--ttl", "9s"];
const LEASE: Duration = Duration::from_secs(9);

/// A relay to each server, and two environments: one over the relays, one past them. There is no prefix, which no other
/// test does. The database is the first, so the first request on a connection is that of the claim and not a SELECT.
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

    /// Starts a run that sends its request over connections that are held up from then on.
    fn ask_in_vain(&self, words: &[&str]) -> crate::support::Running {
        self.all(Conduct::Hole);
        let running = self.over.start(self.over.run(OPTIONS).args(["--name", self.name]).args(words));
        until_true("a connection", || self.ways.iter().all(|way| way.made() > 0));
        // The first request is sent at once; the attempt lasts for some seconds.
        let_pass(Duration::from_millis(500));
        self.ways.iter().for_each(Proxy::leave_behind);
        running
    }

    /// Lets the servers execute the requests that were held up.
    fn let_in(&self) {
        self.ways.iter().for_each(Proxy::let_in);
        for server in self.servers {
            assert_eq!(redis::raw(server.port(), &["PING"]), "+PONG\r\n");
        }
    }

    /// Makes the servers forget all scripts, so that they need the text again. Only on servers of this test: other
    /// tests may rely on a script.
    fn forget_scripts(&self) {
        for server in self.servers {
            assert_eq!(redis::raw(server.port(), &["SCRIPT", "FLUSH"]), "+OK\r\n");
        }
    }

    /// Makes the servers know only the scripts of an ordinary run, which evicts no claim.
    fn know_entering(&self, mode: &[&str]) {
        self.forget_scripts();
        let mut run = self.past.run(["--name", self.name, "-q"]);
        self.past.finish(run.args(mode).args(["--", "true"])).silently(0);
    }

    /// Returns the remaining life of the lock's key at each server, in milliseconds.
    fn lives(&self) -> Vec<i64> {
        let life = |server: &Server| {
            let said = redis::raw(server.port(), &["PTTL", &format!("dlock:{}", self.name)]);
            said.trim_start_matches(':').trim_end().parse().expect("a number")
        };
        self.servers.iter().map(life).collect()
    }
}

/// The claim's first request is executed after the run has ended, or after a later request was refused: the entry has
/// no owner. It never holds beside another claim. A newcomer waits for it no longer than its lease.
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

/// The request is executed at once. The run receives SIGTERM before it receives the grant.
#[test]
fn hold_unknown_to_its_run_ends_with_the_run() {
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

/// The answer to the second request is that the claim already holds, and has for nearly a TTL.
#[test]
fn hold_found_on_retry_has_a_whole_ttl() {
    let site = Site::new("found");
    site.all(Conduct::Mute);
    let mut holder = site.over.hold(&["-q", "--ttl", "3s", "--grace", "0", "--name", "found"]);
    // dlock asks again when the first answer is two seconds late.
    until_true("a lease", || site.lives().iter().all(|life| *life > 0));
    site.ways.iter().for_each(Proxy::leave_behind);
    holder.await_start();
    let_pass(Duration::from_secs(4));
    assert!(is_alive(holder.command()), "{}", holder.running.err_so_far());
    assert_eq!(holder.release().code(), Some(0));
}
