//! One etcd for tests, and what an enemy does to it.

mod messages;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dlock::backend::etcd::{EtcdBackend, EtcdConfig, Prefix};

use super::peers::Relay;
use super::process::{Server, dying_with_us, free_port, shared_folder};
use super::site::{self, Facts, Kind, Need, Site, number};
use crate::support::Service;

/// The service.
pub(crate) static KIND: Kind = Kind {
    name: "etcd",
    backend: "etcd",
    missing,
    start: |_| Arc::new(Etcd::start()),
    cluster: Some(|| Arc::new(Cluster::start())),
    address: |ports| site::addresses("http://", ports),
    part: |whole, n| Service { prefix: Some(format!("t{n}/")), ..whole },
    client: |part, _| {
        let mut config = EtcdConfig::parse(&site::options(part)).expect("an address");
        // The keys of `a/b` must not lie inside those of `a`.
        config.prefix = Prefix::Encoded(part.prefix.clone().unwrap_or_default());
        Arc::new(EtcdBackend::open(&config))
    },
    protocol: || Box::<messages::Http2>::default(),
    facts: Facts {
        lacks: &[(Need::Skew, "a client does not read a clock that could be wrong, but the kernel's")],
        abandoned_bound: Duration::from_secs(2),
        news_within: |_| Duration::ZERO,
        tells_all: true,
        patience: Duration::from_secs(3),
        blink: Duration::from_millis(60),
        hand_over: 3.1,
        ..Facts::USUAL
    },
};

/// Why there is no etcd on this machine.
pub(crate) fn missing() -> Option<String> {
    let there =
        |program: &str| Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success());
    let lacks = ["etcd", "etcdctl"].into_iter().find(|program| {
        if *program == "etcdctl" { etcdctl().arg("version").output().is_err() } else { !there(program) }
    });
    lacks.map(|program| format!("{program} is not installed"))
}

fn etcdctl() -> Command {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3");
    command
}

/// A server, with what is needed to talk to it.
pub(crate) struct Etcd {
    server: Server,
    secure: Option<PathBuf>,
}

impl Etcd {
    /// A server without authentication or encryption.
    pub(crate) fn start() -> Self {
        Self::with(&[], None)
    }

    /// A server that talks TLS with the certificates of `folder` (see `certificates.rs`) and, if `clients`, only
    /// to those who show one.
    pub(crate) fn secure(folder: PathBuf, clients: bool) -> Self {
        let file = |name: &str| folder.join(name).display().to_string();
        let mut words =
            vec!["--cert-file".to_owned(), file("server.pem"), "--key-file".to_owned(), file("server.key")];
        if clients {
            words.extend(["--client-cert-auth".to_owned(), "--trusted-ca-file".to_owned(), file("ca.pem")]);
        }
        Self::with(&words, Some(folder))
    }

    /// A server with further words on its command line.
    pub(crate) fn with(words: &[String], secure: Option<PathBuf>) -> Self {
        let (port, peer) = (free_port(), free_port());
        let (words, tls) = (words.to_vec(), secure.is_some());
        let server = Server::start(shared_folder("etcd"), port, move || {
            let scheme = if tls { "https" } else { "http" };
            let (client, peer) = (format!("{scheme}://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer}"));
            let mut command = dying_with_us("etcd");
            // The election time-out is also what the shortest lease comes from.
            command.args(["--data-dir", "data", "--heartbeat-interval", "50", "--election-timeout", "500"]);
            command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
            command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
            command.args(["--initial-cluster", &format!("default={peer}"), "--unsafe-no-fsync"]);
            command.args(["--logger", "zap", "--log-level", "error"]).args(&words);
            command
        });
        let etcd = Self { server, secure };
        etcd.await_leader();
        etcd
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    pub(crate) fn endpoint(&self) -> String {
        let scheme = if self.secure.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.server.port())
    }

    /// etcdctl, as a client of this server.
    pub(crate) fn ctl(&self, words: &[&str]) -> Command {
        ctl(&self.endpoint(), self.secure.as_deref(), words)
    }

    /// What etcdctl prints.
    pub(crate) fn ask(&self, words: &[&str]) -> String {
        asked(self.ctl(words), words)
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
        lose(&self.endpoint(), part, name, id);
    }

    fn postdate(&self, part: &Service, name: &str) {
        let keys = self.ask(&["get", "--prefix", "--keys-only", &part.key("dlock/", name)]);
        let key = keys
            .lines()
            .find(|key| key.ends_with("\u{1}d") || key.ends_with("%d"))
            .expect("it had a success");
        let last = number(&self.ask(&["get", "--print-value-only", key]));
        self.ask(&["put", key, &(last + 3_600_000).to_string()]);
    }

    fn requests(&self) -> u64 {
        messages(self.server.port())
    }

    fn remains(&self, name: &str) -> Vec<String> {
        entries(&self.endpoint(), name)
    }
}

/// Waits until what `question` asks of `server` is answered, which takes a leader.
fn await_leader(server: &Server, question: impl Fn() -> Command) {
    let begun = Instant::now();
    while !question().output().is_ok_and(|o| o.status.success()) {
        assert!(begun.elapsed() < Duration::from_secs(60), "no leader: {}", server.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Three servers that are one etcd.
pub(crate) struct Cluster {
    members: Vec<Server>,
    /// Through which the members reach each other, if not directly.
    relays: Vec<Relay>,
}

impl Cluster {
    /// Starts three servers and waits until they serve.
    pub(crate) fn start() -> Self {
        Self::with(["--heartbeat-interval", "50", "--election-timeout", "500"], false)
    }

    /// Starts three that can be cut off from each other, and are slow to notice.
    pub(crate) fn start_apart() -> Self {
        Self::with(["--heartbeat-interval", "200", "--election-timeout", "2000"], true)
    }

    fn with(times: [&'static str; 4], apart: bool) -> Self {
        let ports: Vec<(u16, u16)> = (0..3).map(|_| (free_port(), free_port())).collect();
        let relays: Vec<Relay> = ports.iter().filter(|_| apart).map(|(_, peer)| Relay::to(*peer)).collect();
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let told = |n: usize| url(relays.get(n).map_or(ports[n].1, Relay::port));
        let all: Vec<String> = (0..3).map(|n| format!("m{n}={}", told(n))).collect();
        let all = all.join(",");
        let start = |(n, (client, peer)): (usize, &(u16, u16))| {
            let (name, all, port, told) = (format!("m{n}"), all.clone(), *client, told(n));
            let (client, peer) = (url(*client), url(*peer));
            Server::start(shared_folder("etcd"), port, move || {
                let mut command = dying_with_us("etcd");
                command.args(["--name", &name, "--data-dir", "data", "--unsafe-no-fsync"]).args(times);
                command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
                command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &told]);
                command.args(["--initial-cluster", &all, "--logger", "zap", "--log-level", "error"]);
                command
            })
        };
        let members = ports.iter().enumerate().map(start).collect();
        let cluster = Self { members, relays };
        (0..3).for_each(|n| cluster.await_serving(n));
        cluster
    }

    /// Cuts `member` off from the others, both ways. Clients still reach it.
    pub(crate) fn cut(&self, member: usize) {
        let leads = self.leader(member) == member;
        let id: u64 = self.number(member, "\"MemberID\" : ").parse().expect("a number");
        for (n, relay) in self.relays.iter().enumerate() {
            if n == member {
                relay.cut_everybody();
            } else {
                relay.cut_from(&format!("{id:x}"), !leads);
            }
        }
    }

    /// The lease of the first entry under the raw `prefix`, in hexadecimal digits, as `member` knows it.
    pub(crate) fn lease_of_first(&self, member: usize, prefix: &str) -> String {
        let words = ["get", "--prefix", "--sort-by", "CREATE", "--keys-only", "--limit", "1", prefix];
        let keys = asked(ctl(&self.endpoint(member), None, &words), &words);
        keys.trim().rsplit('/').next().expect("a key").to_owned()
    }

    /// Whether `member` says within a moment that it has renewed `lease`.
    pub(crate) fn renews(&self, member: usize, lease: &str) -> bool {
        // Its own limits are not those of this command.
        let mut command = Command::new("timeout");
        command.args(["1", "etcdctl", "--endpoints", &self.endpoint(member)]).env("ETCDCTL_API", "3");
        command.args(["lease", "keep-alive", "--once", lease]);
        let output = command.output().expect("etcdctl runs");
        output.status.success() && String::from_utf8_lossy(&output.stdout).contains("keepalived")
    }

    /// The addresses of all members, in this order.
    pub(crate) fn endpoints(&self, order: [usize; 3]) -> String {
        order.map(|n| self.endpoint(n)).join(",")
    }

    /// The address of one member.
    pub(crate) fn endpoint(&self, n: usize) -> String {
        format!("http://127.0.0.1:{}", self.members[n].port())
    }

    /// Waits until a member answers for the whole cluster.
    pub(crate) fn await_serving(&self, n: usize) {
        await_leader(&self.members[n], || ctl(&self.endpoint(n), None, &["get", "x"]));
    }

    /// Which member leads: what a member that lives says.
    pub(crate) fn leader(&self, witness: usize) -> usize {
        let leader = self.number(witness, "\"Leader\" : ");
        let mut up = (0..3).filter(|n| self.members[*n].is_up());
        up.find(|n| self.number(*n, "\"MemberID\" : ") == leader).expect("the leader lives")
    }

    /// A field of what member `n` says of itself.
    fn number(&self, n: usize, key: &str) -> String {
        let words = ["endpoint", "status", "-w", "fields"];
        let text = asked(ctl(&self.endpoint(n), None, &words), &words);
        text.lines().find_map(|line| line.strip_prefix(key).map(str::to_owned)).expect("a number")
    }

    /// SIGKILL.
    pub(crate) fn down(&self, n: usize) {
        self.members[n].down();
    }

    /// Starts a member again, without waiting for the others.
    pub(crate) fn up(&self, n: usize) {
        self.members[n].up();
    }
}

impl Site for Cluster {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn servers(&self) -> &[Server] {
        &self.members
    }

    /// One of them.
    fn restart(&self) {
        self.members[0].restart();
        self.await_serving(0);
    }

    fn lose(&self, part: &Service, name: &str, id: &str) {
        lose(&self.endpoints([0, 1, 2]), part, name, id);
    }

    fn requests(&self) -> u64 {
        self.members.iter().map(|member| messages(member.port())).sum()
    }

    fn remains(&self, name: &str) -> Vec<String> {
        entries(&self.endpoints([0, 1, 2]), name)
    }
}

fn ctl(endpoint: &str, secure: Option<&std::path::Path>, words: &[&str]) -> Command {
    let mut command = etcdctl();
    command.args(["--endpoints", endpoint]);
    if let Some(folder) = secure {
        for (flag, file) in [("--cacert", "ca.pem"), ("--cert", "client.pem"), ("--key", "client.key")] {
            command.arg(flag).arg(folder.join(file));
        }
    }
    command.args(words);
    command
}

fn asked(mut command: Command, words: &[&str]) -> String {
    let output = command.output().expect("etcdctl runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "etcdctl {words:?}: {error}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Revokes the lease of the claim `id`.
fn lose(endpoints: &str, part: &Service, name: &str, id: &str) {
    let name = part.key("dlock/", name);
    let words = ["get", "--prefix", &name];
    let records = asked(ctl(endpoints, None, &words), &words);
    let lines: Vec<&str> = records.lines().collect();
    let at = lines.iter().position(|line| line.contains(id)).expect("the claim has a record");
    let lease = lines[at - 1].rsplit('/').next().expect("a lease");
    let words = ["lease", "revoke", lease];
    asked(ctl(endpoints, None, &words), &words);
}

/// How many messages of clients the member at `port` has had.
fn messages(port: u16) -> u64 {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connects");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("asks");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answers");
    let counts = text.lines().filter(|line| line.starts_with("grpc_server_msg_received_total"));
    let numbers = counts.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    let all: Vec<u64> = numbers.map(|n| format!("{n:.0}").parse().expect("a number")).collect();
    assert!(!all.is_empty(), "it counts");
    all.into_iter().sum()
}

/// The entries of the lock `name`: the time of the last success stays.
fn entries(endpoints: &str, name: &str) -> Vec<String> {
    let words = ["get", "--prefix", "--keys-only", &format!("dlock/{name}")];
    let keys = asked(ctl(endpoints, None, &words), &words);
    keys.lines().filter(|key| !key.is_empty() && !key.ends_with("%d")).map(str::to_owned).collect()
}
