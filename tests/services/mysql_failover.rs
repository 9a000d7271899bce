//! What becomes of claims when another MariaDB takes over.

use std::fs::File;
use std::process::Command;

use super::mysql::env_at;
use crate::servers::{Server, mariadb};
use crate::support::TestEnv;
use crate::support::process::is_alive;

/// Two servers, of which the second takes no writes, and their common address.
fn pair() -> (Server, Server, TestEnv) {
    let (first, second) = (mariadb::start(), mariadb::start());
    mariadb::ask(&second, "SET GLOBAL read_only = 1");
    let (ports, base) = ([first.port(), second.port()], mariadb::DATABASE);
    let env = env_at(format!("mysql://root@127.0.0.1:{},127.0.0.1:{}/{base}", ports[0], ports[1]));
    (first, second, env)
}

/// Brings `to` to where `from` is, as a replica that has caught up.
fn catch_up(env: &TestEnv, from: &Server, to: &Server) {
    let path = env.path("dump");
    let mut dump = Command::new("mariadb-dump");
    dump.args(["--no-defaults", "--user=root", "--single-transaction", "--hex-blob"]);
    dump.arg(format!("--socket={}", mariadb::socket(from).display())).arg(mariadb::DATABASE);
    let dumped = dump.stdout(File::create(&path).expect("a file")).status().expect("mariadb-dump runs");
    assert!(dumped.success());
    let mut client = mariadb::client(to);
    let taken = client.arg(mariadb::DATABASE).stdin(File::open(&path).expect("the dump")).status();
    assert!(taken.expect("mariadb runs").success());
}

/// The sessions of root, whom `read_only` does not bind, stay open on the old server.
#[test]
fn whoever_holds_on_a_server_that_stops_taking_writes_holds_on_the_one_that_takes_over() {
    let (old, new, env) = pair();
    let holder = env.held(&["-q", "--name", "x", "--ttl", "6s"]);
    mariadb::ask(&old, "SET GLOBAL read_only = 1");
    catch_up(&env, &old, &new);
    mariadb::ask(&new, "SET GLOBAL read_only = 0");
    // Two leases long: what was not renewed on the new server has run out there.
    let second = env.finish(&mut env.run(["-q", "--wait", "12s", "--name", "x", "--", "true"]));
    assert!(is_alive(holder.command()), "a failover ended the command");
    assert_eq!(second.code(), Some(75), "while another command runs: {}", second.err);
    assert_eq!(holder.release().code(), Some(0));
    env.assert_free("x");
    // Nor has anybody written to the old one since.
    assert_eq!(mariadb::ask(&old, "SELECT COUNT(*) FROM locks.dlock_claim"), "1\n");
}

#[test]
fn a_lease_that_no_server_takes_on_any_more_runs_out() {
    let (old, _other, env) = pair();
    let holder = env.held(&["--name", "x", "--ttl", "3s"]);
    mariadb::ask(&old, "SET GLOBAL read_only = 1");
    let lease = || mariadb::ask(&old, "SELECT lease_until FROM locks.dlock_claim");
    let before = lease();
    holder.running.finish().lost_its_lease("x");
    assert_eq!(lease(), before, "nobody writes where no writes are taken");
}
