//! Claims when another MariaDB takes over, and when a proxy reports that no server is available.

use std::fs::File;
use std::process::Command;

use super::mysql::env_at;
use crate::servers::{Server, mariadb};
use crate::support::TestEnv;
use crate::support::process::is_alive;
use crate::support::wait::until_true;

/// Starts two servers, of which the second takes no writes. Returns them with an environment that uses both.
fn pair() -> (Server, Server, TestEnv) {
    let (first, second) = (mariadb::start(), mariadb::start());
    mariadb::ask(&second, "SET GLOBAL read_only = 1");
    let (ports, base) = ([first.port(), second.port()], mariadb::DATABASE);
    let env = env_at(format!("mysql://root@127.0.0.1:{},127.0.0.1:{}/{base}", ports[0], ports[1]));
    (first, second, env)
}

/// Copies the data of `from` to `to`, as to a replica that has caught up.
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

/// The sessions of root stay open on the old server, since `read_only` does not bind root.
#[test]
fn hold_survives_a_failover_to_the_writable_server() {
    let (old, new, env) = pair();
    let holder = env.held(&["-q", "--name", "x", "--ttl", "30s"]);
    mariadb::ask(&old, "SET GLOBAL read_only = 1");
    catch_up(&env, &old, &new);
    let lease = || mariadb::ask(&new, "SELECT lease_until FROM locks.dlock_claim");
    let before = lease();
    mariadb::ask(&new, "SET GLOBAL read_only = 0");
    until_true("a renewal on the new server", || lease() > before);
    let second = env.finish(&mut env.run(["-q", "-n", "--name", "x", "--", "true"]));
    assert!(is_alive(holder.command()), "a failover ended the command");
    assert_eq!(second.code(), Some(75), "while another command runs: {}", second.err);
    assert_eq!(holder.release().code(), Some(0));
    env.assert_free("x");
    // No session has written to the old server since.
    assert_eq!(mariadb::ask(&old, "SELECT COUNT(*) FROM locks.dlock_claim"), "1\n");
}

#[test]
fn lease_without_a_writable_server_expires() {
    let (old, _other, env) = pair();
    let holder = env.held(&["--name", "x", "--ttl", "3s"]);
    mariadb::ask(&old, "SET GLOBAL read_only = 1");
    let lease = || mariadb::ask(&old, "SELECT lease_until FROM locks.dlock_claim");
    let before = lease();
    holder.running.finish().lost_its_lease("x");
    assert_eq!(lease(), before, "a read-only server gets no writes");
}

#[test]
fn doctor_notes_a_read_only_server() {
    let (_writer, reader, env) = pair();
    let said = env.finish(&mut env.verb("doctor", [] as [&str; 0])).silently(0).text();
    let note = said.lines().find(|line| line.contains(&reader.port().to_string()) && line.contains("note: "));
    assert!(note.is_some_and(|note| note.contains("it is read-only (read_only)")), "{said}");
    assert!(!said.contains("they are not one service"), "{said}");
}
