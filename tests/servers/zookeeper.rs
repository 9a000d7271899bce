//! A real ZooKeeper, and the faults that tests cause.

mod messages;

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dlock::backend::context::with_context;
use dlock::backend::zookeeper::{ZkConfig, open_with};

use super::process::dying_with_us;
use super::site::{self, Facts, Kind, Need, Site, number};
pub(crate) use super::zookeeper_raw::Raw;
use super::{Server, free_port, shared_folder};
use crate::support::Service;

pub(crate) static KIND: Kind = Kind {
    name: "zk",
    backend: "zk",
    missing,
    start: |_| Arc::new(Zk(vec![start()])),
    cluster: Some(|| Arc::new(Zk(start_ensemble(10, |_, _, port| port)))),
    secure: None,
    address: |ports| format!("zk://{}", site::addresses("", ports)),
    part: |whole, n| Service { endpoint: format!("{}/t{n}", whole.endpoint), ..whole },
    client: |part, clock| {
        let config = ZkConfig::parse(&site::options(part)).expect("an address");
        with_context(Arc::new(open_with(&config, clock)))
    },
    protocol: || Box::<messages::Zookeeper>::default(),
    facts: Facts {
        lacks: &[
            (Need::Overtaking, "what still comes goes with the session that it came by"),
            (Need::Detached, "a claim ends with its session"),
        ],
        abandoned_bound: TICK.saturating_mul(2),
        news_within: |_| Duration::ZERO,
        has_sessions: true,
        // A server that has just started accepts a connection and forgets it. The client notices that after four
        // seconds.
        patience: Duration::from_secs(6),
        blink: Duration::from_millis(100),
        hand_over: 7.0,
        // The client of an idle session sends a ping every 1.5 s.
        besides: |time| time.as_secs_f64() / 1.5 + 1.0,
        ..Facts::USUAL
    },
};

const JARS: &str = "/usr/share/java";

/// The server's tick. Sessions last two ticks at least and expire in steps of one.
pub(crate) const TICK: Duration = Duration::from_millis(500);

/// Returns the reason if no server can run here.
pub(crate) fn missing() -> Option<String> {
    let java = Command::new("java").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !java.is_ok_and(|status| status.success()) {
        return Some("java is not installed".to_owned());
    }
    let jar = Path::new(JARS).join("zookeeper.jar");
    (!jar.exists()).then(|| format!("there is no {}", jar.display()))
}

/// Returns the jars in [`JARS`] with names that begin with one of `stems`, as a class path.
pub(crate) fn class_path(stems: &[&str]) -> String {
    let mut found: Vec<PathBuf> = std::fs::read_dir(JARS)
        .expect("a directory of jars")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            path.extension().is_some_and(|e| e == "jar") && stems.iter().any(|stem| name.starts_with(stem))
        })
        .collect();
    found.sort();
    found.iter().map(|path| path.to_str().expect("UTF-8")).collect::<Vec<_>>().join(":")
}

/// The additional setup of a server.
#[derive(Clone, Default)]
pub(crate) struct Setup {
    /// Additional lines of the configuration file.
    pub(crate) lines: Vec<String>,
    /// Additional `-D` options.
    pub(crate) properties: Vec<String>,
    /// Its number among the servers of an ensemble.
    pub(crate) id: Option<u32>,
    /// Listens on a port with TLS instead of a plain one.
    pub(crate) secure: bool,
}

pub(crate) fn start_on(port: u16, setup: &Setup) -> Server {
    let folder = shared_folder("zookeeper");
    let mut text = format!(
        "tickTime={}\nmaxSessionTimeout=7200000\ndataDir={}\nmaxClientCnxns=0\nadmin.enableServer=false\n",
        TICK.as_millis(),
        folder.join("data").display(),
    );
    let kind = if setup.secure { "secureClientPort" } else { "clientPort" };
    writeln!(text, "{kind}={port}\n{kind}Address=127.0.0.1").expect("writes to a string");
    for line in &setup.lines {
        writeln!(text, "{line}").expect("writes to a string");
    }
    std::fs::create_dir(folder.join("data")).expect("a new directory");
    if let Some(id) = setup.id {
        std::fs::write(folder.join("data/myid"), id.to_string()).expect("writes");
    }
    std::fs::write(folder.join("zoo.cfg"), text).expect("writes");
    let path = class_path(&[
        "zookeeper",
        "slf4j-api",
        "slf4j-simple",
        "netty-",
        "snappy-java",
        "metrics-core",
        "reload4j",
    ]);
    let properties = setup.properties.clone();
    let server = Server::start(folder, port, move || {
        let mut command = dying_with_us("java");
        command
            .args(["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"])
            .args(["-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=1024"])
            .args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"])
            .args(&properties)
            .args(["-cp", &path, "org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg"]);
        command
    });
    if !setup.secure && setup.id.is_none() {
        await_service(port);
    }
    server
}

/// Waits until the server on `port` serves. It accepts connections before that, and forgets them.
pub(crate) fn await_service(port: u16) {
    let begun = std::time::Instant::now();
    loop {
        let text = said(port, *b"srvr");
        if text.as_ref().is_ok_and(|text| text.contains("Mode:")) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing serves on {port}: {text:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the answer of the server on `port` to a four-letter word.
pub(crate) fn said(port: u16, word: [u8; 4]) -> std::io::Result<String> {
    let mut text = String::new();
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(&word)?;
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// Starts a server for this test alone.
pub(crate) fn start() -> Server {
    start_on(free_port(), &Setup::default())
}

/// Starts a server with an additional setup.
pub(crate) fn start_with(setup: &Setup) -> Server {
    start_on(free_port(), setup)
}

/// Starts three servers that are one service. `patience` is the number of ticks for which a silent member believes that
/// all is well. `way` returns the port at which the first member reaches a port of the second.
pub(crate) fn start_ensemble(patience: u32, mut way: impl FnMut(usize, usize, u16) -> u16) -> Vec<Server> {
    let ports = [(); 3].map(|()| (free_port(), free_port(), free_port()));
    let mut servers = Vec::new();
    for (own, (clients, ..)) in ports.into_iter().enumerate() {
        // A leader without its followers waits for so many ticks before it elects again.
        let mut lines = vec!["initLimit=10".to_owned(), format!("syncLimit={patience}")];
        for (other, (_, quorum, election)) in ports.into_iter().enumerate() {
            let [quorum, election] = [quorum, election].map(|port| way(own, other, port));
            lines.push(format!("server.{}=127.0.0.1:{quorum}:{election}", other + 1));
        }
        let id = u32::try_from(own + 1).ok();
        servers.push(start_on(clients, &Setup { lines, id, ..Setup::default() }));
    }
    for server in &servers {
        await_service(server.port());
    }
    servers
}

/// Returns the port of the server that all cases of this process share.
pub(crate) fn shared_port() -> u16 {
    static SHARED: OnceLock<Server> = OnceLock::new();
    SHARED.get_or_init(start).port()
}

/// Returns the address of the server that all cases of this process share.
pub(crate) fn endpoint() -> String {
    format!("zk://127.0.0.1:{}", shared_port())
}

/// Ends the session that owns the node `node` in the queue at the path `queue`.
fn end_session_of(port: u16, queue: &str, node: &String) {
    let mut raw = Raw::connect(port, 0);
    let owner = raw.owner(&format!("{queue}/{node}")).expect("still there");
    // This closes the owner's connection. The owner may reconnect before the session is closed.
    while raw.children(queue).contains(node) {
        Raw::connect(port, owner).close();
    }
}

/// Returns the path of the queue of the lock `name` in a part of the service, and the node of the claim `id` in it.
fn node(port: u16, service: &Service, name: &str, id: &str) -> (String, String) {
    let address = service.endpoint.trim_start_matches("zk://");
    let chroot = address.find('/').map_or("", |at| &address[at..]);
    let queue = format!("{chroot}/dlock/{name}");
    let nodes = Raw::connect(port, 0).children(&queue);
    let node = nodes.into_iter().find(|node| node.replace('-', "").contains(id));
    let node = node.unwrap_or_else(|| panic!("{id} is in {queue}"));
    (queue, node)
}

/// Servers that are one service.
struct Zk(Vec<Server>);

impl Site for Zk {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn servers(&self) -> &[Server] {
        &self.0
    }

    /// Restarts one of several.
    fn restart(&self) {
        self.0[0].restart();
    }

    fn lose(&self, part: &Service, name: &str, id: &str) {
        let (queue, node) = node(self.0[0].port(), part, name, id);
        Raw::connect(self.0[0].port(), 0).delete(&format!("{queue}/{node}"));
    }

    fn sever(&self, part: &Service, name: &str, id: &str) {
        let (queue, node) = node(self.0[0].port(), part, name, id);
        end_session_of(self.0[0].port(), &queue, &node);
    }

    fn requests(&self) -> u64 {
        let received = |server: &Server| {
            let said = said(server.port(), *b"srvr").expect("answers");
            said.lines().find_map(|line| line.strip_prefix("Received: ")).map(number)
        };
        self.0.iter().map(|server| received(server).expect("a count")).sum()
    }

    fn remains(&self, name: &str) -> Vec<String> {
        let mut raw = Raw::connect(self.0[0].port(), 0);
        let queue = format!("/dlock/{name}");
        raw.children(&queue)
    }
}
