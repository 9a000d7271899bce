//! Users that a service refuses, and users without the rights that dlock needs.

use std::fs;

use super::scene::{Kind, Scene, Staged};
use super::secure::admit;
use crate::servers::etcd::Etcd;
use crate::servers::{Server, mariadb, memcached, postgres, redis, shared_folder, zookeeper};
use crate::support::{Service, TestEnv};

const NO_USERS: Staged = Staged::Never("a directory knows the users of the system, and no password");
const ZK_USERS: Staged =
    Staged::Never("ZooKeeper takes every user with every password; a wrong one has no right");
/// A user that no server of these tests knows. It may exist on this system.
const SOMEBODY: u32 = 54_321;

fn nodes(kind: Kind) -> Vec<Server> {
    (0..kind.servers()).map(|_| redis::start_with(&["--appendonly", "no"])).collect()
}

/// Starts one Redis, or three, and sends `words` to each.
fn told(kind: Kind, words: &[&str]) -> Scene {
    let nodes = nodes(kind);
    for node in &nodes {
        assert_eq!(redis::raw(node.port(), words), "+OK\r\n");
    }
    Scene::at(redis::addresses(&nodes), nodes)
}

/// Starts an etcd with authentication. `ci` has the password `right` and no rights.
fn guarded_etcd() -> Scene {
    let etcd = Etcd::start();
    etcd.guard("right", &[]);
    Scene::at(etcd.endpoint(), etcd)
}

fn guarded_mysql(grant: &str) -> Scene {
    let server = mariadb::start();
    mariadb::ask(
        &server,
        &format!("CREATE USER ci@'%' IDENTIFIED BY 'right'; GRANT {grant} ON locks.* TO ci@'%'"),
    );
    let at = format!("mysql://ci@127.0.0.1:{}/locks?ssl-mode=preferred", server.port());
    Scene::at(at, server)
}

fn guarded_postgres() -> Scene {
    let server = postgres::start();
    server.sql("CREATE ROLE ci LOGIN PASSWORD 'right'");
    server.sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    admit(&server, "host all ci 127.0.0.1/32 scram-sha-256");
    Scene::at(format!("postgres://ci@127.0.0.1:{}/postgres", server.port()), server)
}

fn guarded_memcached() -> Scene {
    let file = shared_folder("memcached-users").join("users");
    fs::write(&file, "ci:right\n").expect("writes");
    let server = memcached::start_with(&["-Y", file.to_str().expect("UTF-8")]);
    Scene::at(memcached::address(&server), server)
}

/// Starts a service that admits `ci` with the password `right`.
fn guarded(kind: Kind) -> Scene {
    match kind {
        Kind::File | Kind::Zk => unreachable!("no users, or all of them"),
        Kind::Etcd => guarded_etcd(),
        Kind::Redis | Kind::Redlock => {
            told(kind, &["ACL", "SETUSER", "ci", "on", ">right", "~*", "&*", "+@all"])
        }
        Kind::Mysql => guarded_mysql("ALL"),
        Kind::Postgres => guarded_postgres(),
        Kind::Memcached => guarded_memcached(),
    }
}

pub(crate) fn unnamed(kind: Kind) -> Staged {
    match kind {
        Kind::File => return NO_USERS,
        Kind::Zk => return ZK_USERS,
        Kind::Redis | Kind::Redlock => told(kind, &["CONFIG", "SET", "requirepass", "right"]),
        // MySQL does not tell a missing password from a wrong one.
        Kind::Mysql => {
            guarded(kind).says(77, &["it does not accept this user or password (", "password: NO"])
        }
        _ => guarded(kind),
    }
    .staged()
}

pub(crate) fn mistaken(kind: Kind) -> Staged {
    match kind {
        Kind::File => NO_USERS,
        Kind::Zk => ZK_USERS,
        _ => guarded(kind).login("ci", "wrong").staged(),
    }
}

pub(crate) fn needless(kind: Kind) -> Staged {
    match kind {
        Kind::File => return NO_USERS,
        Kind::Zk => return ZK_USERS,
        Kind::Etcd => {
            let etcd = Etcd::start();
            Scene::at(etcd.endpoint(), etcd).login("ci", "needless")
        }
        Kind::Redis | Kind::Redlock => {
            let nodes = nodes(kind);
            Scene::at(redis::addresses(&nodes), nodes).with("DLOCK_PASSWORD", "needless")
        }
        Kind::Mysql => {
            return Staged::Never("a user without a password has the empty one: see wrong password");
        }
        Kind::Postgres => return Staged::Never("a server that trusts its clients never looks at a password"),
        Kind::Memcached => {
            let server = memcached::start();
            Scene::at(memcached::address(&server), server).login("ci", "needless")
        }
    }
    .staged()
}

pub(crate) fn powerless(kind: Kind) -> Staged {
    match kind {
        Kind::File => {
            let folder = shared_folder("locks");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
            fs::set_permissions(&folder, mode).expect("sets");
            let words = ["permission denied", "mkdir -m 1777"];
            Scene::at(folder.display().to_string(), ()).by(SOMEBODY).says(73, &words)
        }
        Kind::Etcd | Kind::Postgres => guarded(kind).login("ci", "right"),
        Kind::Redis | Kind::Redlock => {
            let rights = ["ACL", "SETUSER", "ci", "on", ">right", "~*", "&*", "+ping", "+auth"];
            told(kind, &rights).login("ci", "right")
        }
        Kind::Zk => {
            let server = zookeeper::start();
            let at = kind.at(&[server.port()]);
            let env = TestEnv::on(Service { backend: "zk", endpoint: at.clone(), prefix: None });
            let mut owner = env.run(["--name", "x", "--user", "ann", "--", "true"]);
            env.finish(owner.env("DLOCK_PASSWORD", "right")).silently(0);
            Scene::at(at, server)
        }
        Kind::Mysql => guarded_mysql("SELECT").login("ci", "right"),
        Kind::Memcached => return Staged::Never("every user with access may do everything"),
    }
    .staged()
}
