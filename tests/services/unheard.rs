//! Requests that end a claim and whose answers do not arrive. Not on services where removing a claim needs an answer
//! first: memcached compares with a value read before, and the driver of MySQL sends nothing while an answer is due.

use rustix::process::Signal;

use crate::servers::proxy::{Conduct, Proxy};
use crate::site;
use crate::support::wait::until_true;
use crate::support::TestEnv;

/// A text that the request to enter has, and none before it.
const LABEL: &str = "unheard-label";

/// The server executes the request at once. No answer arrives any more.
#[test]
fn hold_unknown_to_its_run_ends_with_the_run() {
    for mode in [&["-x"][..], &["--shared"], &["--slots", "1"], &["-x", "--name", "other"]] {
        let site = site::shared();
        let past = TestEnv::on(site.part());
        // So that everything exists that a first run creates.
        past.finish(past.run(["--name", "x", "-q"]).args(mode).args(["--", "true"])).silently(0);
        let port = site.servers()[0].port();
        let way = Proxy::to(port);
        let over = TestEnv::on(past.service().through(way.port(), port));
        way.set(Conduct::MuteFrom(LABEL));
        let mut run = over.run(["-q", "--name", "x", "--ttl", "30s", "--label", LABEL]);
        let running = over.start(run.args(mode).args(["--", "true"]));
        until_true("an entry", || past.holders("x") + past.waiters("x") == 1);
        running.signal(Signal::TERM);
        assert_eq!(running.finish().signal(), Some(Signal::TERM.as_raw()), "{mode:?}");
        assert_eq!((past.holders("x"), past.waiters("x")), (0, 0), "{mode:?}");
        past.assert_free("x");
    }
}

/// The TTL is far longer than the test, so that only the release can free the lock. etcd's lease takes a request of its
/// own.
#[test]
fn release_without_an_answer_frees_the_lock() {
    let site = site::shared();
    let past = TestEnv::on(site.part());
    past.finish(&mut past.run(["--name", "x", "-q", "--", "true"])).silently(0);
    let port = site.servers()[0].port();
    let way = Proxy::to(port);
    let over = TestEnv::on(past.service().through(way.port(), port));
    let holder = over.held(&["--name", "x", "--ttl", "2m", "-q"]);
    way.set(Conduct::Mute);
    holder.let_go();
    until_true("a free lock", || past.holders("x") == 0);
    past.assert_free("x");
    let ended = holder.running.finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    ended.said_one_line(&["cannot release x"]);
}
