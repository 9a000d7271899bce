//! Several etcd members that are one service, and the faults of members.

use std::path::PathBuf;
use std::process::Command;

use super::{
    KIND, asked, await_leader, certified, ctl, encrypting, entries, lose, messages, scheme, signing,
};
use crate::servers::certificates;
use crate::servers::peers::Relay;
use crate::servers::process::{Server, dying_with_us, free_port, shared_folder};
use crate::servers::relay::{Protocol, tls::Tls};
use crate::servers::site::{self, Kind, Site};
use crate::support::Service;

/// The user and the password of a secure cluster.
const LOGIN: (&str, &str) = ("root", "admin");

/// The interval of heartbeats, and the time after which a silent member is missed.
const TIMES: [&str; 4] = ["--heartbeat-interval", "50", "--election-timeout", "500"];

/// Three servers that are one etcd.
pub(crate) struct Cluster {
    members: Vec<Server>,
    /// The relays between the members, if they are not connected directly.
    relays: Vec<Relay>,
    /// The directory of its certificates, if it is a secure cluster.
    secure: Option<PathBuf>,
}

impl Cluster {
    /// Starts three servers and waits until they serve.
    pub(crate) fn start() -> Self {
        Self::with(TIMES, false, None)
    }

    /// Starts three servers that use TLS, sign their tokens and demand the password.
    pub(crate) fn start_secure() -> Self {
        let cluster = Self::with(TIMES, false, Some(certificates::folder()));
        let (user, password) = LOGIN;
        for words in [&["user", "add", &format!("{user}:{password}")][..], &["auth", "enable"]] {
            asked(cluster.ctl(0, words), words);
        }
        cluster
    }

    /// Starts three servers with relays between them. They are slow to notice a cut.
    pub(crate) fn start_apart() -> Self {
        Self::with(["--heartbeat-interval", "200", "--election-timeout", "2000"], true, None)
    }

    fn with(times: [&'static str; 4], apart: bool, secure: Option<PathBuf>) -> Self {
        let words = secure.as_deref().map(|folder| [&encrypting(folder)[..], &signing(folder)].concat());
        let (scheme, words) = (scheme(secure.is_some()), words.unwrap_or_default());
        let ports: Vec<(u16, u16)> = (0..3).map(|_| (free_port(), free_port())).collect();
        let relays: Vec<Relay> = ports.iter().filter(|_| apart).map(|(_, peer)| Relay::to(*peer)).collect();
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let told = |n: usize| url(relays.get(n).map_or(ports[n].1, Relay::port));
        let all: Vec<String> = (0..3).map(|n| format!("m{n}={}", told(n))).collect();
        let all = all.join(",");
        let start = |(n, (client, peer)): (usize, &(u16, u16))| {
            let (name, all, port, told) = (format!("m{n}"), all.clone(), *client, told(n));
            let (client, peer, words) = (format!("{scheme}://127.0.0.1:{client}"), url(*peer), words.clone());
            Server::start(shared_folder("etcd"), port, move || {
                let mut command = dying_with_us("etcd");
                command.args(["--name", &name, "--data-dir", "data", "--unsafe-no-fsync"]).args(times);
                // The lowest cost; otherwise most of the time would go to passwords.
                command.args(["--bcrypt-cost", "4"]).args(&words);
                command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
                command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &told]);
                command.args(["--initial-cluster", &all, "--logger", "zap", "--log-level", "error"]);
                command
            })
        };
        let members = ports.iter().enumerate().map(start).collect();
        let cluster = Self { members, relays, secure };
        (0..3).for_each(|n| cluster.await_serving(n));
        cluster
    }

    /// Cuts `member` off from the others, in both directions. Clients still reach it.
    pub(crate) fn cut(&self, member: usize) {
        let leads = self.leader(member) == member;
        let id: u64 = self.number(member, "\"MemberID\" : ").parse().expect("a number");
        for (n, relay) in self.relays.iter().enumerate() {
            if n == member {
                relay.cut_all();
            } else {
                relay.cut_from(&format!("{id:x}"), !leads);
            }
        }
    }

    /// Returns the lease of the first entry under the raw `prefix`, in hexadecimal digits, as `member` knows it.
    pub(crate) fn lease_of_first(&self, member: usize, prefix: &str) -> String {
        let words = ["get", "--prefix", "--sort-by", "CREATE", "--keys-only", "--limit", "1", prefix];
        let keys = asked(self.ctl(member, &words), &words);
        keys.trim().rsplit('/').next().expect("a key").to_owned()
    }

    /// Returns whether `member` confirms a renewal of `lease` within a moment.
    pub(crate) fn renews(&self, member: usize, lease: &str) -> bool {
        // `timeout` bounds the command; etcdctl's own limits do not.
        let mut command = Command::new("timeout");
        command.args(["1", "etcdctl", "--endpoints", &self.endpoint(member)]).env("ETCDCTL_API", "3");
        command.args(["lease", "keep-alive", "--once", lease]);
        let output = command.output().expect("etcdctl runs");
        output.status.success() && String::from_utf8_lossy(&output.stdout).contains("keepalived")
    }

    /// Returns the addresses of all members in this order.
    pub(crate) fn endpoints(&self, order: [usize; 3]) -> String {
        order.map(|n| self.endpoint(n)).join(",")
    }

    /// Returns the address of one member.
    pub(crate) fn endpoint(&self, n: usize) -> String {
        format!("{}://127.0.0.1:{}", scheme(self.secure.is_some()), self.members[n].port())
    }

    /// Returns etcdctl as a client of one member.
    fn ctl(&self, n: usize, words: &[&str]) -> Command {
        ctl(&self.endpoint(n), &self.way(), words)
    }

    fn way(&self) -> Vec<String> {
        let Some(folder) = &self.secure else { return Vec::new() };
        let mut words = certified(folder);
        words.extend(["--user".to_owned(), format!("{}:{}", LOGIN.0, LOGIN.1)]);
        words
    }

    /// Waits until a member answers for the whole cluster.
    pub(crate) fn await_serving(&self, n: usize) {
        await_leader(&self.members[n], || self.ctl(n, &["get", "x"]));
    }

    /// Returns the number of the leader, as the live member `witness` reports it.
    pub(crate) fn leader(&self, witness: usize) -> usize {
        let leader = self.number(witness, "\"Leader\" : ");
        let mut up = (0..3).filter(|n| self.members[*n].is_up());
        up.find(|n| self.number(*n, "\"MemberID\" : ") == leader).expect("the leader lives")
    }

    /// Returns a field of the status of member `n`.
    fn number(&self, n: usize, key: &str) -> String {
        let words = ["endpoint", "status", "-w", "fields"];
        let text = asked(self.ctl(n, &words), &words);
        text.lines().find_map(|line| line.strip_prefix(key).map(str::to_owned)).expect("a number")
    }

    /// Sends SIGKILL.
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

    fn at(&self, ports: &[u16]) -> Service {
        let plain = self.kind().at(ports);
        let Some(_) = self.secure else { return plain };
        Service { endpoint: site::addresses("https://", ports), ..plain }
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let Some(folder) = &self.secure else { return Vec::new() };
        let (user, password) = LOGIN;
        vec![
            ("DLOCK_CACERT", folder.join("ca.pem").display().to_string()),
            ("DLOCK_USER", user.to_owned()),
            ("DLOCK_PASSWORD", password.to_owned()),
        ]
    }

    fn protocol(&self) -> Protocol {
        if self.secure.is_some() { || Box::new(Tls) } else { KIND.protocol }
    }

    /// Restarts one of them.
    fn restart(&self) {
        self.members[0].restart();
        self.await_serving(0);
    }

    fn lose(&self, part: &Service, name: &str, id: &str) {
        lose(&self.endpoints([0, 1, 2]), &self.way(), part, name, id);
    }

    fn requests(&self) -> u64 {
        self.members.iter().map(|member| messages(member.port())).sum()
    }

    fn remains(&self, name: &str) -> Vec<String> {
        entries(&self.endpoints([0, 1, 2]), &self.way(), name)
    }
}
