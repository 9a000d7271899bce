//! One memcached: logins, messages, and holds that it forgets.

use std::path::Path;
use std::time::Duration;

use crate::causes::secure;
use crate::servers::{Server, memcached};
use crate::site::{looked, run_with};
use crate::support::wait::until_true;
use crate::support::{Service, TestEnv};

fn env_at(endpoint: String) -> TestEnv {
    TestEnv::on(Service { backend: "memcached", endpoint, prefix: None })
}

fn env_on(server: &Server) -> TestEnv {
    env_at(memcached::address(server))
}

#[test]
fn forgotten_hold_ends_its_command() {
    let server = memcached::start();
    let env = env_on(&server);
    let holder = env.held(&["--name", "x"]);
    assert_eq!(memcached::raw(server.port(), b"flush_all\r\n"), "OK\r\n");
    holder.running.finish().failed(76, &["lost x", "memcached no longer has the item"]);
    let holder = env.held(&["--name", "x"]);
    server.restart();
    holder.running.finish().failed(76, &["lost x"]);
}

#[test]
fn try_loop_does_not_keep_a_dead_lease_alive() {
    let server = memcached::start();
    let env = env_on(&server);
    let words = ["--detach", "--name", "x", "--ttl", "5s"];
    env.finish(&mut env.verb("acquire", words)).silently(0);
    run_with(&env, &[]).failed(75, &["x"]);
    until_true("the end of the lease", || run_with(&env, &[]).code() == Some(0));
}

#[test]
fn several_names_are_refused() {
    let server = memcached::start();
    let env = env_on(&server);
    let refused = env.finish(&mut env.run(["--name", "x", "--name", "y", "--", "touch", "started"]));
    assert_eq!(refused.code(), Some(64), "{}", refused.err);
    assert!(!env.exists("started"));
    assert_eq!((memcached::value(server.port(), "x"), memcached::value(server.port(), "y")), (None, None));
}

#[test]
fn several_servers_are_refused() {
    let env = env_at("memcached://127.0.0.1:1,memcached://127.0.0.1:2".to_owned());
    run_with(&env, &[]).failed(64, &["name one endpoint"]);
}

#[test]
fn needless_login_stores_no_item() {
    let open = memcached::start();
    let refused = run_with(
        &env_on(&open),
        &[("DLOCK_USER", Path::new("ci")), ("DLOCK_PASSWORD", Path::new("needless"))],
    );
    refused.failed(77, &["wants no password"]);
    let kept = memcached::raw(open.port(), b"stats items\r\n");
    assert!(!kept.contains("number"), "no item with the password is made: {kept}");
}

#[test]
fn an_authority_without_encryption_is_refused() {
    let plain = env_at("memcached://127.0.0.1:1".to_owned());
    let authority = secure::file("ca.pem");
    run_with(&plain, &[("DLOCK_CACERT", Path::new(&authority))]).failed(64, &["memcacheds://"]);
}

#[test]
fn doctor_warns_of_missing_guarantees_of_a_cache() {
    let server = memcached::start();
    let text = looked(&env_on(&server));
    for part in ["memcached 1.", "keeps nothing over a restart", "poll every 50 ms to 1 s"] {
        assert!(text.contains(part), "{part} is in {text}");
    }
}

/// memcached numbers its writes from one when it starts.
#[test]
fn claim_from_before_a_restart_affects_no_later_claim() {
    use dlock::backend::memcached::{MemcachedConfig, with_clock};
    use dlock::backend::{Backend as _, Options};
    use dlock::clock;
    use dlock::lock::{ClaimId, ClaimState, Holder, Mode, Request};
    let server = memcached::start();
    let options = Options { endpoints: vec![memcached::address(&server)], ..Options::default() };
    let open = || with_clock(MemcachedConfig::parse(&options).expect("valid"), clock::Clock::Boot);
    let request = |id| Request {
        names: vec!["x".parse().expect("valid")],
        id: ClaimId::from_bytes([id; 16]),
        mode: Mode::Exclusive,
        ttl: Duration::from_secs(600),
        holder: Holder::default(),
        ancestors: Vec::new(),
        supersede: false,
    };
    let version = || memcached::value(server.port(), "x").expect("an item").1;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let soon = || clock::now() + Duration::from_secs(30);
        for renews in [false, true] {
            let (older, newer) = (open(), open());
            let before = older.enter(&request(1), soon()).await.expect("enters");
            let old = version();
            server.restart();
            let after = newer.enter(&request(2), soon()).await.expect("enters");
            assert_eq!(version(), old, "the server counts from the beginning");
            if renews {
                before.renew(soon()).await.expect("is answered");
            }
            before.leave(false, soon()).await.expect("leaves");
            let state = after.changed(None).await.expect("answers");
            assert!(matches!(state, ClaimState::Held(_)), "{state:?}");
            let queue = newer.inspect(&request(2).names[0], soon()).await.expect("inspects");
            assert_eq!(queue.holders.len(), 1, "{queue:?}");
            after.leave(false, soon()).await.expect("leaves");
            server.restart();
        }
    });
}
