//! Claims when another MariaDB takes over, and when a proxy reports that no server is available.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use super::mysql::{env_at, env_on};
use crate::servers::{Server, mariadb};
use crate::support::TestEnv;
use crate::support::process::is_alive;

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
    let holder = env.held(&["-q", "--name", "x", "--ttl", "6s"]);
    mariadb::ask(&old, "SET GLOBAL read_only = 1");
    catch_up(&env, &old, &new);
    mariadb::ask(&new, "SET GLOBAL read_only = 0");
    // Two leases long. A claim that was not renewed on the new server has expired there.
    let second = env.finish(&mut env.run(["-q", "--wait", "12s", "--name", "x", "--", "true"]));
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

/// An error of a server: its number and its SQLSTATE.
type Said = (u16, &'static str);

/// The errors that a relay has yet to send, each with the words of the request that it answers.
type Left = Arc<Mutex<VecDeque<(&'static str, Said)>>>;

/// Starts a relay to the port `to` that answers some requests in the server's stead. The first request with the first
/// words gets the first error, then the first request with the next words gets the next, and so on. Returns its port
/// and the errors that are left.
fn relay(to: u16, errors: &[(&'static str, Said)]) -> (u16, Left) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listens");
    let port = listener.local_addr().expect("bound").port();
    let left: Left = Arc::new(Mutex::new(errors.iter().copied().collect()));
    let shared = Arc::clone(&left);
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, to))).expect("connects");
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let (mut answers, mut asker) =
                (server.try_clone().expect("one more"), client.try_clone().expect("one more"));
            thread::spawn(move || io::copy(&mut answers, &mut asker));
            let left = Arc::clone(&shared);
            thread::spawn(move || pass(client, server, &left));
        }
    });
    (port, left)
}

/// Passes on the packets of `client` until one side has ended.
fn pass(mut client: TcpStream, mut server: TcpStream, left: &Left) {
    let mut head = [0; 4];
    while client.read_exact(&mut head).is_ok() {
        let mut body =
            vec![0; usize::from(head[0]) + (usize::from(head[1]) << 8) + (usize::from(head[2]) << 16)];
        if client.read_exact(&mut body).is_err() {
            return;
        }
        let mut left = left.lock().expect("not poisoned");
        let is_next =
            |(words, _): &(&str, Said)| body.windows(words.len()).any(|part| part == words.as_bytes());
        let said = if left.front().is_some_and(is_next) { left.pop_front() } else { None };
        drop(left);
        let passed = match said {
            Some((_, (number, state))) => {
                let mut error = vec![0xff];
                error.extend(number.to_le_bytes());
                error.extend(format!("#{state}there is no server at the moment").into_bytes());
                let length = u8::try_from(error.len()).expect("short");
                client.write_all(&[length, 0, 0, 1]).and_then(|()| client.write_all(&error))
            }
            None => server.write_all(&head).and_then(|()| server.write_all(&body)),
        };
        if passed.is_err() {
            return;
        }
    }
    let _ = server.shutdown(std::net::Shutdown::Both);
}

/// The errors of a proxy without a server behind it (9001), and of a group whose members change.
#[test]
fn failover_errors_are_retried() {
    let server = mariadb::start();
    let direct = env_on(&server);
    direct.assert_free("x");
    let cases: [[Said; 2]; 3] = [
        [(9001, "HY000"), (3101, "40000")],
        [(3100, "HY000"), (9006, "HY000")],
        [(1105, "HY000"), (1180, "HY000")],
    ];
    for [entering, leaving] in cases {
        let (port, left) =
            relay(server.port(), &[("START TRANSACTION", entering), ("DO RELEASE_LOCK(", leaving)]);
        let env = env_at(mariadb::address_at(port));
        let ended = env.finish(&mut env.run(["--name", "x", "--", "true"]));
        assert_eq!(ended.code(), Some(0), "{entering:?}, {leaving:?}: {}", ended.err);
        assert_eq!(left.lock().expect("not poisoned").len(), 0, "both were said");
        direct.assert_free("x");
    }
}

#[test]
fn doctor_notes_a_read_only_server() {
    let (_writer, reader, env) = pair();
    let said = env.finish(&mut env.verb("doctor", [] as [&str; 0])).silently(0).text();
    let note = said.lines().find(|line| line.contains(&reader.port().to_string()) && line.contains("note: "));
    assert!(note.is_some_and(|note| note.contains("it is read-only (read_only)")), "{said}");
    assert!(!said.contains("they are not one service"), "{said}");
}
