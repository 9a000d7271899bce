//! One etcd for tests, and the faults of one.

mod cluster;
mod messages;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dlock::backend::context::with_context;
use dlock::backend::etcd::EtcdConfig;
use dlock::backend::service::Address as _;

use super::certificates::openssl;
use super::process::{Server, dying_with_us, free_port, lacking, shared_folder};
use super::site::{self, Facts, Kind, Need, Site, number};
use crate::support::Service;

pub(crate) use cluster::Cluster;

pub(crate) static KIND: Kind = Kind {
    name: "etcd",
    backend: "etcd",
    missing,
    start: |_| Arc::new(Etcd::start()),
    cluster: Some(|| Arc::new(Cluster::start())),
    secure: Some(|| Arc::new(Cluster::start_secure())),
    address: |ports| site::addresses("http://", ports),
    part: |whole, n| Service { prefix: Some(format!("t{n}/")), ..whole },
    client: |part, _| {
        let mut config = EtcdConfig::parse(&site::options(part)).expect("an address");
        // The keys of `a/b` must not lie inside those of `a`.
        config.encoded = true;
        with_context(config.open())
    },
    protocol: || Box::<messages::Http2>::default(),
    facts: Facts {
        lacks: &[
            (Need::Skew, "a client does not read a clock that could be wrong, but the kernel's"),
            (Need::Overtaking, "an entry needs its lease, which is granted first and ends with the claim"),
        ],
        abandoned_bound: Duration::from_secs(2),
        news_within: |_| Duration::ZERO,
        patience: Duration::from_secs(3),
        blink: Duration::from_millis(60),
        hand_over: 3.1,
        ..Facts::USUAL
    },
};

/// Returns the reason if this machine has no etcd.
pub(crate) fn missing() -> Option<String> {
    lacking(&["etcd", "etcdctl"], "etcd-server, etcd-client")
}

fn etcdctl() -> Command {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3");
    command
}

/// A server.
pub(crate) struct Etcd {
    server: Server,
}

impl Etcd {
    /// Starts a server without authentication or encryption.
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server that [`Etcd::fill`] fills soon.
    pub(crate) fn small() -> Self {
        Self::with(&["--quota-backend-bytes".to_owned(), "2000000".to_owned()])
    }

    /// Starts a server with these additional arguments.
    pub(crate) fn with(words: &[String]) -> Self {
        let etcd = Self { server: Self::bare(words, false) };
        etcd.await_leader();
        etcd
    }

    /// Starts a server with these additional arguments, and waits only for its port.
    pub(crate) fn bare(words: &[String], tls: bool) -> Server {
        let (port, peer) = (free_port(), free_port());
        let words = words.to_vec();
        Server::start(shared_folder("etcd"), port, move || {
            let scheme = scheme(tls);
            let (client, peer) = (format!("{scheme}://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer}"));
            let mut command = dying_with_us("etcd");
            // The shortest lease also depends on the election timeout.
            command.args(["--data-dir", "data", "--heartbeat-interval", "50", "--election-timeout", "500"]);
            command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
            command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
            command.args(["--initial-cluster", &format!("default={peer}"), "--unsafe-no-fsync"]);
            command.args(["--logger", "zap", "--log-level", "error"]).args(&words);
            command
        })
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.server.port())
    }

    /// Returns etcdctl as a client of this server.
    pub(crate) fn ctl(&self, words: &[&str]) -> Command {
        ctl(&self.endpoint(), &[], words)
    }

    /// Returns the output of etcdctl.
    pub(crate) fn ask(&self, words: &[&str]) -> String {
        asked(self.ctl(words), words)
    }

    /// Makes the server demand a password. `root` has the password `admin`. `ci` has `password`, and the rights to keys
    /// with these prefixes.
    pub(crate) fn guard(&self, password: &str, prefixes: &[&str]) {
        self.ask(&["user", "add", "root:admin"]);
        self.ask(&["user", "add", &format!("ci:{password}")]);
        self.ask(&["role", "add", "own"]);
        for prefix in prefixes {
            self.ask(&["role", "grant-permission", "--prefix", "own", "readwrite", prefix]);
        }
        self.ask(&["user", "grant-role", "ci", "own"]);
        self.ask(&["auth", "enable"]);
    }

    /// Puts ballast until there is no space left. Returns the refusal.
    pub(crate) fn fill(&self) -> String {
        let ballast = "x".repeat(100_000);
        let refused = (0..100).find_map(|_| {
            let output = self.ctl(&["put", "ballast", &ballast]).output().expect("etcdctl runs");
            (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
        });
        refused.expect("the space ends")
    }

    /// Returns the present revision. `key` is any key.
    pub(crate) fn revision(&self, key: &str) -> String {
        let fields = self.ask(&["get", key, "-w", "fields"]);
        fields.lines().find_map(|line| line.strip_prefix("\"Revision\" : ")).expect("a revision").to_owned()
    }

    /// Starts etcd's own proxy in front of this server.
    pub(crate) fn grpc_proxy(&self) -> Server {
        let port = free_port();
        let words = [format!("--endpoints={}", self.endpoint()), format!("--listen-addr=127.0.0.1:{port}")];
        Server::start(shared_folder("grpc-proxy"), port, move || {
            let mut command = dying_with_us("etcd");
            command.args(["grpc-proxy", "start"]).args(&words);
            command
        })
    }

    fn await_leader(&self) {
        await_leader(&self.server, || self.ctl(&["get", "x"]));
    }
}

impl Site for Etcd {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn servers(&self) -> &[Server] {
        std::slice::from_ref(&self.server)
    }

    fn restart(&self) {
        self.server.restart();
        self.await_leader();
    }

    fn lose(&self, part: &Service, name: &str, id: &str) {
        lose(&self.endpoint(), &[], part, name, id);
    }

    fn requests(&self) -> u64 {
        messages(self.server.port())
    }

    fn remains(&self, name: &str) -> Vec<String> {
        entries(&self.endpoint(), &[], name)
    }
}

/// Waits until `server` answers the request of `question`, which takes a leader.
fn await_leader(server: &Server, question: impl Fn() -> Command) {
    let begun = Instant::now();
    while !question().output().is_ok_and(|o| o.status.success()) {
        assert!(begun.elapsed() < Duration::from_secs(60), "no leader: {}", server.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the arguments for TLS with the certificates of `folder`.
fn encrypting(folder: &Path) -> [String; 4] {
    let file = |name: &str| folder.join(name).display().to_string();
    ["--cert-file".to_owned(), file("server.pem"), "--key-file".to_owned(), file("server.key")]
}

/// Returns the arguments of etcdctl for a server with the certificates of `folder`.
fn certified(folder: &Path) -> Vec<String> {
    let files = [("--cacert", "ca.pem"), ("--cert", "client.pem"), ("--key", "client.key")];
    files
        .iter()
        .flat_map(|(flag, file)| [(*flag).to_owned(), folder.join(file).display().to_string()])
        .collect()
}

/// Creates keys in `folder`. Returns the arguments with which a server signs its tokens.
pub(crate) fn signing(folder: &Path) -> [String; 2] {
    openssl(folder, "genrsa -out jwt.key 2048");
    openssl(folder, "rsa -in jwt.key -pubout -out jwt.pub");
    let file = |name: &str| folder.join(name).display().to_string();
    let token =
        format!("jwt,pub-key={},priv-key={},sign-method=RS256,ttl=10m", file("jwt.pub"), file("jwt.key"));
    ["--auth-token".to_owned(), token]
}

fn scheme(is_secure: bool) -> &'static str {
    if is_secure { "https" } else { "http" }
}

/// Returns etcdctl with `words` and the login arguments `way`.
fn ctl(endpoint: &str, way: &[String], words: &[&str]) -> Command {
    let mut command = etcdctl();
    command.args(["--endpoints", endpoint]).args(way).args(words);
    command
}

fn asked(mut command: Command, words: &[&str]) -> String {
    let output = command.output().expect("etcdctl runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "etcdctl {words:?}: {error}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Revokes the lease of the claim `id`.
fn lose(endpoints: &str, way: &[String], part: &Service, name: &str, id: &str) {
    let name = part.key("dlock/", name);
    let words = ["get", "--prefix", &name];
    let records = asked(ctl(endpoints, way, &words), &words);
    let lines: Vec<&str> = records.lines().collect();
    let at = lines.iter().position(|line| line.contains(id)).expect("the claim has a record");
    let lease = lines[at - 1].rsplit('/').next().expect("a lease");
    let words = ["lease", "revoke", lease];
    asked(ctl(endpoints, way, &words), &words);
}

/// Returns what the member at `port` counts.
pub(crate) fn metrics(port: u16) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connects");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("asks");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answers");
    text
}

/// Returns how many client messages the member at `port` has received.
fn messages(port: u16) -> u64 {
    let text = metrics(port);
    let counts = text.lines().filter(|line| line.starts_with("grpc_server_msg_received_total"));
    let numbers = counts.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    let all: Vec<u64> = numbers.map(|n| format!("{n:.0}").parse().expect("a number")).collect();
    assert!(!all.is_empty(), "it counts");
    all.into_iter().sum()
}

/// Returns the entries of the lock `name`. The time of the last success is not one of them.
fn entries(endpoints: &str, way: &[String], name: &str) -> Vec<String> {
    let words = ["get", "--prefix", "--keys-only", &format!("dlock/{name}")];
    let keys = asked(ctl(endpoints, way, &words), &words);
    keys.lines().filter(|key| !key.is_empty() && !key.ends_with("%d")).map(str::to_owned).collect()
}
