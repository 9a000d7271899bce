//! etcd: servers of several that are out of order, users and tokens.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with};

use crate::etcd::{available, bed};
use crate::servers::etcd::Etcd;
use crate::servers::free_port;
use crate::servers::proxy::{Conduct, Proxy};
use crate::support::{Bed, Service, within};

/// A port whose packets are dropped: nobody takes connections off a queue that is full.
struct Dropping {
    port: u16,
    _sockets: Vec<OwnedFd>,
}

impl Dropping {
    fn new() -> Self {
        let port = free_port();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket =
            || socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).expect("a descriptor");
        let listener = socket();
        bind(&listener, &address).expect("a free port");
        listen(&listener, 0).expect("listens");
        let mut sockets = vec![listener];
        for _ in 0..4 {
            let client = socket();
            // The first ones fill the queue; none of them is waited for.
            let _ = connect(&client, &address);
            sockets.push(client);
        }
        let probe = std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200));
        assert!(probe.is_err(), "it takes connections");
        Self { port, _sockets: sockets }
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// Gives `etcd` users: `root` with the password `admin`, and `ci` with `secret` and the rights on all of `locks/`.
fn with_users(etcd: &Etcd) {
    for words in [
        &["user", "add", "root:admin"] as &[&str],
        &["user", "add", "ci:secret"],
        &["role", "add", "locks"],
        &["role", "grant-permission", "--prefix", "locks", "readwrite", "locks/"],
        &["user", "grant-role", "ci", "locks"],
        &["auth", "enable"],
    ] {
        etcd.ask(words);
    }
}

fn locks_at(endpoint: String) -> Bed {
    Bed::on(Service { backend: "etcd", endpoint, prefix: Some("locks/".to_owned()) })
}

fn as_ci(mut command: Command) -> Command {
    command.env("DLOCK_USER", "ci").env("DLOCK_PASSWORD", "secret");
    command
}

#[test]
fn a_first_server_that_drops_packets_is_passed_over() {
    if !available() {
        return;
    }
    let (etcd, dropping) = (Etcd::start(), Dropping::new());
    let bed = bed(format!("{},{}", dropping.endpoint(), etcd.endpoint()));
    for words in [&["--ttl", "6s", "-w", "15s"][..], &["-w", "15s"], &["--ttl", "6s", "--try"]] {
        let ended = bed.finish(bed.run(["--name", "x"]).args(words).args(["--", "true"]));
        assert_eq!(ended.code(), Some(0), "{words:?}: {}", ended.err);
        within(ended.took, Duration::from_secs(4));
    }
}

#[test]
fn a_first_server_that_is_mute_is_passed_over_by_one_with_a_password() {
    if !available() {
        return;
    }
    let etcd = Etcd::start();
    with_users(&etcd);
    let mute = Proxy::to(etcd.server().port());
    mute.set(Conduct::Hole);
    let bed = locks_at(format!("http://127.0.0.1:{},{}", mute.port(), etcd.endpoint()));
    for words in [&["--ttl", "6s", "-w", "15s"][..], &["-w", "15s"]] {
        let mut command = as_ci(bed.run(["--name", "x"]));
        let ended = bed.finish(command.args(words).args(["--", "true"]));
        assert_eq!(ended.code(), Some(0), "{words:?}: {}", ended.err);
        within(ended.took, Duration::from_secs(5));
    }
}

/// A server whose tokens are signed.
fn with_signed_tokens(folder: &std::path::Path) -> Etcd {
    let file = |name: &str| folder.join(name).display().to_string();
    for words in [
        vec!["genrsa", "-out", "jwt.key", "2048"],
        vec!["rsa", "-in", "jwt.key", "-pubout", "-out", "jwt.pub"],
    ] {
        let made = Command::new("openssl").current_dir(folder).args(words).output().expect("openssl runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    let token =
        format!("jwt,pub-key={},priv-key={},sign-method=RS256,ttl=10m", file("jwt.pub"), file("jwt.key"));
    let etcd = Etcd::with(&["--auth-token".to_owned(), token], None);
    with_users(&etcd);
    etcd
}

#[test]
fn a_change_to_users_or_roles_ends_no_command_whose_token_is_signed() {
    if !available() {
        return;
    }
    let bed = Bed::new();
    let etcd = with_signed_tokens(bed.root());
    let bed = locks_at(etcd.endpoint());
    let script = |up: &str| format!("echo up >{up}; sleep 7");
    let held = |name: &str| {
        let mut command = as_ci(bed.run(["--name", name, "--ttl", "5s", "--", "sh", "-c"]));
        let running = bed.start(command.arg(script(name)));
        bed.await_line(name);
        running
    };
    let (holder, other) = (held("x"), held("y"));
    let mut waiter = as_ci(bed.run(["-q", "--name", "x", "--ttl", "5s", "--", "true"]));
    let waiter = bed.start(&mut waiter);
    let as_root = |words: &[&str]| {
        let output = etcd.ctl(words).args(["--user", "root:admin"]).output().expect("etcdctl runs");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    for words in [
        &["user", "add", "somebody:else"] as &[&str],
        &["role", "add", "more"],
        &["user", "grant-role", "ci", "more"],
    ] {
        as_root(words);
    }
    for running in [holder, other, waiter] {
        let ended = running.finish();
        assert_eq!((ended.code(), ended.err.as_str()), (Some(0), ""));
    }
    let mut free = as_ci(bed.verb("status", ["--json", "x"]));
    assert!(bed.finish(&mut free).text().contains(r#""holders":[]"#));
}
