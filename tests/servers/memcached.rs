//! memcached servers.

mod messages;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use dlock::backend::context::with_context;
use dlock::backend::memcached::{MemcachedConfig, with_clock};

use super::process::{Server, dying_with_us, free_port, lacking, shared_folder};
use super::site::{self, Facts, Kind, Need, Site, number};
use crate::support::Service;

pub(crate) static KIND: Kind = Kind {
    name: "memcached",
    backend: "memcached",
    missing,
    start: |_| Arc::new(Memcached(start())),
    cluster: None,
    secure: None,
    address: |ports| site::addresses("memcached://", ports),
    part: |whole, n| Service { prefix: Some(format!("t{n}/")), ..whole },
    client: |part, clock| {
        let mut config = MemcachedConfig::parse(&site::options(part)).expect("valid");
        // The cases also use names that cannot be keys.
        config.escapes = true;
        with_context(Arc::new(with_clock(config, clock)))
    },
    protocol: || Box::new(messages::Memcached),
    facts: Facts {
        lacks: &[
            (Need::AtomicNames, "each lock is an item of its own, and no step changes several"),
            (Need::Overtaking, "an entry replaces what was read before, and the eviction has changed that"),
            (Need::Restart, "memcached keeps nothing over a restart"),
        ],
        abandoned_bound: Duration::from_secs(5),
        hand_over: 7.0,
        ..Facts::USUAL
    },
};

/// A server as a [`Site`].
struct Memcached(Server);

impl Site for Memcached {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn servers(&self) -> &[Server] {
        std::slice::from_ref(&self.0)
    }

    /// Starts it again. It loses its data.
    fn restart(&self) {
        self.0.restart();
    }

    fn lose(&self, part: &Service, name: &str, id: &str) {
        let key = part.key("", name);
        loop {
            let (text, version) = value(self.0.port(), &key).expect("the queue is there");
            let mut document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            let claims = document["claims"].as_array_mut().expect("claims");
            let before = claims.len();
            claims.retain(|claim| claim["about"]["claim"] != id);
            assert_eq!(claims.len() + 1, before, "the claim is there");
            let (life, text) =
                if claims.is_empty() { (-1, String::new()) } else { (3600, document.to_string()) };
            let swap = format!("cas {key} 0 {life} {} {version}\r\n{text}\r\n", text.len());
            match raw(self.0.port(), swap.as_bytes()).as_str() {
                "STORED\r\n" => return,
                "EXISTS\r\n" => {}
                other => panic!("{other}"),
            }
        }
    }

    fn requests(&self) -> u64 {
        let said = raw(self.0.port(), b"stats\r\n");
        let count = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)).map(number);
        ["STAT cmd_get ", "STAT cmd_set "].into_iter().filter_map(count).sum()
    }

    fn remains(&self, name: &str) -> Vec<String> {
        value(self.0.port(), name).into_iter().map(|(text, _)| text).collect()
    }
}

/// Returns the reason if this machine has no memcached.
pub(crate) fn missing() -> Option<String> {
    lacking(&["memcached"], "memcached")
}

pub(crate) fn start() -> Server {
    start_with(&[])
}

/// Starts a server with these additional options.
pub(crate) fn start_with(options: &[&str]) -> Server {
    let port = free_port();
    let mut words = vec!["-l".to_owned(), "127.0.0.1".to_owned(), "-p".to_owned(), port.to_string()];
    // As root it demands the name of its user. A process that changes its user is no longer killed with its parent.
    words.extend(["-U", "0", "-u", "root"].iter().chain(options).map(|word| (*word).to_owned()));
    Server::start(shared_folder("memcached"), port, move || {
        let mut command = dying_with_us("memcached");
        command.args(&words);
        command
    })
}

/// Returns the address of a server.
pub(crate) fn address(server: &Server) -> String {
    format!("memcached://127.0.0.1:{}", server.port())
}

/// Returns the answer of the server at `port` to `request`, which consists of whole lines.
#[track_caller]
pub(crate) fn raw(port: u16, request: &[u8]) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("sets");
    // The answer to the last command marks the end.
    stream.write_all(&[request, b"mn\r\n"].concat()).expect("writes");
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    while !answer.ends_with(b"MN\r\n") {
        let got = stream.read(&mut buffer).expect("answers");
        assert!(got > 0, "the server closed the connection");
        answer.extend_from_slice(&buffer[..got]);
    }
    answer.truncate(answer.len() - 4);
    String::from_utf8(answer).expect("text")
}

/// Returns the value of `key` and its version.
pub(crate) fn value(port: u16, key: &str) -> Option<(String, String)> {
    let said = raw(port, format!("gets {key}\r\n").as_bytes());
    let (head, rest) = said.strip_prefix("VALUE ")?.split_once("\r\n")?;
    let version = head.rsplit(' ').next()?.to_owned();
    Some((rest.strip_suffix("\r\nEND\r\n")?.to_owned(), version))
}
