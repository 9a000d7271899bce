//! Places that are missing, full or read-only.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::scene::{Kind, Scene, Staged};
use crate::servers::etcd::Etcd;
use crate::servers::{Server, mariadb, memcached, postgres, redis, shared_folder};
use crate::support::{Service, TestEnv, until};

/// The time in which the nodes of a Redlock do not vote.
const MAX_TTL: &str = "3s";

pub(crate) fn missing(kind: Kind) -> Staged {
    match kind {
        Kind::File | Kind::Zk => return Staged::Never("what is not there is made"),
        Kind::Etcd | Kind::Memcached => return Staged::Never("it has one space for all keys"),
        Kind::Redis | Kind::Redlock => {
            let nodes: Vec<Server> = (0..kind.servers()).map(|_| redis::start()).collect();
            let all: Vec<String> =
                nodes.iter().map(|node| format!("{}/4000", redis::address(node))).collect();
            Scene::at(all.join(","), nodes)
        }
        Kind::Mysql => {
            let server = mariadb::start();
            Scene::at(format!("mysql://root@127.0.0.1:{}/none", server.port()), server)
        }
        Kind::Postgres => {
            let server = postgres::start();
            Scene::at(server.address_of("none"), server)
        }
    }
    .staged()
}

/// A file system mounted on one directory. Dropping it unmounts it.
struct Mounted(PathBuf);

impl Mounted {
    fn new(options: &str) -> Self {
        let folder = shared_folder("mounted");
        let mut mount = Command::new("mount");
        let mounted =
            mount.args(["-t", "tmpfs", "-o", options, "none"]).arg(&folder).status().expect("mount runs");
        assert!(mounted.success(), "a file system of its own takes root");
        Self(folder)
    }

    fn remount(&self, options: &str) {
        let done = Command::new("mount").args(["-o", options]).arg(&self.0).status().expect("mount runs");
        assert!(done.success(), "mounts it again");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: a process may still use it.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

pub(crate) fn full(kind: Kind) -> Staged {
    match kind {
        Kind::File => {
            let mounted = Mounted::new("nr_inodes=1,mode=777");
            let words = ["no space left on device; make room on its file system"];
            Scene::at(mounted.0.display().to_string(), mounted).says(73, &words)
        }
        Kind::Etcd => {
            let etcd = Etcd::small();
            etcd.fill();
            until("an alarm", || etcd.ask(&["alarm", "list"]).contains("NOSPACE").then_some(()));
            Scene::at(etcd.endpoint(), etcd)
        }
        Kind::Redis | Kind::Redlock => {
            let full = ["--appendonly", "no", "--maxmemory", "1", "--maxmemory-policy", "noeviction"];
            let nodes: Vec<Server> = (0..kind.servers()).map(|_| redis::start_with(&full)).collect();
            for node in nodes.iter().filter(|_| kind == Kind::Redlock) {
                redis::await_age(node, Duration::from_secs(3));
            }
            let at = redis::addresses(&nodes);
            let scene = Scene::at(at, nodes);
            if kind == Kind::Redlock { scene.with("DLOCK_MAX_TTL", MAX_TTL) } else { scene }
        }
        Kind::Zk => return Staged::Never("a ZooKeeper whose disk is full ends: see refused"),
        Kind::Mysql => {
            let server = mariadb::start();
            let once = "CREATE USER ci@'%'; GRANT ALL ON locks.* TO ci@'%' WITH MAX_CONNECTIONS_PER_HOUR 1";
            mariadb::ask(&server, once);
            let at = format!("mysql://ci@127.0.0.1:{}/locks", server.port());
            let env = TestEnv::on(Service { backend: "mysql", endpoint: at.clone(), prefix: None });
            // This takes the only connection.
            env.finish(&mut env.verb("status", ["x"])).silently(0);
            Scene::at(at, server)
        }
        Kind::Postgres => {
            let server = postgres::start_with(&[
                "max_connections=2",
                "superuser_reserved_connections=0",
                "max_wal_senders=0",
            ]);
            let taken: Vec<TcpStream> = (0..2).map(|_| connected(server.port())).collect();
            Scene::at(server.address(), (taken, server))
        }
        Kind::Memcached => {
            let server = memcached::start_with(&["-M", "-m", "2"]);
            fill(server.port());
            Scene::at(memcached::address(&server), server)
        }
    }
    .staged()
}

/// Opens a connection to the PostgreSQL at `port` and logs in.
fn connected(port: u16) -> TcpStream {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("sets");
    let words = b"user\0postgres\0database\0postgres\0\0";
    let length = u32::try_from(words.len() + 8).expect("short").to_be_bytes();
    let version = 196_608_u32.to_be_bytes();
    stream.write_all(&[&length[..], &version, words].concat()).expect("greets");
    let mut answer = Vec::new();
    // The server is ready for a query.
    while !answer.ends_with(b"Z\0\0\0\x05I") {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).expect("answers"), 1, "{}", String::from_utf8_lossy(&answer));
        answer.push(byte[0]);
    }
    stream
}

/// Stores items of every size until there is room for none.
fn fill(port: u16) {
    let mut refused = 0;
    for size in [500_000_usize, 100_000, 20_000, 4000, 1500, 1000, 700, 500, 300, 200, 100, 50, 1] {
        for n in 0..20_000 {
            let request = format!("set ballast-{size}-{n} 0 0 {size}\r\n{}\r\n", "x".repeat(size));
            if memcached::raw(port, request.as_bytes()).contains("out of memory") {
                refused += 1;
                break;
            }
        }
    }
    assert!(refused > 0, "the memory ends");
}

pub(crate) fn read_only(kind: Kind) -> Staged {
    match kind {
        Kind::File => {
            let mounted = Mounted::new("mode=777");
            mounted.remount("remount,ro");
            let words = [
                "is on a read-only file system; in a systemd unit set ReadWritePaths=/",
                ", or choose a directory on a writable file system with --endpoint",
            ];
            Scene::at(mounted.0.display().to_string(), mounted).says(73, &words)
        }
        Kind::Etcd => {
            return Staged::Never("a member that cannot write has lost the others, and does not answer");
        }
        Kind::Redis => {
            let master = redis::start();
            let of = ["--replicaof", "127.0.0.1", &master.port().to_string()];
            let replica = redis::start_with(&of);
            Scene::at(redis::address(&replica), (replica, master))
        }
        Kind::Redlock => {
            let master = redis::start();
            let of = ["--replicaof", "127.0.0.1", &master.port().to_string()];
            let nodes: Vec<Server> = (0..3).map(|_| redis::start_with(&of)).collect();
            // dlock must not take replicas for independent nodes.
            Scene::at(redis::addresses(&nodes), (nodes, master)).says(64, &["replica"])
        }
        Kind::Zk => {
            return Staged::Never("a server in read-only mode takes no sessions of clients that write");
        }
        Kind::Mysql => {
            let server = mariadb::start();
            mariadb::ask(&server, "SET GLOBAL read_only = 1");
            Scene::at(mariadb::address(server.port()), server)
        }
        Kind::Postgres => {
            let primary = postgres::start();
            let standby = primary.standby();
            Scene::at(standby.address(), (standby, primary))
        }
        Kind::Memcached => return Staged::Never("it has no such mode"),
    }
    .staged()
}
