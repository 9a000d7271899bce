//! ZooKeeper only: logins, several servers, servers of another protocol, names, and `doctor`.

use std::process::Command;

use crate::servers::zookeeper::{self, Setup};
use crate::servers::{Server, free_port};
use crate::support::{Finished, TestEnv};

/// Returns `dlock VERB --endpoint ENDPOINT OPTIONS`.
fn dlock(env: &TestEnv, verb: &str, endpoint: &str, options: &[&str]) -> Command {
    let mut command = env.dlock([verb, "--backend", "zk", "--endpoint", endpoint]);
    command.args(options);
    command
}

fn run(env: &TestEnv, endpoint: &str, options: &[&str]) -> Finished {
    let mut command = dlock(env, "run", endpoint, &["--name", "x"]);
    env.finish(command.args(options).args(["--", "true"]))
}

fn local(port: u16) -> String {
    format!("zk://127.0.0.1:{port}")
}

/// Returns a chroot of its own for this test at the shared server.
fn own_corner(name: &str) -> String {
    format!("{}/{name}", zookeeper::endpoint())
}

#[test]
fn lock_belongs_to_its_creating_user() {
    let env = TestEnv::new();
    let at = own_corner("users");
    let as_user = |user: &str, password: &str| {
        let mut command = dlock(&env, "run", &at, &["--name", "x", "--user", user]);
        env.finish(command.env("DLOCK_PASSWORD", password).args(["--", "true"]))
    };
    as_user("ann", "right-secret").silently(0);
    as_user("ann", "right-secret").silently(0);
    for refused in [as_user("ann", "wrong-secret"), as_user("bob", "right-secret")] {
        refused.failed(77, &["does not let this user"]);
    }
    run(&env, &at, &[]).failed(77, &["does not let this user", "--user"]);
    // Another user cannot create a chroot below hers either.
    let below = format!("{at}/below");
    run(&env, &below, &[]).failed(77, &["does not let this user", "--user"]);
}

#[test]
fn isolated_server_of_an_ensemble_is_named_as_such() {
    let (clients, env) = (free_port(), TestEnv::new());
    let ports: Vec<u16> = (0..6).map(|_| free_port()).collect();
    let members = (0..3).map(|n| format!("server.{}=127.0.0.1:{}:{}", n + 1, ports[n], ports[3 + n]));
    let lines = ["initLimit=10".to_owned(), "syncLimit=4".to_owned()].into_iter().chain(members).collect();
    let _alone = zookeeper::start_on(clients, &Setup { id: Some(1), lines, ..Setup::default() });
    let ended = run(&env, &local(clients), &["--wait", "2s"]);
    assert_eq!(ended.code(), Some(69), "{}", ended.err);
    assert!(ended.err.contains("serves no clients") && !ended.err.contains("TLS"), "{}", ended.err);
}

#[test]
fn name_without_a_valid_path_is_refused() {
    let env = TestEnv::new();
    let mut command =
        dlock(&env, "run", &own_corner("raw"), &["--prefix", "", "--name", "a//b", "--", "true"]);
    env.finish(&mut command).failed(64, &["empty part"]);
    let mut command = dlock(&env, "run", &own_corner("raw"), &["--name", "a//🦀", "--", "true"]);
    env.finish(&mut command).silently(0);
}

#[test]
fn doctor_names_the_server_and_its_limits() {
    let env = TestEnv::new();
    let finished = env.finish(&mut dlock(&env, "doctor", &own_corner("doctor"), &[]));
    assert_eq!(finished.code(), Some(0));
    let text = finished.text();
    for word in ["ZooKeeper 3.", "a single server", "sessions are limited to 1s to 7200s", "without --user"] {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
}

#[test]
fn rolling_restart_of_an_ensemble_changes_nothing() {
    let servers = zookeeper::start_ensemble();
    let ports: Vec<u16> = servers.iter().map(Server::port).collect();
    let env = TestEnv::on(zookeeper::KIND.at(&ports));
    let text = env.finish(&mut env.verb("doctor", [] as [&str; 0])).text();
    assert!(!text.contains("a single server") && text.contains("four ticks"), "{text}");
    let lock = ["--quiet", "--ttl", "20s", "--name", "x"];
    let holder = env.held(&lock);
    let waiter = env.start(env.run(lock).args(["--", "true"]));
    env.await_waiters("x", 1);
    // One of them is the leader.
    for server in &servers {
        server.restart();
        for server in &servers {
            zookeeper::await_service(server.port());
        }
        env.await_waiters("x", 1);
    }
    holder.release().silently(0);
    waiter.finish().silently(0);
}
