//! The whole run of `true` on each lock service, beside other clients of the same server: connect, acquire a free lock, run, release.
//!
//! Starts its own servers, as their packages set them up for one host; needs what `tests/run` installs. Python clients are also started
//! without a lock, which is most of their time. `N` sets the rounds, in which the programs take turns; `ONLY=redis,zk` names the services.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod support;

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use support::{Scratch, median, setting};

const PEERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers");
/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// Programs that lock at one server.
struct Service {
    name: &'static str,
    endpoint: String,
    clients: Vec<Client>,
    servers: Vec<Server>,
}

/// The words of a run under the lock of that name.
type Words = dyn Fn(&str) -> Vec<String>;

/// A program that locks a name and runs a command.
struct Client {
    title: &'static str,
    version: Vec<String>,
    command: Box<Words>,
    /// The words that start the program without a lock.
    start_up: Option<Vec<String>>,
}

/// A process that is killed with this one.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() {
    support::main(measure);
}

fn measure(scratch: &Scratch) {
    let only = env::var("ONLY").unwrap_or_default();
    println!("whole run of true, ms, medians of {} rounds", setting("N", 30));
    println!("| service | program | its time | dlock | ratio |\n|---|---|---|---|---|");
    for (name, start) in [
        ("file", files as fn(&Scratch) -> Service),
        ("etcd", etcd),
        ("redis", redis),
        ("redlock", redlock),
        ("zk", zookeeper),
        ("mysql", mariadb),
        ("postgres", postgres),
    ] {
        if only.is_empty() || only.split(',').any(|wanted| wanted == name) {
            let service = start(scratch);
            compare(&service, scratch);
            drop(service.servers);
        }
    }
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let cores = thread::available_parallelism().map_or(0, usize::from);
    println!("{cores} cores, {}", model.trim_start_matches([' ', '\t', ':']));
    for line in ["uname -sr", "date -u +%F"].map(|line| said(&strings(&line.split(' ').collect::<Vec<_>>())))
    {
        println!("{line}");
    }
}

fn compare(service: &Service, scratch: &Scratch) {
    let dlock =
        |name: &str| strings(&["run", "--quiet", "--endpoint", &service.endpoint, "--name", name, "true"]);
    let mut times = vec![(Vec::new(), Vec::new()); service.clients.len()];
    let mut own = Vec::new();
    for round in 0..=setting("N", 30) {
        let mut command = support::dlock(scratch);
        // A Redlock of servers that have just started grants nothing for so long.
        command.env("DLOCK_MAX_TTL", "10s").env("DLOCK_TTL", "10s");
        let mine = once(command.args(dlock("own")));
        for (client, (locked, bare)) in service.clients.iter().zip(&mut times) {
            let its = once(&mut words(&(client.command)("its")));
            let start_up = client.start_up.as_deref().map(|start_up| once(&mut words(start_up)));
            // The first round makes tables and fills caches.
            if round > 0 {
                locked.push(its);
                bare.extend(start_up);
            }
        }
        if round > 0 {
            own.push(mine);
        }
    }
    let own = median(&own);
    for (client, (locked, bare)) in service.clients.iter().zip(&times) {
        let its = median(locked);
        let line = said(&client.version);
        let is_number = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
        let version = line
            .split_whitespace()
            .rfind(is_number)
            .map(|word| format!(" {}", word.trim_matches([',', ')'])))
            .unwrap_or_default();
        let start_up = match client.start_up {
            Some(_) => format!(" (its start alone: {:.1})", median(bare)),
            None => String::new(),
        };
        println!(
            "| {} | {}{version}{start_up} | {its:.1} | {own:.1} | {:.2} |",
            service.name,
            client.title,
            own / its
        );
    }
}

/// One run, in ms.
fn once(command: &mut Command) -> f64 {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let began = Instant::now();
    let status = command.status().expect("a run");
    let length = began.elapsed();
    assert!(status.success(), "{command:?} ended with {status}");
    length.as_secs_f64() * 1e3
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn words(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// The first line that it prints.
fn said(words_to_run: &[String]) -> String {
    let output = words(words_to_run).output().expect("starts");
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned()
}

fn client(title: &'static str, version: &[&str], command: impl Fn(&str) -> Vec<String> + 'static) -> Client {
    Client { title, version: strings(version), command: Box::new(command), start_up: None }
}

/// The client of the Python package `title`.
fn python(title: &'static str, package: &str, script: &str, at: String) -> Client {
    let python = env::var("DLOCK_TEST_PYTHON").unwrap_or_else(|_| {
        concat!(env!("CARGO_MANIFEST_DIR"), "/target/foreign-clients/bin/python").to_owned()
    });
    let script = format!("{PEERS}/{script}");
    let ask = format!("import importlib.metadata as m; print(m.version('{package}'))");
    let start_up = strings(&[&python, &script]);
    let of_version = [python.as_str(), "-c", &ask].map(str::to_owned);
    let command = {
        let (python, script) = (python.clone(), script.clone());
        move |name: &str| strings(&[&python, &script, &at, name, "true"])
    };
    let mut client = client(title, &[], command);
    client.version = of_version.to_vec();
    client.start_up = Some(start_up);
    client
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("its address").port()
}

/// A server that listens on `port`; with `user` not as root.
fn serve(scratch: &Scratch, port: u16, user: Option<&str>, line: &str) -> Server {
    let log = fs::File::create(scratch.path(&format!("{port}.log"))).expect("a file");
    let mut command = as_user(user);
    command.args(line.split_whitespace()).current_dir(scratch.path(""));
    command.stdin(Stdio::null()).stdout(log.try_clone().expect("a descriptor")).stderr(log);
    let server = Server(command.spawn().expect("a server"));
    let began = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        assert!(began.elapsed() < PATIENCE, "{line} did not start");
        thread::sleep(Duration::from_millis(20));
    }
    server
}

fn as_user(user: Option<&str>) -> Command {
    let mut command = Command::new("setpriv");
    if let Some(user) = user.filter(|_| rustix::process::geteuid().is_root()) {
        command.args(["--reuid", user, "--clear-groups"]);
    }
    command.args(["--pdeathsig", "KILL"]);
    command
}

fn files(scratch: &Scratch) -> Service {
    let locks = scratch.path("locks");
    fs::create_dir_all(&locks).expect("a directory");
    let endpoint = locks.display().to_string();
    let flock = client("flock", &["flock", "--version"], move |name| {
        strings(&["flock", &locks.join(name).display().to_string(), "true"])
    });
    Service { name: "file", endpoint, clients: vec![flock], servers: Vec::new() }
}

fn etcd(scratch: &Scratch) -> Service {
    let (port, peer) = (free_port(), free_port());
    let (at, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer}"));
    let line = format!(
        "etcd --data-dir etcd --listen-client-urls {at} --advertise-client-urls {at} --listen-peer-urls {peer} \
         --initial-advertise-peer-urls {peer} --initial-cluster default={peer} --logger zap --log-level error"
    );
    let server = serve(scratch, port, None, &line);
    let endpoint = at.clone();
    let etcdctl = client("etcdctl lock", &["etcdctl", "version"], move |name| {
        strings(&["env", "ETCDCTL_API=3", "etcdctl", "--endpoints", &at, "lock", name, "true"])
    });
    Service { name: "etcd", endpoint, clients: vec![etcdctl], servers: vec![server] }
}

fn redis_server(scratch: &Scratch) -> (u16, Server) {
    let port = free_port();
    let line = format!("redis-server --port {port} --bind 127.0.0.1 --save --appendonly no");
    (port, serve(scratch, port, None, &line))
}

fn redis(scratch: &Scratch) -> Service {
    let (port, server) = redis_server(scratch);
    let least = scratch.path("redis_lock");
    let built =
        Command::new("cc").args(["-O2", "-o"]).arg(&least).arg(format!("{PEERS}/redis_lock.c")).status();
    assert!(built.expect("a C compiler").success(), "the C program was built");
    let least = client("the C program", &["echo"], move |name| {
        strings(&[&least.display().to_string(), &port.to_string(), name, "true"])
    });
    let clients = vec![least, python("redis-py", "redis", "redis_lock.py", port.to_string())];
    Service { name: "redis", endpoint: format!("redis://127.0.0.1:{port}"), clients, servers: vec![server] }
}

fn redlock(scratch: &Scratch) -> Service {
    let (ports, servers): (Vec<u16>, Vec<Server>) = (0..5).map(|_| redis_server(scratch)).unzip();
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let endpoint = ports.iter().map(|port| format!("redis://127.0.0.1:{port}")).collect::<Vec<_>>().join(",");
    let clients = vec![python("pottery", "pottery", "pottery_lock.py", ports.join(","))];
    Service { name: "redlock", endpoint, clients, servers }
}

fn zookeeper(scratch: &Scratch) -> Service {
    let port = free_port();
    let settings = format!(
        "tickTime=500\nmaxSessionTimeout=60000\ndataDir={}\nclientPort={port}\nadmin.enableServer=false\n",
        scratch.path("zookeeper").display()
    );
    fs::write(scratch.path("zoo.cfg"), settings).expect("a file");
    // All of them: the manifests of Debian's name only some.
    let needed =
        ["zookeeper", "slf4j-api", "slf4j-simple", "netty-", "snappy-java", "metrics-core", "reload4j"];
    let is_needed =
        |jar: &String| needed.iter().any(|name| jar.starts_with(&format!("/usr/share/java/{name}")));
    let jars = fs::read_dir("/usr/share/java").expect("Debian's libzookeeper-java").flatten();
    let jars = jars.map(|jar| jar.path().display().to_string()).filter(is_needed).collect::<Vec<_>>();
    let path = jars.join(":");
    let line = format!("java -Xmx256m -cp {path} org.apache.zookeeper.server.quorum.QuorumPeerMain zoo.cfg");
    let server = serve(scratch, port, None, &line);
    let at = format!("127.0.0.1:{port}");
    let clients = vec![python("kazoo", "kazoo", "kazoo_lock.py", at.clone())];
    Service { name: "zk", endpoint: format!("zk://{at}"), clients, servers: vec![server] }
}

fn mariadb(scratch: &Scratch) -> Service {
    let port = free_port();
    let data = scratch.path("mariadb").display().to_string();
    let install = ["--no-defaults", "--user=root", "--auth-root-authentication-method=normal"];
    let mut install_db = Command::new("mariadb-install-db");
    run(install_db.args(install).arg(format!("--datadir={data}")).stdout(Stdio::null()));
    let line = format!(
        "mariadbd --no-defaults --user=root --datadir={data} --port={port} --bind-address=127.0.0.1 --socket={data}.sock"
    );
    let server = serve(scratch, port, None, &line);
    let port = port.to_string();
    let endpoint = format!("mysql://root@127.0.0.1:{port}/locks");
    let sql = move |text: &str| {
        strings(&["mariadb", "--no-defaults", "-h127.0.0.1", "-P", &port, "-uroot", "-e", text])
    };
    run(&mut words(&sql("create database locks")));
    let get_lock = client("GET_LOCK", &["mariadb", "--version"], move |name| {
        sql(&format!("select get_lock('{name}', 60);\nsystem true"))
    });
    Service { name: "mysql", endpoint, clients: vec![get_lock], servers: vec![server] }
}

fn postgres(scratch: &Scratch) -> Service {
    let versions = fs::read_dir("/usr/lib/postgresql").expect("Debian's postgresql").flatten();
    let programs = versions.map(|version| version.path().join("bin")).max().expect("a version");
    let program = |name: &str| programs.join(name).display().to_string();
    let (port, data) = (free_port().to_string(), scratch.path("postgres"));
    fs::create_dir(&data).expect("a directory");
    let user = rustix::process::geteuid().is_root().then_some("65534");
    if user.is_some() {
        std::os::unix::fs::chown(&data, Some(65_534), None).expect("another owner");
    }
    let data = data.display().to_string();
    let mut initdb = as_user(user);
    initdb.arg(program("initdb")).args(["-U", "postgres", "-A", "trust", "-D", &data]);
    run(initdb.current_dir("/").stdout(Stdio::null()));
    let line = format!("{} -D {data} -p {port} -h 127.0.0.1 -k {data}", program("postgres"));
    let server = serve(scratch, port.parse().expect("a number"), user, &line);
    let endpoint = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    // Debian's psql on the path is a script that looks for this one.
    let psql = program("psql");
    let ready = strings(&[&psql, "-qX", "-h127.0.0.1", "-p", &port, "-Upostgres", "-c", "select"]);
    let began = Instant::now();
    while !words(&ready).output().expect("starts").status.success() {
        assert!(began.elapsed() < PATIENCE, "PostgreSQL did not start");
        thread::sleep(Duration::from_millis(20));
    }
    let advisory = client("pg_advisory_lock", &[&psql.clone(), "--version"], move |name| {
        let lock = format!("select pg_advisory_lock(hashtext('{name}'))");
        strings(&[&psql, "-qAtX", "-h127.0.0.1", "-p", &port, "-Upostgres", "-c", &lock, "-c", "\\! true"])
    });
    Service { name: "postgres", endpoint, clients: vec![advisory], servers: vec![server] }
}

fn run(command: &mut Command) {
    let status = command.status().expect("starts");
    assert!(status.success(), "{command:?} ended with {status}");
}
