//! ZooKeeper only: logins, several servers, names, and `doctor`.

use crate::servers::{Server, zookeeper};
use crate::site::{looked, run_with};
use crate::support::{Service, TestEnv};

pub(super) fn env_at(endpoint: String) -> TestEnv {
    TestEnv::on(Service { backend: "zk", endpoint, prefix: None })
}

/// Returns an environment with a chroot of its own at the shared server.
pub(super) fn own_corner(name: &str) -> TestEnv {
    env_at(format!("{}/{name}", zookeeper::endpoint()))
}

#[test]
fn lock_belongs_to_its_creating_user() {
    let env = own_corner("users");
    let as_user = |user: &str, password: &str| {
        let mut command = env.run(["--name", "x", "--user", user, "--", "true"]);
        env.finish(command.env("DLOCK_PASSWORD", password))
    };
    as_user("ann", "right-secret").silently(0);
    as_user("ann", "right-secret").silently(0);
    for refused in [as_user("ann", "wrong-secret"), as_user("bob", "right-secret")] {
        refused.failed(77, &["does not let this user"]);
    }
    // Another user cannot create a chroot below hers either.
    for env in [&env, &own_corner("users/below")] {
        run_with(env, &[]).failed(77, &["does not let this user", "--user"]);
    }
}

/// The record of the last success belongs to the user of the first one.
#[test]
fn success_is_no_error_where_its_record_is_another_users() {
    let env = own_corner("success");
    // From then on every user may use the directory of the lock.
    env.finish(&mut env.run(["--name", "x", "--", "false"])).silently(1);
    for (user, mode) in [("ann", "-x"), ("bob", "-x"), ("bob", "--shared")] {
        let mut command = env.run(["--user", user, "--name", "x", mode, "--", "true"]);
        env.finish(command.env("DLOCK_PASSWORD", "secret")).silently(0);
    }
}

#[test]
fn name_without_a_valid_path_is_refused() {
    let env = own_corner("raw");
    let mut command = env.run(["--prefix", "", "--name", "a//b", "--", "true"]);
    env.finish(&mut command).failed(64, &["empty node"]);
    env.finish(&mut env.run(["--name", "a//🦀", "--", "true"])).silently(0);
}

/// The nodes of the entries in a queue end so.
#[test]
fn list_shows_a_name_ending_in_ten_digits() {
    let env = own_corner("digits");
    let prefixed = |prefix: &[&str], name: &str| {
        let holder = env.held(&[prefix, &["--name", name]].concat());
        let listed = env.finish(env.verb("list", ["--json"]).args(prefix)).silently(0).text();
        assert_eq!(listed.matches(&format!("\"lock\":\"{name}\"")).count(), 1, "{listed}");
        holder.release().silently(0);
    };
    for name in ["backup-2026112921", "2026112921", "x-0000000001"] {
        prefixed(&[], name);
        prefixed(&["--prefix", "locks/job-"], name);
    }
}

#[test]
fn doctor_names_the_server_and_its_risks() {
    let env = own_corner("doctor");
    let text = looked(&env);
    for word in ["ZooKeeper 3.", "a single server", "without --user"] {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
}

#[test]
fn password_without_encryption_on_a_network_is_named() {
    // An address of this host that does not look like a loopback address.
    let env = env_at(own_corner("open").service().endpoint.replace("127.0.0.1", "0.0.0.0"));
    let mut command = env.verb("doctor", ["--user", "ann"]);
    let text = env.finish(command.env("DLOCK_PASSWORD", "secret")).silently(0).text();
    assert!(text.contains("the password may be sent without encryption, to 0.0.0.0"), "{text}");
}

#[test]
fn rolling_restart_of_an_ensemble_changes_nothing() {
    let servers = zookeeper::start_ensemble(10, |_, _, port| port);
    let ports: Vec<u16> = servers.iter().map(Server::port).collect();
    let env = TestEnv::on(zookeeper::KIND.at(&ports));
    let text = looked(&env);
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
