//! MariaDB servers.

mod messages;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dlock::backend::context::with_context;
use dlock::backend::sql::SqlConfig;

use super::process::{Server, dying_with_us, free_port, lacking, shared_folder};
use super::site::{self, Facts, Kind, Site, number};
use crate::support::Service;

pub(crate) static KIND: Kind = Kind {
    name: "mysql",
    backend: "mysql",
    missing,
    start: |order| {
        let most = format!("--max-connections={}", (order.clients + 100).max(500));
        Arc::new(Mysql(start_with(&[&most])))
    },
    cluster: None,
    secure: None,
    address: |ports| address(ports[0]),
    part: |whole, n| Service { prefix: Some(format!("t{n}_")), ..whole },
    client: |part, clock| {
        let config = SqlConfig::mysql(&site::options(part)).expect("valid");
        with_context(Arc::new(config.queues(clock)))
    },
    protocol: || Box::<messages::Mysql>::default(),
    facts: Facts {
        // Holders poll twice a second.
        news_within: |_| Duration::from_millis(500),
        tells_waiters: false,
        // A waiter that has just entered the queue may not sleep yet. A waiter far back sleeps twice.
        besides: |_| 6.0,
        // Statements: a release, and the end of a sleep.
        hand_over: 18.0,
        ..Facts::USUAL
    },
};

/// The database that every server has.
pub(crate) const DATABASE: &str = "locks";

/// A server as a [`Site`].
pub(crate) struct Mysql(pub(crate) Server);

impl Site for Mysql {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn servers(&self) -> &[Server] {
        std::slice::from_ref(&self.0)
    }

    fn restart(&self) {
        self.0.down();
        // A socket without a server would be taken for the server.
        let _ = fs::remove_file(socket(&self.0));
        self.0.up();
        ready(&self.0);
    }

    /// Also closes the connection that carries the claim.
    fn lose(&self, part: &Service, _: &str, id: &str) {
        let (prefix, table) = (part.key("dlock_", ""), part.key("dlock_", "claim"));
        let delete = format!("DELETE FROM {DATABASE}.{table} WHERE claim = '{id}'; SELECT ROW_COUNT()");
        assert_ne!(ask(&self.0, &delete).trim(), "0", "{id} was in line");
        // The end of the connection wakes the waiters behind the claim. The name of the lock contains a hash of the
        // tables.
        let tables = format!("SELECT LEFT(SHA2(CONCAT('{DATABASE}', CHAR(0), '{prefix}'), 256), 12)");
        let presence = format!("dlock.{}.l.{id}", ask(&self.0, &tables).trim());
        let carrier = ask(&self.0, &format!("SELECT COALESCE(IS_USED_LOCK('{presence}'), 0)"));
        // A renewal may have noticed the loss first and closed the connection.
        let _ = try_ask(&self.0, &format!("KILL {}", carrier.trim()));
    }

    /// Returns the number of statements. One request takes several.
    fn requests(&self) -> u64 {
        let status =
            "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'QUESTIONS'";
        number(&ask(&self.0, status))
    }

    fn remains(&self, name: &str) -> Vec<String> {
        let rows = ask(&self.0, &format!("SELECT claim FROM {DATABASE}.dlock_claim WHERE name = '{name}'"));
        rows.lines().map(str::to_owned).collect()
    }
}

/// Returns the reason if this machine has no MariaDB.
pub(crate) fn missing() -> Option<String> {
    lacking(&["mariadbd", "mariadb-install-db", "mariadb"], "mariadb-server")
}

/// Starts a server with one database. `root` needs no password.
pub(crate) fn start() -> Server {
    start_with(&[])
}

/// Starts a server with these additional options.
pub(crate) fn start_with(options: &[&str]) -> Server {
    let folder = shared_folder("mariadb");
    install(&folder);
    let port = free_port();
    let options: Vec<String> = options.iter().map(|word| (*word).to_owned()).collect();
    let place = |option: &str, name: &str| format!("--{option}={}", folder.join(name).display());
    let temporary = folder.clone();
    let places = [place("datadir", "data"), place("socket", "sock"), place("pid-file", "pid")];
    let server = Server::start(folder, port, move || {
        let mut command = dying_with_us("mariadbd");
        // A starting server takes another server's temporary files for leftovers and removes them.
        command.env("TMPDIR", &temporary);
        command.args(common()).args(&places);
        command.args([format!("--port={port}"), "--bind-address=127.0.0.1".to_owned()]);
        command.args(["--skip-name-resolve", "--performance-schema=OFF"]);
        command.args(["--innodb-buffer-pool-size=16M", "--innodb-log-file-size=4M"]);
        command.args(["--key-buffer-size=1M", "--aria-pagecache-buffer-size=8M", "--max-connections=500"]);
        command.args(&options);
        command
    });
    // A node of a cluster answers before it accepts changes.
    until_it_does(&server, &format!("CREATE DATABASE IF NOT EXISTS {DATABASE}"));
    server
}

/// Options that ignore the settings of this machine. mariadbd runs as root only if it is named.
fn common() -> Vec<&'static str> {
    let mut words = vec!["--no-defaults"];
    if rustix::process::getuid().is_root() {
        words.push("--user=root");
    }
    words
}

/// Creates the tables that the server itself needs.
fn install(folder: &Path) {
    let mut command = Command::new("mariadb-install-db");
    command.env("TMPDIR", folder);
    command.args(common()).arg(format!("--datadir={}", folder.join("data").display()));
    command.args(["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]);
    command.args(["--innodb-log-file-size=4M", "--innodb-buffer-pool-size=16M"]);
    let made = command.stdin(Stdio::null()).output().expect("mariadb-install-db runs");
    assert!(made.status.success(), "mariadb-install-db: {}", String::from_utf8_lossy(&made.stderr));
}

/// Returns the address of the database of the server, or relay, at `port` for `root`.
pub(crate) fn address(port: u16) -> String {
    format!("mysql://root@127.0.0.1:{port}/{DATABASE}")
}

/// Returns the path of the server's socket.
pub(crate) fn socket(server: &Server) -> PathBuf {
    server.folder().join("sock")
}

/// Returns the server's own client, with the rights of `root`.
pub(crate) fn client(server: &Server) -> Command {
    let mut command = Command::new("mariadb");
    command.args(["--no-defaults", "--user=root", "--batch", "--raw", "--skip-column-names"]);
    command.arg(format!("--socket={}", socket(server).display()));
    command
}

/// Returns the answer of the server to `statements`: one row on each line, columns separated by tabs.
#[track_caller]
pub(crate) fn ask(server: &Server, statements: &str) -> String {
    match try_ask(server, statements) {
        Ok(answer) => answer,
        Err(error) => panic!("{statements}: {error}"),
    }
}

/// Does the same as [`ask`], but returns the error of the server.
pub(crate) fn try_ask(server: &Server, statements: &str) -> Result<String, String> {
    let output = client(server).args(["--execute", statements]).output().expect("mariadb runs");
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Locks the row of the lock `name` for `length`.
pub(crate) fn occupy(server: &Server, prefix: &str, name: &str, length: Duration) {
    let row = format!("SELECT 1 FROM {DATABASE}.{prefix}lock WHERE name = '{name}' FOR UPDATE");
    let answer =
        ask(server, &format!("START TRANSACTION; {row}; SELECT SLEEP({}); COMMIT", length.as_secs()));
    assert!(answer.starts_with("1\n"), "{name} has a row: {answer}");
}

/// Waits until the server answers. It listens before it has replayed its log.
pub(crate) fn ready(server: &Server) {
    until_it_does(server, "SELECT 1");
}

fn until_it_does(server: &Server, statement: &str) {
    let begun = Instant::now();
    while let Err(error) = try_ask(server, statement) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{error}: {}", server.log());
        std::thread::sleep(Duration::from_millis(10));
    }
}
