//! PostgreSQL servers.

mod messages;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use dlock::backend::context::with_context;
use dlock::backend::sql::SqlConfig;
use rustix::process::{Pid, Signal, kill_process};

use super::process::{Server, free_port, shared_folder};
use super::site::{self, Facts, Kind, Site};
use crate::support::Service;

pub(crate) static KIND: Kind = Kind {
    name: "postgres",
    backend: "postgres",
    missing,
    start: |order| {
        let fsync = if order.keeps { "fsync=on" } else { "fsync=off" };
        let most = format!("max_connections={}", (order.clients + 20).max(600));
        Arc::new(start_with(&[fsync, &most]))
    },
    cluster: None,
    secure: None,
    address: |ports| format!("postgres://postgres@127.0.0.1:{}/postgres", ports[0]),
    part: |whole, n| Service { prefix: Some(format!("t{n}_")), ..whole },
    client: |part, clock| {
        let config = SqlConfig::postgres(&site::options(part)).expect("valid");
        with_context(Arc::new(config.queues(clock)))
    },
    protocol: || Box::<messages::Postgres>::default(),
    facts: Facts {
        // A waiter that has just entered the queue may not listen yet.
        besides: |_| 1.0,
        ..Facts::USUAL
    },
};

/// The time limit for the server to carry out an order.
const LIMIT: Duration = Duration::from_secs(60);

/// Returns the directory of its programs. Debian keeps one for each version.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let folders = versions.map(|version| version.path().join("bin"));
    folders.filter(|folder| folder.join("initdb").exists()).max()
}

/// Returns the reason if this machine has no PostgreSQL.
pub(crate) fn missing() -> Option<String> {
    programs().is_none().then(|| "PostgreSQL's server is not installed (Debian: postgresql)".to_owned())
}

/// Returns `program` as a command of another user: PostgreSQL refuses to run as root.
pub(crate) fn as_role(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    if rustix::process::geteuid().is_root() {
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    }
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// Returns whether `process` is stopped or has ended.
fn is_stopped(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 'Z', 'X']))
}

fn done(mut command: Command) -> String {
    let output = command.output().expect("starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Creates a directory that the server's user owns.
fn own_folder(parent: &Path, name: &str) -> PathBuf {
    let folder = parent.join(name);
    fs::create_dir(&folder).expect("a new directory");
    fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("sets");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&folder, Some(65_534), Some(65_534)).expect("changes the owner");
    }
    folder
}

/// Returns the data of an unused server, created once in a test process.
fn template() -> &'static Path {
    static TEMPLATE: OnceLock<PathBuf> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let folder = own_folder(&shared_folder("postgres-template"), "data");
        let mut initdb = as_role(&programs().expect("installed").join("initdb"));
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]);
        initdb.args(["--wal-segsize=1", "-D"]).arg(&folder).current_dir("/");
        done(initdb);
        folder
    })
}

pub(crate) struct Postgres {
    server: Server,
}

/// Starts a server without the protection that only a crash of the host needs.
pub(crate) fn start() -> Postgres {
    start_with(&[])
}

/// Starts a server with these additional settings: `name=value`.
pub(crate) fn start_with(settings: &[&str]) -> Postgres {
    let folder = shared_folder("postgres");
    let data = own_folder(&folder, "data");
    let mut copy = as_role(Path::new("cp"));
    copy.arg("-a").arg(template().join(".")).arg(&data).current_dir("/");
    done(copy);
    start_in(folder, settings)
}

/// Starts a server with the data in `folder/data`.
pub(crate) fn start_in(folder: PathBuf, settings: &[&str]) -> Postgres {
    let port = free_port();
    let data = folder.join("data");
    let usual = [
        "fsync=off",
        "max_wal_size=32MB",
        "shared_buffers=16MB",
        "autovacuum=off",
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        "max_connections=200",
        "log_min_messages=warning",
    ];
    let all: Vec<String> = usual.iter().chain(settings).map(|setting| (*setting).to_owned()).collect();
    let program = programs().expect("installed").join("postgres");
    let server = Server::start(folder, port, move || {
        let mut command = as_role(&program);
        command.arg("-D").arg(&data).args(["-p", &port.to_string()]);
        for setting in &all {
            command.args(["-c", setting]);
        }
        command
    });
    let postgres = Postgres { server };
    postgres.await_ready();
    postgres
}

impl Postgres {
    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.port()
    }

    /// Returns the directory of its data.
    pub(crate) fn data(&self) -> PathBuf {
        self.server.folder().join("data")
    }

    /// Returns the address of the default database, for the superuser.
    pub(crate) fn address(&self) -> String {
        self.address_of("postgres")
    }

    /// Returns the address of a database.
    pub(crate) fn address_of(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port())
    }

    fn psql(&self, database: &str, words: &[&str]) -> Command {
        let mut command = Command::new(programs().expect("installed").join("psql"));
        command.env_clear().env("PGCONNECT_TIMEOUT", "10").args(["-XAtq", "-v", "ON_ERROR_STOP=1"]);
        command.args(["-h", "127.0.0.1", "-p", &self.port().to_string(), "-U", "postgres", "-d", database]);
        command.args(words);
        command
    }

    /// Returns the answer of the server to a statement.
    pub(crate) fn sql(&self, statement: &str) -> String {
        done(self.psql("postgres", &["-c", statement])).trim_end().to_owned()
    }

    /// Runs a script in `database`.
    pub(crate) fn script(&self, database: &str, path: &Path) {
        done(self.psql(database, &["-f", path.to_str().expect("UTF-8")]));
    }

    /// Waits until the server accepts a connection.
    pub(crate) fn await_ready(&self) {
        let begun = Instant::now();
        while !self.psql("postgres", &["-c", "SELECT 1"]).output().expect("starts").status.success() {
            assert!(begun.elapsed() < LIMIT, "no answer: {}", self.server.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns its processes. The first is the parent of the others.
    fn processes(&self) -> Vec<Pid> {
        let text = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let first: Option<i32> = text.lines().next().and_then(|line| line.trim().parse().ok());
        let Some(first) = first.and_then(Pid::from_raw) else { return Vec::new() };
        let path = format!("/proc/{0}/task/{0}/children", first.as_raw_nonzero());
        let children = fs::read_to_string(path).unwrap_or_default();
        let children = children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?));
        std::iter::once(first).chain(children).collect()
    }

    /// Starts it again with its data.
    pub(crate) fn up(&self) {
        self.server.up();
        self.await_ready();
    }

    /// Locks the row of the lock `name` for `length`.
    pub(crate) fn occupy(&self, prefix: &str, name: &str, length: Duration) {
        let row = format!("SELECT 'there' FROM {prefix}lock WHERE name = '{name}' FOR UPDATE");
        let answer = self.sql(&format!("BEGIN; {row}; SELECT pg_sleep({}); COMMIT", length.as_secs()));
        assert!(answer.contains("there"), "{name} has a row: {answer}");
    }

    /// Starts a server that follows this one and takes no writes.
    pub(crate) fn standby(&self) -> Postgres {
        let folder = shared_folder("postgres");
        let data = own_folder(&folder, "data");
        let mut copy = as_role(&programs().expect("installed").join("pg_basebackup"));
        copy.args(["-h", "127.0.0.1", "-p", &self.port().to_string(), "-U", "postgres"]);
        copy.args(["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"]);
        copy.arg("-D").arg(&data).current_dir("/");
        done(copy);
        let standby = start_in(folder, &[]);
        assert_eq!(standby.sql("SELECT pg_is_in_recovery()"), "t");
        standby
    }
}

impl Site for Postgres {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn servers(&self) -> &[Server] {
        std::slice::from_ref(&self.server)
    }

    fn freeze(&self) {
        self.server.freeze();
        // The stopped parent starts no more processes.
        let others = self.processes().split_off(1);
        for process in &others {
            // It may have ended just now.
            let _ = kill_process(*process, Signal::STOP);
        }
        // A process that waits for a processor stops only when it gets one.
        let begun = Instant::now();
        while !others.iter().all(|process| is_stopped(*process)) {
            assert!(begun.elapsed() < LIMIT, "the server does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn thaw(&self) {
        for process in self.processes() {
            // It may have ended before.
            let _ = kill_process(process, Signal::CONT);
        }
    }

    /// Sends SIGKILL to all of its processes.
    fn down(&self) {
        if !self.server.is_up() {
            // Another process may have the PID in its directory by now.
            return;
        }
        let processes = self.processes();
        self.server.down();
        let begun = Instant::now();
        for process in processes.iter().skip(1) {
            let path = format!("/proc/{}", process.as_raw_nonzero());
            while Path::new(&path).exists() {
                // They exit by themselves after their parent; this is faster.
                let _ = kill_process(*process, Signal::KILL);
                assert!(begun.elapsed() < LIMIT, "{path} stays");
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }

    /// Releases of the last half second may be undone: they do not wait for the disk.
    fn restart(&self) {
        self.down();
        self.up();
    }

    fn restart_in_order(&self) {
        let processes = self.processes();
        kill_process(processes[0], Signal::INT).expect("is asked to stop");
        let begun = Instant::now();
        while self.data().join("postmaster.pid").exists() {
            assert!(begun.elapsed() < LIMIT, "it does not stop: {}", self.server.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        self.down();
        self.up();
    }

    /// A row that is removed by hand causes no notification.
    fn lose(&self, part: &Service, _: &str, id: &str) {
        let table = claims(part);
        let gone = self.sql(&format!("DELETE FROM {table} WHERE claim = '{id}' RETURNING 'gone'"));
        assert!(gone.starts_with("gone"), "{id} was there");
    }

    /// Also notifies each claim over its own channel.
    fn sever(&self, part: &Service, name: &str, id: &str) {
        self.lose(part, name, id);
        let all = format!("SELECT '{id}' AS claim UNION SELECT claim FROM {}", claims(part));
        self.sql(&format!("SELECT pg_notify('dlock_c_' || claim, '') FROM ({all}) all_claims"));
    }

    /// Counts only connections that are younger than the first call. PostgreSQL's statistics are updated late, so this
    /// reads the log.
    fn requests(&self) -> u64 {
        if self.sql("SHOW log_statement") != "all" {
            self.sql("ALTER SYSTEM SET log_statement = 'all'");
            self.sql("SELECT pg_reload_conf()");
        }
        u64::try_from(self.server.log().matches("LOG:  statement: ").count()).expect("fits")
    }

    fn remains(&self, name: &str) -> Vec<String> {
        let rows = self.sql(&format!("SELECT claim FROM dlock_claim WHERE name = '{name}'"));
        rows.lines().filter(|row| !row.is_empty()).map(str::to_owned).collect()
    }
}

/// Returns the table of the claims in `part`.
fn claims(part: &Service) -> String {
    part.key("dlock_", "claim")
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Stopped processes do not notice the end of their parent.
        self.down();
    }
}
