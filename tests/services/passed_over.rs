//! Several addresses, of which the first does not work. dlock uses the next one, over TLS.

use std::time::Duration;

use crate::causes::ports::{self, Full};
use crate::causes::scene::{Kind, Scene};
use crate::causes::secure;
use crate::servers::{free_port, redis};
use crate::support::wait::until_true;
use crate::support::{Finished, Service, TestEnv, within};

/// The time limit for a run whose first server does not answer.
const SOON: Duration = Duration::from_secs(5);

/// Returns a service and the port of its first server. All but the sentinels of a Redis use TLS.
fn service(kind: Kind) -> (Scene, u16) {
    let scene = if kind == Kind::Redis {
        let master = redis::start();
        let sentinel = redis::start_sentinel(master.port());
        Scene::at(format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port()), (master, sentinel))
    } else {
        secure::serve(kind, "server", false).believing(secure::folder(), "ca.pem")
    };
    let (_, rest) = scene.endpoint.split_once("127.0.0.1:").expect("an address");
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    (scene.with("DLOCK_MAX_TTL", "10s"), digits.parse().expect("a port"))
}

/// Puts a dead address before the first server. On Redlock the dead address replaces one of the servers, because a
/// majority is enough.
#[track_caller]
fn pass_over(kind: Kind) {
    if let Some(missing) = kind.missing() {
        panic!("{missing}; tests/run installs it");
    }
    let (scene, port) = service(kind);
    let run = |endpoint: String| -> Finished {
        let env = TestEnv::on(Service { backend: kind.backend(), endpoint, prefix: None });
        let mut command = scene.dress(env.run(["--name", "x", "--wait", "15s", "--", "true"]));
        env.finish(&mut command)
    };
    until_true("a service that has begun", || run(scene.endpoint.clone()).code() == Some(0));
    let ((_silent, silent_port), full) = (ports::silent(), Full::new());
    // ZooKeeper's client picks the first server at random.
    let times = if kind == Kind::Zk { 4 } else { 1 };
    for (what, dead) in
        [("refuses", free_port()), ("says nothing", silent_port), ("is not there", full.port())]
    {
        let live = format!("127.0.0.1:{port}");
        let rest = if kind == Kind::Redlock { String::new() } else { format!(",{live}") };
        let endpoint = scene.endpoint.replacen(&live, &format!("127.0.0.1:{dead}{rest}"), 1);
        for _ in 0..times {
            let ended = run(endpoint.clone());
            assert_eq!(ended.code(), Some(0), "the first {what}: {}", ended.err);
            within(ended.took, SOON);
        }
    }
}

#[test]
fn on_etcd() {
    pass_over(Kind::Etcd);
}

#[test]
fn by_sentinels_of_redis() {
    pass_over(Kind::Redis);
}

#[test]
fn on_redlock() {
    pass_over(Kind::Redlock);
}

#[test]
fn on_zk() {
    pass_over(Kind::Zk);
}

#[test]
fn on_mysql() {
    pass_over(Kind::Mysql);
}

#[test]
fn on_postgres() {
    pass_over(Kind::Postgres);
}
