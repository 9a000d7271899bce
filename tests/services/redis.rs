//! One Redis: logins, messages, and other clients of the same locks.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::servers::proxy::{Conduct, Proxy};
use crate::servers::{Server, free_port, redis, shared_folder};
use crate::support::wait::until_true;
use crate::support::{Service, TestEnv, within};

const QUIET: &[&str] = &["--maxmemory-policy", "noeviction"];

fn env_at(endpoint: String) -> TestEnv {
    TestEnv::on(Service { backend: "redis", endpoint, prefix: None })
}

fn env_on(server: &Server) -> TestEnv {
    env_at(redis::address(server))
}

/// Runs `true` under the lock x with these variables.
fn run_with(env: &TestEnv, variables: &[(&str, &Path)]) -> crate::support::Finished {
    let mut command = env.run(["--try", "--name", "x", "--", "true"]);
    env.finish(command.envs(variables.iter().copied()))
}

#[test]
fn users_and_passwords_let_in_and_wrong_ones_do_not() {
    let server = redis::start_with(QUIET);
    let (port, env) = (server.port(), env_on(&server));
    let rights = ["~dlock:*", "~{dlock:*", "+@all", "-@dangerous", "+info"];
    let user = [&["ACL", "SETUSER", "ci", "on", ">right"], &rights[..]].concat();
    assert_eq!(redis::raw(port, &user), "+OK\r\n");
    assert_eq!(redis::raw(port, &["ACL", "SETUSER", "default", "off"]), "+OK\r\n");
    let login = |user: &'static str, password: &'static str| {
        run_with(&env, &[("DLOCK_USER", Path::new(user)), ("DLOCK_PASSWORD", Path::new(password))])
    };
    login("ci", "right").silently(0);
    login("ci", "wr0ng").failed(77, &["password"]).said_one_line(&["redis"]);
    let refused = run_with(&env, &[]).failed(77, &["--password-file"]);
    assert!(!refused.err.contains("right"), "{}", refused.err);
}

#[test]
fn mounted_secrets_are_read_and_doctor_doubts_readable_ones() {
    let server = redis::start_with(&[QUIET, &["--requirepass", "right"]].concat());
    let env = env_on(&server);
    // kubelet mounts a secret like this: mode 0644, behind two links.
    std::fs::create_dir(env.path("..1")).expect("a directory");
    let path = env.write("..1/password", "\u{feff}right\r\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("sets");
    for (target, name) in [("..1", "..data"), ("..data/password", "password")] {
        symlink(target, env.path(name)).expect("a link");
    }
    for (variable, value) in
        [("DLOCK_PASSWORD_FILE", env.path("password")), ("DLOCK_PASSWORD", "right\n".into())]
    {
        run_with(&env, &[(variable, &value)]).silently(0);
    }
    for (mode, is_doubted) in [(0o700, false), (0o755, true)] {
        fs::set_permissions(env.root(), fs::Permissions::from_mode(mode)).expect("sets");
        let mut command = env.verb("doctor", [] as [&str; 0]);
        let told = env.finish(command.env("DLOCK_PASSWORD_FILE", env.path("password"))).silently(0).text();
        assert_eq!(told.contains("other users of this host can read it"), is_doubted, "{mode:o}: {told}");
    }
}

#[test]
fn refused_login_acquires_nothing_as_another_user() {
    let server = redis::start_with(QUIET);
    let env = env_on(&server);
    run_with(&env, &[("DLOCK_PASSWORD", Path::new("needless"))]).failed(77, &["password"]);
    assert_eq!(redis::raw(server.port(), &["DBSIZE"]), ":0\r\n");
}

#[test]
fn databases_are_apart() {
    let server = redis::start_with(QUIET);
    let (zero, three) = (env_on(&server), env_at(format!("{}/3", redis::address(&server))));
    let holder = zero.held(&["--name", "x"]);
    three.assert_free("x");
    zero.assert_busy("x");
    holder.release().silently(0);
    let none = env_at(format!("{}/99", redis::address(&server)));
    run_with(&none, &[]).failed(69, &["no such database"]);
}

#[test]
fn a_socket_of_this_host_leads_to_the_same_locks() {
    let folder = shared_folder("redis");
    let (port, socket) = (free_port(), folder.join("r.sock"));
    let path = socket.to_str().expect("UTF-8").to_owned();
    let server = redis::start_in(folder, port, &["--port", &port.to_string(), "--unixsocket", &path], QUIET);
    let (tcp, unix) = (env_on(&server), env_at(format!("unix:{path}")));
    let holder = unix.held(&["--name", "x"]);
    tcp.assert_busy("x");
    holder.release().silently(0);
    tcp.assert_free("x");
}

fn openssl(folder: &Path, words: &str) {
    let made =
        Command::new("openssl").args(words.split(' ')).current_dir(folder).output().expect("openssl runs");
    assert!(made.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&made.stderr));
}

/// Creates an authority, a server certificate and a client certificate in `folder`.
fn certificates(folder: &Path) {
    fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1,DNS:redis.test").expect("writes");
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(folder, &format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority"));
    for who in ["server", "client"] {
        openssl(folder, &format!("req {key} -keyout {who}.key -out {who}.csr -subj /CN={who}"));
        let sign = "x509 -req -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names";
        openssl(folder, &format!("{sign} -in {who}.csr -out {who}.pem"));
    }
}

#[test]
fn encryption_with_a_private_authority_and_a_client_certificate() {
    let folder = shared_folder("redis");
    certificates(&folder);
    let port = free_port();
    let listen = ["--port", "0", "--tls-port", &port.to_string()];
    let files =
        ["--tls-cert-file", "server.pem", "--tls-key-file", "server.key", "--tls-ca-cert-file", "ca.pem"];
    let server = redis::start_in(folder, port, &[&listen[..], &files[..]].concat(), QUIET);
    let file = |name: &str| server.folder().join(name);
    let (ca, cert, key) = (file("ca.pem"), file("client.pem"), file("client.key"));
    let all = [("DLOCK_CACERT", ca.as_path()), ("DLOCK_CERT", &cert), ("DLOCK_KEY", &key)];
    let env = env_at(format!("rediss://127.0.0.1:{port}"));
    run_with(&env, &all).silently(0);
    let named = [&all[..], &[("DLOCK_TLS_SERVER_NAME", Path::new("redis.test"))]].concat();
    run_with(&env, &named).silently(0);
    let other = [&all[..], &[("DLOCK_TLS_SERVER_NAME", Path::new("other.test"))]].concat();
    run_with(&env, &other).failed(77, &["its certificate is for 127.0.0.1, redis.test, not other.test"]);
    // The server does not admit a client without a certificate. It gives the reason in its last message. The end of the
    // connection may overtake that message.
    let without = run_with(&env, &all[..1]);
    assert!(matches!(without.code(), Some(77 | 69)), "{}", without.err);
    let plain = env_at(format!("redis://127.0.0.1:{port}"));
    run_with(&plain, &all).failed(64, &["rediss://"]);
}

#[test]
fn absent_server_is_an_error_within_the_wait() {
    let env = env_at(format!("redis://127.0.0.1:{}", free_port()));
    run_with(&env, &[]).failed(69, &["127.0.0.1", "refused"]);
    let waited =
        env.finish(&mut env.run(["--wait", "1s", "--name", "x", "--", "true"])).failed(69, &["127.0.0.1"]);
    within(waited.took, Duration::from_secs(3));
}

#[test]
fn accepting_but_silent_server_is_abandoned() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listens");
    let env = env_at(format!("redis://127.0.0.1:{}", listener.local_addr().expect("bound").port()));
    let mut command = env.run(["--try", "--ttl", "6s", "--name", "x", "--", "true"]);
    let tried = env.finish(&mut command).failed(
        69,
        &["accepts connections but does not answer: nothing came in 1.", "is this the right port?"],
    );
    within(tried.took, Duration::from_secs(2));
}

#[test]
fn malformed_replies_are_an_error() {
    use std::io::{Read, Write};
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listens");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            // The client may have closed the connection.
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    run_with(&env_at(format!("redis://127.0.0.1:{port}")), &[])
        .failed(69, &["does not answer as Redis does"]);
}

#[test]
fn removed_hold_ends_the_command_at_once() {
    let server = redis::start_with(QUIET);
    let env = env_on(&server);
    let holder = env.held(&["--name", "x"]);
    assert_eq!(redis::raw(server.port(), &["DEL", "dlock:x"]), ":1\r\n");
    holder.running.finish().failed(76, &["lost x"]);
    env.assert_free("x");
}

#[test]
fn holds_and_waits_outlast_a_broken_connection() {
    let server = redis::start_with(QUIET);
    let proxy = Proxy::to(server.port());
    let env = env_at(format!("redis://127.0.0.1:{}", proxy.port()));
    let holder = env.held(&["--name", "x"]);
    let mut waiter = env.hold(&["--name", "x", "-q"]);
    env.await_waiters("x", 1);
    proxy.set(Conduct::Refuse);
    proxy.set(Conduct::Pass);
    env_on(&server).await_waiters("x", 1);
    assert_eq!(holder.release().code(), Some(0));
    waiter.await_start();
    waiter.release();
}

#[test]
fn evicting_server_is_warned_of_during_the_command() {
    let server = redis::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let env = env_on(&server);
    // Without `-v` dlock prints no warning. Otherwise every run of cron would send the same mail.
    let silent = env.held(&["--name", "y"]);
    let holder = env.held(&["-v", "--name", "x"]);
    until_true("a warning", || holder.running.err_so_far().contains("noeviction"));
    assert_eq!(holder.release().code(), Some(0));
    silent.release().silently(0);
    let looked = env.finish(&mut env.verb("doctor", [] as [&str; 0]));
    assert!(looked.text().contains("allkeys-lru"), "{}", looked.text());
}

/// The script of `redis-py`, `redsync` and similar clients.
const RELEASE: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

#[test]
fn clients_of_the_plain_key_keep_dlock_out_and_are_kept_out() {
    let server = redis::start_with(QUIET);
    let port = server.port();
    let env = TestEnv::on(Service {
        backend: "redis",
        endpoint: redis::address(&server),
        prefix: Some(String::new()),
    });
    for mode in ["-x", "-s", "--slots=2"] {
        let holder = env.held(&["--name", "x", mode]);
        assert_eq!(redis::raw(port, &["SET", "x", "token", "NX", "PX", "60000"]), "$-1\r\n", "{mode}");
        holder.release().silently(0);
        // With a time to live and without one.
        for life in [&["PX", "60000"][..], &[]] {
            assert_eq!(redis::raw(port, &[&["SET", "x", "token", "NX"], life].concat()), "+OK\r\n");
            let busy = env.finish(&mut env.run(["--try", "--name", "x", mode, "--", "true"]));
            assert_eq!(busy.code(), Some(75), "{mode}");
            assert_eq!(env.status("x")["holders"][0]["foreign"], true);
            let mut waiter = env.hold(&["--name", "x", "-q", mode]);
            env.await_waiters("x", 1);
            assert_eq!(redis::raw(port, &["EVAL", RELEASE, "1", "x", "token"]), ":1\r\n");
            waiter.await_start();
            waiter.release().silently(0);
        }
    }
}

#[test]
fn expired_foreign_hold_is_noticed_without_polling() {
    let server = redis::start_with(QUIET);
    let env = TestEnv::on(Service {
        backend: "redis",
        endpoint: redis::address(&server),
        prefix: Some(String::new()),
    });
    redis::raw(server.port(), &["SET", "x", "token", "NX", "PX", "2500"]);
    let mut waiter = env.hold(&["--name", "x", "-q"]);
    env.await_waiters("x", 1);
    waiter.await_start();
    waiter.release().silently(0);
    let stats = redis::raw(server.port(), &["INFO", "commandstats"]);
    let scripts = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:calls=")).expect("counted");
    let calls: u32 = scripts["cmdstat_evalsha:calls=".len()..]
        .split(',')
        .next()
        .expect("a number")
        .parse()
        .expect("a number");
    // Entering, polling, polling at the expiry, leaving, and the queries of the test itself.
    assert!(calls < 60, "{scripts}");
}

#[test]
fn examination_keeps_a_holders_notifications() {
    let server = redis::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let env = env_on(&server);
    let before = env.held(&["--name", "x", "-q"]);
    let mut holder = env.hold(&["-v", "--name", "x", "--ttl", "60s"]);
    env.await_waiters("x", 1);
    before.release();
    holder.await_start();
    until_true("a warning", || holder.running.err_so_far().contains("allkeys-lru"));
    let begun = std::time::Instant::now();
    assert_eq!(redis::raw(server.port(), &["DEL", "dlock:x"]), ":1\r\n");
    assert_eq!(holder.running.finish().code(), Some(76));
    // Long before the next renewal.
    within(begun.elapsed(), Duration::from_secs(5));
}

#[test]
fn risky_settings_are_warned_of_once_during_a_long_command() {
    let server = redis::start_with(&[QUIET, &["--appendonly", "no"]].concat());
    let env = env_on(&server);
    run_with(&env, &[]).silently(0);
    let holder = env.held(&["-v", "--name", "x"]);
    until_true("the warning", || holder.running.err_so_far().contains("appendonly yes"));
    let ended = holder.release();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    assert_eq!(ended.err.matches("appendonly yes").count(), 1, "{}", ended.err);
}

#[test]
fn a_hold_lost_on_one_name_frees_the_others_only_when_it_leaves() {
    use dlock::backend::redis::{RedisConfig, open};
    use dlock::backend::{Backend as _, Options};
    use dlock::clock;
    use dlock::lock::{ClaimId, ClaimState, Holder, Mode, Request};
    let server = redis::start_with(QUIET);
    let options = Options { endpoints: vec![redis::address(&server)], ..Options::default() };
    let backend = open(RedisConfig::parse(&options).expect("valid"));
    let names = ["x", "y"].map(|name| name.parse().expect("valid"));
    let request = Request {
        names: names.to_vec(),
        id: ClaimId::from_bytes([7; 16]),
        mode: Mode::Exclusive,
        ttl: Duration::from_secs(600),
        holder: Holder::default(),
        ancestors: Vec::new(),
        supersede: false,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let soon = || clock::now() + Duration::from_secs(30);
        let claim = backend.enter(&request, soon()).await.expect("enters");
        let state = claim.changed(None).await.expect("answers");
        assert!(matches!(state, ClaimState::Held(_)), "{state:?}");
        assert_eq!(redis::raw(server.port(), &["DEL", "dlock:x"]), ":1\r\n");
        let state = claim.changed(Some(&state)).await.expect("answers");
        assert!(matches!(state, ClaimState::Lost(_)), "{state:?}");
        // Its command may still run.
        assert_eq!(backend.inspect(&names[1], soon()).await.expect("inspects").holders.len(), 1);
        claim.leave(false, soon()).await.expect("leaves");
        assert!(backend.inspect(&names[1], soon()).await.expect("inspects").is_empty());
    });
}

#[test]
fn binary_foreign_value_is_a_foreign_hold() {
    let server = redis::start_with(QUIET);
    let env = env_on(&server);
    let set = r"return redis.call('SET', KEYS[1], '\255\254\128abc')";
    assert_eq!(redis::raw(server.port(), &["EVAL", set, "1", "dlock:x"]), "+OK\r\n");
    run_with(&env, &[]).failed(75, &["key dlock:x"]);
    let mut waiter = env.hold(&["--name", "x", "-q"]);
    env.await_waiters("x", 1);
    assert_eq!(env.status("x")["holders"][0]["foreign"], true);
    assert_eq!(redis::raw(server.port(), &["DEL", "dlock:x"]), ":1\r\n");
    waiter.await_start();
    waiter.release().silently(0);
}
