//! The session timeout that a server grants to a session that comes back.

use std::time::{Duration, Instant};

use crate::servers::proxy::{Conduct, Proxy};
use crate::servers::zookeeper::{self, Setup};
use crate::servers::{Server, free_port};
use crate::support::process::is_alive;
use crate::support::scripts::{Overlap, Tree};
use crate::support::wait::{let_pass, until_true};
use crate::support::{TestEnv, quiet};

/// Longer than a server takes to restart on a busy machine.
const LONG: Duration = Duration::from_secs(40);
const SHORT: Duration = Duration::from_secs(6);

/// Restarts a server, which then grants at most `most`.
fn restart_with(server: &Server, most: Duration) {
    server.down();
    let path = server.folder().join("zoo.cfg");
    let text = std::fs::read_to_string(&path).expect("reads");
    let (before, after) = text.split_once("maxSessionTimeout=").expect("a limit");
    let rest = after.split_once('\n').expect("a line").1;
    std::fs::write(&path, format!("{before}maxSessionTimeout={}\n{rest}", most.as_millis())).expect("writes");
    server.up();
    zookeeper::await_service(server.port());
}

fn transactions(port: u16) -> u64 {
    let said = zookeeper::said(port, *b"srvr").unwrap_or_default();
    let last = said.lines().find_map(|line| line.strip_prefix("Zxid: 0x"));
    last.and_then(|zxid| u64::from_str_radix(zxid, 16).ok()).unwrap_or_default()
}

/// The server restarts and grants less. The holder is stopped before the server releases the lock.
#[test]
fn shorter_grant_after_a_restart_counts_for_later_renewals() {
    let _alone = quiet::measuring();
    let server = zookeeper::start_on(free_port(), &Setup::default());
    let relay = Proxy::to(server.port());
    let env = TestEnv::new();
    let run = |port: u16| {
        let at = format!("zk://127.0.0.1:{port}");
        env.dlock(["run", "-q", "--endpoint", &at, "--name", "x", "--grace", "0"])
    };
    let (tree, words) = Tree::words(&env, "tree");
    let ttl = format!("{}s", LONG.as_secs());
    let holder = env.start(run(relay.port()).args(["--ttl", &ttl, "--"]).args(words));
    let members = tree.await_grown(&env);
    let (overlap, words) = Overlap::words(&env, &members);
    restart_with(&server, SHORT);
    let before = transactions(server.port());
    until_true("a renewal", || transactions(server.port()) > before);
    // A renewal by the old length is due meanwhile. It would come too late for the new one.
    let_pass(LONG / 4 + SHORT / 4);
    assert!(members.iter().all(|member| is_alive(member.pid)), "a grant that is renewed ends nothing");
    let next = env.start(run(server.port()).args(["--ttl", &ttl, "--"]).args(words));
    relay.set(Conduct::Hole);
    let cut = Instant::now();
    next.finish().silently(0);
    assert!(cut.elapsed() < LONG, "the server counts by the shorter one");
    overlap.assert_none(&env);
    let ended = holder.finish();
    assert_eq!(ended.code(), Some(76), "{}", ended.err);
}
