//! Passwords and certificates that are exchanged while a command runs. dlock reconnects before the files are right, and
//! after.

use std::any::Any;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::Duration;

use super::scene::Kind;
use super::secure::{self, admit, file, serve};
use crate::servers::etcd::Etcd;
use crate::servers::proxy::Proxy;
use crate::servers::{mariadb, postgres, redis, shared_folder};
use crate::support::wait::{let_pass, until_true};
use crate::support::{Service, TestEnv};

/// Longer than dlock takes to see that a renewal fails.
const TTL: Duration = Duration::from_secs(9);

/// The services with one server. Redlock connects as Redis does.
const KINDS: [Kind; 6] = [Kind::Etcd, Kind::Redis, Kind::Zk, Kind::Mysql, Kind::Postgres, Kind::Memcached];

/// The sign that dlock used the wrong file.
#[derive(Clone, Copy)]
enum Seen {
    /// A renewal fails.
    Refused,
    /// None is reported. The client library may keep what it has read, or may have connected before dlock read the files
    /// again. The pause between its attempts doubles, so the files are put right soon.
    Perhaps,
}

/// A service behind a relay, and its user's environment.
struct Guarded {
    env: TestEnv,
    relay: Proxy,
}

impl Guarded {
    /// The files that `variables` name are in the home directory of the user.
    fn at(kind: Kind, endpoint: &str, variables: &[(&'static str, &str)]) -> Self {
        let (before, port) = endpoint.split_once("127.0.0.1:").expect("an address");
        let digits = port.find(|c: char| !c.is_ascii_digit()).unwrap_or(port.len());
        let relay = Proxy::to(port[..digits].parse().expect("a port"));
        let endpoint = format!("{before}127.0.0.1:{}{}", relay.port(), &port[digits..]);
        let env = TestEnv::on(Service { backend: kind.backend(), endpoint, prefix: None });
        let path = |name: &str| env.path(name).display().to_string();
        let named = |(name, value): &(&'static str, &str)| {
            (*name, value.strip_prefix("~/").map_or_else(|| (*value).to_owned(), path))
        };
        let variables = variables.iter().map(named).collect();
        Self { env: env.with_variables(variables), relay }
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.env.write(name, text);
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("sets");
    }

    /// Expects that a running command survives. `first` exchanges one file. After the sign in `seen`, `then` exchanges
    /// the rest.
    fn outlives(&self, what: &str, seen: Seen, first: impl FnOnce(), then: impl FnOnce()) {
        eprintln!("{what}");
        let options = ["--name", "x", "-v", "--ttl", &format!("{}s", TTL.as_secs())];
        let holder = self.env.held(&options);
        first();
        self.relay.reset();
        match seen {
            Seen::Refused => {
                until_true("a renewal that fails", || holder.running.err_so_far().contains("cannot renew"));
            }
            Seen::Perhaps => let_pass(Duration::from_secs(1)),
        }
        then();
        self.relay.reset();
        let_pass(TTL);
        let ended = holder.release();
        assert_eq!(ended.code(), Some(0), "{what}: {}", ended.err);
        assert!(!ended.err.contains("secret"), "{what}: {}", ended.err);
        self.env.assert_free("x");
    }
}

fn copy(guarded: &Guarded, from: &str, to: &str) {
    guarded.write(to, &fs::read_to_string(file(from)).expect("made"));
}

#[test]
fn certificates_are_read_again_before_a_hold_is_given_up() {
    let files = [("DLOCK_CACERT", "~/ca"), ("DLOCK_CERT", "~/cert"), ("DLOCK_KEY", "~/key")];
    for kind in KINDS {
        let (scene, name) = (serve(kind, "server", true), kind.name());
        let seen = if matches!(kind, Kind::Etcd | Kind::Zk) { Seen::Perhaps } else { Seen::Refused };
        let guarded = Guarded::at(kind, &scene.endpoint, &files);
        let all_right = || {
            for (from, to) in [("ca.pem", "ca"), ("client.pem", "cert"), ("client.key", "key")] {
                copy(&guarded, from, to);
            }
        };
        all_right();
        guarded.outlives(
            &format!("{name}: another authority"),
            seen,
            || copy(&guarded, "other.pem", "ca"),
            all_right,
        );
        guarded.outlives(
            &format!("{name}: half of a pair"),
            seen,
            || copy(&guarded, "server.key", "key"),
            all_right,
        );
    }
}

/// The channel reconnects by itself with the files that dlock has read. A server that did not restart lets it resume an
/// encrypted session, and a resumed session checks no certificate.
#[test]
fn etcds_channel_is_replaced_where_the_authority_became_another() {
    let shown = shared_folder("etcd-shown").join("server.pem");
    let show = |name: &str| assert!(fs::copy(file(name), &shown).is_ok());
    show("server.pem");
    let server = secure::etcd(shown.to_str().expect("UTF-8"), &file("server.key"), None);
    let at = format!("https://127.0.0.1:{}", server.port());
    let guarded = Guarded::at(Kind::Etcd, &at, &[("DLOCK_CACERT", "~/ca")]);
    copy(&guarded, "ca.pem", "ca");
    let another = || {
        show("by-other.pem");
        server.restart();
    };
    guarded.outlives("etcd", Seen::Refused, another, || copy(&guarded, "other.pem", "ca"));
}

/// A service that admits `ci` with the password `old-secret`, and a call that changes the password to `new-secret`.
type Login = (String, Box<dyn Any>, Box<dyn Fn()>);

fn etcd() -> Login {
    let etcd = std::rc::Rc::new(Etcd::start());
    for words in [&["user", "add", "root:old-secret"][..], &["auth", "enable"]] {
        etcd.ask(words);
    }
    let told = std::rc::Rc::clone(&etcd);
    let tell = move || {
        let words = ["--user", "root:old-secret", "user", "passwd", "root", "--interactive=false"];
        let mut told = told.ctl(&words).stdin(Stdio::piped()).spawn().expect("etcdctl");
        told.stdin.take().expect("piped").write_all(b"new-secret\n").expect("told");
        assert!(told.wait().expect("etcdctl").success());
    };
    (etcd.endpoint(), Box::new(etcd), Box::new(tell))
}

fn login(kind: Kind) -> Login {
    match kind {
        Kind::Etcd => etcd(),
        Kind::Redis => {
            let server = redis::start_with(&["--appendonly", "no"]);
            let port = server.port();
            redis::raw(port, &["ACL", "SETUSER", "root", "on", ">old-secret", "~*", "&*", "+@all"]);
            let tell =
                move || drop(redis::raw(port, &["ACL", "SETUSER", "root", "resetpass", ">new-secret"]));
            (redis::address(&server), Box::new(server), Box::new(tell))
        }
        Kind::Mysql => {
            let server = std::rc::Rc::new(mariadb::start());
            let of = |server: &_, word: &str, password: &str| {
                mariadb::ask(server, &format!("{word} USER ci@'%' IDENTIFIED BY '{password}'"));
            };
            of(&server, "CREATE", "old-secret");
            mariadb::ask(&server, "GRANT ALL ON locks.* TO ci@'%'");
            let at = format!("mysql://ci@127.0.0.1:{}/locks?ssl-mode=preferred", server.port());
            let told = std::rc::Rc::clone(&server);
            (at, Box::new(server), Box::new(move || of(&told, "ALTER", "new-secret")))
        }
        Kind::Postgres => {
            let server = std::rc::Rc::new(postgres::start());
            server.sql("CREATE ROLE ci LOGIN SUPERUSER PASSWORD 'old-secret'");
            admit(&server, "host all ci 127.0.0.1/32 scram-sha-256");
            let at = format!("postgres://ci@127.0.0.1:{}/postgres", server.port());
            let told = std::rc::Rc::clone(&server);
            let tell = move || drop(told.sql("ALTER ROLE ci PASSWORD 'new-secret'"));
            (at, Box::new(server), Box::new(tell))
        }
        _ => unreachable!("no file of its own, or no such login"),
    }
}

/// Each service uses the password file of its own clients, if they have one. memcached reads one as Redis does.
#[test]
fn a_password_is_read_again_before_a_hold_is_given_up() {
    for kind in [Kind::Etcd, Kind::Redis, Kind::Mysql, Kind::Postgres] {
        let (endpoint, _server, tell) = login(kind);
        let by_file = [("DLOCK_USER", "root"), ("DLOCK_PASSWORD_FILE", "~/password")];
        let (variables, file, form): (&[_], _, fn(&str) -> String) = match kind {
            Kind::Mysql => (&[], ".my.cnf", |password| format!("[client]\npassword={password}\n")),
            Kind::Postgres => (&[], ".pgpass", |password| format!("*:*:*:ci:{password}\n")),
            _ => (&by_file, "password", |password| format!("{password}\n")),
        };
        let guarded = Guarded::at(kind, &endpoint, variables);
        let password = |text: &str| guarded.write(file, &form(text));
        let name = kind.name();
        password("old-secret");
        guarded.outlives(&format!("{name}: a new password"), Seen::Refused, tell, || password("new-secret"));
        if kind == Kind::Etcd {
            continue;
        }
        let empty = || guarded.write(file, "");
        guarded.outlives(&format!("{name}: an empty file"), Seen::Refused, empty, || password("new-secret"));
        let gone = || fs::remove_file(guarded.env.path(file)).expect("removes");
        guarded.outlives(&format!("{name}: no file"), Seen::Refused, gone, || password("new-secret"));
    }
}

/// The password can be read once and is kept.
#[test]
fn a_password_out_of_a_pipe_is_read_once() {
    let server = redis::start_with(&["--appendonly", "no"]);
    redis::raw(server.port(), &["ACL", "SETUSER", "root", "on", ">secret", "~*", "&*", "+@all"]);
    let env = TestEnv::on(Service { backend: "redis", endpoint: redis::address(&server), prefix: None });
    let script =
        r#""$dlock" run --endpoint "$locks" --user root --password-file <(echo secret) --name x -- true"#;
    env.finish(&mut env.bash(script)).silently(0);
}
