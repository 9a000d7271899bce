//! Requests that end a claim and whose answers do not arrive. Not on services where removing a claim needs an answer
//! first: memcached compares with a value read before, and the driver of MySQL sends nothing while an answer is due.

use rustix::process::Signal;

use super::unconfirmed::Ways;
use crate::servers::Need;
use crate::servers::proxy::Conduct;
use crate::site;
use crate::support::wait::until_true;

/// A text that the request to enter has, and none before it.
const LABEL: &str = "unheard-label";

/// The server executes the request at once. No answer arrives any more.
#[test]
fn hold_unknown_to_its_run_ends_with_the_run() {
    let modes = [
        (&["-x"][..], None),
        (&["--shared"], Some(Need::Shared)),
        (&["--slots", "1"], None),
        (&["-x", "--name", "other"], Some(Need::AtomicNames)),
    ];
    let has = |need: Option<Need>| need.is_none_or(|need| site::kind().lacks(need).is_none());
    for (mode, _) in modes.into_iter().filter(|(_, need)| has(*need)) {
        let ways = Ways::new();
        let (over, past) = (&ways.over, &ways.past);
        // So that everything exists that a first run creates.
        past.finish(past.run(["--name", "x", "-q"]).args(mode).args(["--", "true"])).silently(0);
        ways.all(Conduct::MuteFrom(LABEL));
        let mut run = over.run(["-q", "--name", "x", "--ttl", "9s", "--label", LABEL]);
        let running = over.start(run.args(mode).args(["--", "true"]));
        until_true("an entry", || past.holders("x") + past.waiters("x") == 1);
        running.signal(Signal::TERM);
        assert_eq!(running.finish().signal(), Some(Signal::TERM.as_raw()), "{mode:?}");
        past.assert_free("x");
    }
}

/// The TTL is far longer than the test, so that only the release can free the lock. etcd's lease takes a request of its
/// own.
#[test]
fn release_without_an_answer_frees_the_lock() {
    let ways = Ways::new();
    let (over, past) = (&ways.over, &ways.past);
    let holder = over.held(&["--name", "x", "--ttl", "2m", "-q"]);
    ways.all(Conduct::Mute);
    holder.let_go();
    until_true("a free lock", || past.holders("x") == 0);
    past.assert_free("x");
    let ended = holder.running.finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    // A Redlock does not wait for the answers.
    if site::kind().has_queue() {
        ended.said_one_line(&["cannot release x"]);
    }
}
