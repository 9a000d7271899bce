//! Several addresses, of which the first does not work. dlock uses the next one, over TLS and with a password.

use std::time::Duration;

use crate::causes::ports::{self, Full};
use crate::causes::scene::{Kind, Scene};
use crate::causes::secure;
use crate::servers::etcd::Etcd;
use crate::servers::{Server, free_port, mariadb, redis};
use crate::support::wait::until_true;
use crate::support::{Finished, Service, TestEnv, within};

/// The time limit for a run whose first server does not answer.
const SOON: Duration = Duration::from_secs(5);

/// Returns an encrypted service with a password, and the port of its first server.
fn guarded(kind: Kind) -> (Scene, u16) {
    let (scene, port) = match kind {
        Kind::File | Kind::Memcached => unreachable!("it has one address"),
        Kind::Etcd => {
            let etcd = Etcd::secure(secure::folder().to_owned());
            for words in [&["user", "add", "root:right"][..], &["auth", "enable"]] {
                etcd.ask(words);
            }
            let port = etcd.server().port();
            (Scene::at(etcd.endpoint(), etcd).login("root", "right"), port)
        }
        Kind::Redis => {
            let master = guarded_redis();
            let more = [
                &tls_of_redis()[..],
                &["port 0", "tls-replication yes", "sentinel auth-pass main right"].map(str::to_owned),
            ];
            let sentinel = redis::start_sentinel_with(master.port(), "tls-port", &more.concat());
            let port = sentinel.port();
            let at = format!("redis+sentinel://127.0.0.1:{port}/main");
            (Scene::at(at, (master, sentinel)).with("DLOCK_PASSWORD", "right"), port)
        }
        Kind::Redlock => {
            let nodes: Vec<Server> = (0..kind.servers()).map(|_| guarded_redis()).collect();
            let at: Vec<String> =
                nodes.iter().map(|node| format!("rediss://127.0.0.1:{}", node.port())).collect();
            let port = nodes[0].port();
            let scene = Scene::at(at.join(","), nodes).with("DLOCK_PASSWORD", "right");
            (scene.with("DLOCK_MAX_TTL", "10s"), port)
        }
        Kind::Zk => {
            let server = secure::tls_zookeeper("server", false);
            let port = server.port();
            (Scene::at(format!("zk://127.0.0.1:{port}/guarded"), server).login("ci", "right"), port)
        }
        Kind::Mysql => {
            let [pem, key] = [("cert", "server.pem"), ("key", "server.key")]
                .map(|(option, name)| format!("--ssl-{option}={}", secure::file(name)));
            let server = mariadb::start_with(&[&pem, &key]);
            let user = "CREATE USER ci@'%' IDENTIFIED BY 'right' REQUIRE SSL; GRANT ALL ON locks.* TO ci@'%'";
            mariadb::ask(&server, user);
            let port = server.port();
            let at = format!("mysql://ci@127.0.0.1:{port}/locks?ssl-mode=verify_identity");
            (Scene::at(at, server).with("DLOCK_PASSWORD", "right"), port)
        }
        Kind::Postgres => {
            let server = secure::tls_postgres(
                &secure::file("server.pem"),
                &secure::file("server.key"),
                &secure::file("ca.pem"),
            );
            server.sql("ALTER ROLE ci PASSWORD 'right'");
            secure::admit(&server, "hostssl all ci 127.0.0.1/32 scram-sha-256");
            let port = server.port();
            let at = format!("postgres://ci@127.0.0.1:{port}/postgres");
            (Scene::at(at, server).with("DLOCK_PASSWORD", "right"), port)
        }
    };
    (scene.believing(secure::folder(), "ca.pem"), port)
}

/// The lines of a Redis configuration that enable TLS.
fn tls_of_redis() -> [String; 4] {
    let files = [("cert", "server.pem"), ("key", "server.key"), ("ca-cert", "ca.pem")];
    let [cert, key, authority] = files.map(|(what, name)| format!("tls-{what}-file {}", secure::file(name)));
    [cert, key, authority, "tls-auth-clients no".to_owned()]
}

fn guarded_redis() -> Server {
    let [pem, key, ca] = ["server.pem", "server.key", "ca.pem"].map(secure::file);
    secure::tls_redis(&pem, &key, &ca, false, &["--requirepass", "right"])
}

/// Puts a dead address before the first server. On Redlock the dead address replaces one of the servers, because a
/// majority is enough.
#[track_caller]
fn pass_over(kind: Kind) {
    if let Some(missing) = kind.missing() {
        panic!("{missing}; tests/run installs it");
    }
    let (scene, port) = guarded(kind);
    let run = |endpoint: String| -> Finished {
        let env = TestEnv::on(Service { backend: kind.backend(), endpoint, prefix: None });
        let mut command = scene.dress(env.run(["--name", "x", "--wait", "15s", "--", "true"]));
        env.finish(&mut command)
    };
    until_true("a service that has begun", || run(scene.endpoint.clone()).code() == Some(0));
    let (silent, full) = (ports::silent(), Full::new());
    let silent_port = silent.local_addr().expect("bound").port();
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
