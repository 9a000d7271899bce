//! Redis servers.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use super::process::{Server, dying_with_us, free_port, shared_folder};

/// Why there is none on this machine.
pub(crate) fn missing() -> Option<String> {
    let found = Command::new("redis-server").arg("--version").output().is_ok();
    (!found).then(|| "redis-server is not installed (Debian: redis-server)".to_owned())
}

/// A server that keeps everything.
pub(crate) fn start() -> Server {
    start_with(&[])
}

/// A server with further options.
pub(crate) fn start_with(options: &[&str]) -> Server {
    let port = free_port();
    start_in(shared_folder("redis"), port, &["--port", &port.to_string()], options)
}

/// A server that listens on `port` as `listening` says.
pub(crate) fn start_in(folder: PathBuf, port: u16, listening: &[&str], options: &[&str]) -> Server {
    let fixed = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--appendfsync", "always"];
    let all: Vec<String> =
        listening.iter().chain(&fixed).chain(options).map(|word| (*word).to_owned()).collect();
    Server::start(folder, port, move || {
        let mut command = dying_with_us("redis-server");
        command.args(&all);
        command
    })
}

/// The address of a server.
pub(crate) fn address(server: &Server) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}

/// What the server at `port` answers to a command, in its own protocol.
#[track_caller]
pub(crate) fn raw(port: u16, words: &[&str]) -> String {
    try_raw(port, words).expect("answers")
}

/// As [`raw`], of a node to which the keys are only moving.
#[track_caller]
pub(crate) fn asking(port: u16, words: &[&str]) -> String {
    let both = said(port, "*1\r\n$6\r\nASKING\r\n", words).expect("answers");
    both.strip_prefix("+OK\r\n").expect("it may be asked").to_owned()
}

/// As [`raw`], of a server that may just be going.
pub(crate) fn try_raw(port: u16, words: &[&str]) -> io::Result<String> {
    said(port, "", words)
}

fn said(port: u16, before: &str, words: &[&str]) -> io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut request = format!("{before}*{}\r\n", words.len());
    for word in words {
        write!(request, "${}\r\n{word}\r\n", word.len()).expect("writes");
    }
    // The second command marks the end of the answer to the first.
    request.push_str("*2\r\n$4\r\nPING\r\n$11\r\ndlock-fence\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    let end = b"$11\r\ndlock-fence\r\n";
    while !answer.ends_with(end) {
        let got = stream.read(&mut buffer)?;
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        answer.extend_from_slice(&buffer[..got]);
    }
    answer.truncate(answer.len() - end.len());
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// How many servers a Redlock of these tests has.
pub(crate) const NODES: usize = 5;

/// Independent servers that keep nothing over a restart.
pub(crate) fn start_nodes(options: &[&str]) -> Vec<Server> {
    let options = [&["--appendonly", "no"], options].concat();
    (0..NODES).map(|_| start_with(&options)).collect()
}

/// The endpoints of several servers.
pub(crate) fn addresses(nodes: &[Server]) -> String {
    nodes.iter().map(address).collect::<Vec<_>>().join(",")
}

/// How long a node has run, in whole seconds, as it says itself.
pub(crate) fn age(node: &Server) -> Option<Duration> {
    let info = try_raw(node.port(), &["INFO", "server"]).ok()?;
    let uptime = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"))?;
    uptime.trim().parse().ok().map(Duration::from_secs)
}

/// Waits until a node certainly has run for so long.
pub(crate) fn await_age(node: &Server, length: Duration) {
    let begun = Instant::now();
    while age(node).is_none_or(|age| age.as_secs() <= length.as_secs()) {
        assert!(begun.elapsed() < length + Duration::from_secs(60), "the node does not grow older");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Takes the claim `id` on the lock with the key `key` away at a node, behind dlock's back.
pub(crate) fn lose_claim_of_node(port: u16, key: &str, id: &str) {
    if raw(port, &["GET", key]).contains(id) {
        assert_eq!(raw(port, &["DEL", key]), ":1\r\n");
    } else {
        assert_eq!(raw(port, &["DEL", &format!("{{{key}}}:dlock:quorum:claim:{id}")]), ":1\r\n");
    }
}

/// Takes the claim `id` on the lock with the key `key` away behind dlock's back.
pub(crate) fn lose_claim(port: u16, key: &str, id: &str) {
    if raw(port, &["GET", key]).contains(id) {
        assert_eq!(raw(port, &["DEL", key]), ":1\r\n");
    } else {
        assert_eq!(raw(port, &["DEL", &format!("{{{key}}}:dlock:claim:{id}")]), ":1\r\n");
    }
}

/// Takes the hold on `name` away behind dlock's back.
pub(crate) fn lose(server: &Server, name: &str) {
    assert_eq!(raw(server.port(), &["DEL", &format!("dlock:{name}")]), ":1\r\n", "{name} was held");
}

/// The same in another database than the first.
pub(crate) fn lose_in(port: u16, database: &str, name: &str) {
    let script = format!("redis.call('SELECT', '{database}') return redis.call('DEL', 'dlock:{name}')");
    assert_eq!(raw(port, &["EVAL", &script, "0"]), ":1\r\n", "{name} was held");
}

/// Waits until the server answers.
pub(crate) fn ready(server: &Server) {
    while !try_raw(server.port(), &["PING"]).is_ok_and(|answer| answer.starts_with("+PONG")) {
        std::thread::yield_now();
    }
}

/// A sentinel that watches the master at `port` under the name main, and decides alone.
pub(crate) fn start_sentinel(master: u16) -> Server {
    let (folder, port) = (shared_folder("sentinel"), free_port());
    let text = format!("port {port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {master} 1\n");
    let file = folder.join("sentinel.conf");
    fs::write(&file, text).expect("writes");
    Server::start(folder, port, move || {
        let mut command = dying_with_us("redis-server");
        command.arg(&file).arg("--sentinel");
        command
    })
}
