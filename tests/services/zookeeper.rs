//! ZooKeeper only: logins, servers that are down, silent or of another protocol, and sessions that end.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::servers::zookeeper::{self, Setup};
use crate::servers::{Server, free_port};
use crate::support::{Finished, TestEnv, until, within};

/// Returns whether ZooKeeper is missing, and prints the reason.
pub(crate) fn absent() -> bool {
    let Some(reason) = zookeeper::missing() else { return false };
    let required = std::env::var("DLOCK_TEST_REQUIRE").unwrap_or_default();
    assert!(required.split(',').all(|name| name.trim() != "zk"), "zk: {reason}");
    eprintln!("skipped: zk: {reason}");
    true
}

/// Returns `dlock VERB --endpoint ENDPOINT OPTIONS`.
fn dlock(env: &TestEnv, verb: &str, endpoint: &str, options: &[&str]) -> Command {
    let mut command = env.dlock([verb, "--backend", "zk", "--endpoint", endpoint]);
    command.args(options);
    command
}

fn run(env: &TestEnv, endpoint: &str, options: &[&str]) -> Finished {
    let mut command = dlock(env, "run", endpoint, &["--name", "x"]);
    env.finish(command.args(options).args(["--", "true"]))
}

fn local(port: u16) -> String {
    format!("zk://127.0.0.1:{port}")
}

/// Returns a chroot of its own for this test at the shared server.
fn own_corner(name: &str) -> String {
    format!("{}/{name}", zookeeper::endpoint())
}

#[test]
fn lock_belongs_to_its_creating_user() {
    if absent() {
        return;
    }
    let env = TestEnv::new();
    let at = own_corner("users");
    let as_user = |user: &str, password: &str| {
        let mut command = dlock(&env, "run", &at, &["--name", "x", "--user", user]);
        env.finish(command.env("DLOCK_PASSWORD", password).args(["--", "true"]))
    };
    as_user("ann", "right-secret").silently(0);
    as_user("ann", "right-secret").silently(0);
    for refused in [as_user("ann", "wrong-secret"), as_user("bob", "right-secret")] {
        refused.failed(77, &["does not let this user"]);
    }
    run(&env, &at, &[]).failed(77, &["does not let this user", "--user"]);
    // Another user cannot create a chroot below hers either.
    let below = format!("{at}/below");
    run(&env, &below, &[]).failed(77, &["does not let this user", "--user"]);
}

#[test]
fn one_of_two_servers_is_enough() {
    if absent() {
        return;
    }
    let env = TestEnv::new();
    let (dead, live) = (free_port(), zookeeper::shared_port());
    for list in
        [format!("127.0.0.1:{dead},127.0.0.1:{live}/two"), format!("127.0.0.1:{live},127.0.0.1:{dead}/two")]
    {
        run(&env, &list, &["--wait", "5s"]).silently(0);
    }
}

#[test]
fn a_silent_server_beside_a_healthy_one_costs_no_seconds() {
    if absent() {
        return;
    }
    let env = TestEnv::new();
    let live = zookeeper::shared_port();
    let list = format!("127.0.0.1:{},127.0.0.1:{live},localhost:{live}/silent", crate::hostile::mute());
    // The client picks the first server at random.
    for _ in 0..7 {
        let ended = run(&env, &list, &["--wait", "10s"]).silently(0);
        within(ended.took, Duration::from_secs(2));
    }
}

#[test]
fn isolated_server_of_an_ensemble_is_named_as_such() {
    if absent() {
        return;
    }
    let (clients, env) = (free_port(), TestEnv::new());
    let ports: Vec<u16> = (0..6).map(|_| free_port()).collect();
    let members = (0..3).map(|n| format!("server.{}=127.0.0.1:{}:{}", n + 1, ports[n], ports[3 + n]));
    let lines = ["initLimit=10".to_owned(), "syncLimit=4".to_owned()].into_iter().chain(members).collect();
    let _alone = zookeeper::start_on(clients, &Setup { id: Some(1), lines, ..Setup::default() });
    let ended = run(&env, &local(clients), &["--wait", "2s"]);
    assert_eq!(ended.code(), Some(69), "{}", ended.err);
    assert!(ended.err.contains("serves no clients") && !ended.err.contains("TLS"), "{}", ended.err);
}

/// Runs against a port that does not answer. Expects that dlock gives up in time and prints the address.
fn gives_up(port: u16, words: &[&str]) {
    let env = TestEnv::new();
    let begun = Instant::now();
    let address = format!("127.0.0.1:{port}");
    let finished = run(&env, &local(port), &["--wait", "1500ms"]);
    let took = begun.elapsed();
    within(took, Duration::from_millis(2500));
    finished.failed(69, &[&[address.as_str()], words].concat());
}

#[test]
fn unreachable_server_is_an_error_with_its_address() {
    gives_up(free_port(), &["refused"]);
}

#[test]
fn silent_server_is_abandoned() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, free_port())).expect("listens");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming().map_while(Result::ok) {
            open.push(stream);
        }
    });
    gives_up(port, &["does not answer in time"]);
    let ended = run(&TestEnv::new(), &local(port), &["--wait", "3s"]);
    assert_eq!(ended.code(), Some(69), "{}", ended.err);
    assert!(ended.err.contains("accepts connections but does not answer: nothing came in"), "{}", ended.err);
}

#[test]
fn server_with_malformed_replies_is_abandoned() {
    for nonsense in
        [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[0, 0, 0, 4, 1, 2, 3, 4], &[0; 64], &[0xff; 64]]
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, free_port())).expect("listens");
        let port = listener.local_addr().expect("bound").port();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut buffer = [0; 1024];
                // The client may have closed the connection.
                let _ = stream.read(&mut buffer);
                let _ = stream.write_all(nonsense);
            }
        });
        gives_up(port, &["accepts connections but does not answer", "is this the right port?"]);
    }
}

#[test]
fn name_without_a_valid_path_is_refused() {
    if absent() {
        return;
    }
    let env = TestEnv::new();
    let mut command =
        dlock(&env, "run", &own_corner("raw"), &["--prefix", "", "--name", "a//b", "--", "true"]);
    env.finish(&mut command).failed(64, &["empty part"]);
    let mut command = dlock(&env, "run", &own_corner("raw"), &["--name", "a//🦀", "--", "true"]);
    env.finish(&mut command).silently(0);
}

#[test]
fn session_ended_elsewhere_ends_the_command() {
    if absent() {
        return;
    }
    let env = TestEnv::new();
    let gate = env.gate("gate");
    let script = "echo up >up; read _ <gate";
    let mut command =
        dlock(&env, "run", &zookeeper::endpoint(), &["--name", "lost", "--", "sh", "-c", script]);
    let running = env.start(&mut command);
    env.await_line("up");
    zookeeper::lose("lost");
    // The delay depends on when the server answers the owner again, after the fight for its connections.
    running.finish().failed(76, &["lost"]);
    drop(gate);
}

#[test]
fn a_restart_changes_nothing_for_holder_and_waiter() {
    if absent() {
        return;
    }
    let server = zookeeper::start();
    let (env, at) = (TestEnv::new(), local(server.port()));
    let gate = env.gate("gate");
    let script = "echo up >up; read _ <gate";
    let mut holder = dlock(&env, "run", &at, &["--quiet", "--name", "x", "--", "sh", "-c", script]);
    let holder = env.start(&mut holder);
    env.await_line("up");
    let mut waiter = dlock(&env, "run", &at, &["--quiet", "--name", "x", "--", "true"]);
    let waiter = env.start(&mut waiter);
    await_waiters(&env, &at, 1);
    server.restart();
    await_waiters(&env, &at, 1);
    gate.open();
    holder.finish().silently(0);
    waiter.finish().silently(0);
}

#[track_caller]
fn await_waiters(env: &TestEnv, at: &str, count: usize) {
    until(&format!("{count} waiters"), || {
        let finished = env.finish(&mut dlock(env, "status", at, &["--json", "x"]));
        let line: serde_json::Value = serde_json::from_str(&finished.text()).ok()?;
        (line["waiters"].as_array().map(Vec::len) == Some(count)).then_some(())
    });
}

#[test]
fn a_recent_success_is_enough() {
    if absent() {
        return;
    }
    let (env, at) = (TestEnv::new(), own_corner("once"));
    let once = |name: &str, command: &str| {
        let options = ["--name", name, "--once-per", "1h", "--", "sh", "-c", command];
        env.finish(&mut dlock(&env, "run", &at, &options))
    };
    assert_eq!(once("a", "exit 3").code(), Some(3), "a failure is not enough");
    once("a", "echo 1 >>runs").silently(0);
    once("a", "echo 2 >>runs").silently(0);
    once("b", "echo 3 >>runs").silently(0);
    assert_eq!(env.read("runs"), "1\n3\n");
}

#[test]
fn doctor_names_the_server_and_its_limits() {
    if absent() {
        return;
    }
    let env = TestEnv::new();
    let finished = env.finish(&mut dlock(&env, "doctor", &own_corner("doctor"), &[]));
    assert_eq!(finished.code(), Some(0));
    let text = finished.text();
    for word in ["ZooKeeper 3.", "a single server", "sessions are limited to 1s to 7200s", "without --user"] {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
}

fn openssl(folder: &Path, arguments: &str) {
    let status = Command::new("openssl")
        .args(arguments.split(' '))
        .current_dir(folder)
        .stdin(std::process::Stdio::null())
        .output()
        .expect("openssl is there");
    assert!(status.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&status.stderr));
}

/// Creates an authority, a server certificate and a client certificate, as PEM files.
fn certificates(folder: &Path, authority: &str) {
    let new = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(
        folder,
        &format!(
            "req -x509 {new} -keyout {authority}.key -out {authority}.pem -days 2 -subj /CN={authority}"
        ),
    );
    std::fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1,DNS:localhost\n").expect("writes");
    for who in ["server", "client"] {
        let file = format!("{authority}-{who}");
        openssl(folder, &format!("req {new} -keyout {file}.key -out {file}.csr -subj /CN={who}"));
        openssl(
            folder,
            &format!(
                "x509 -req -in {file}.csr -CA {authority}.pem -CAkey {authority}.key -CAcreateserial -days 2 \
                 -extfile names -out {file}.pem"
            ),
        );
        let both = ["key", "pem"].map(|end| std::fs::read_to_string(folder.join(format!("{file}.{end}"))));
        let both: String = both.into_iter().map(|text| text.expect("made")).collect();
        std::fs::write(folder.join(format!("{file}-both.pem")), both).expect("writes");
    }
}

/// Starts a server that admits only clients with a certificate of its authority.
fn secure(folder: &Path) -> Server {
    let file = |name: &str| folder.join(name).display().to_string();
    zookeeper::start_with(&Setup {
        lines: vec![
            format!("ssl.keyStore.location={}", file("own-server-both.pem")),
            "ssl.keyStore.type=PEM".to_owned(),
            format!("ssl.trustStore.location={}", file("own.pem")),
            "ssl.trustStore.type=PEM".to_owned(),
        ],
        properties: vec![
            "-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned(),
        ],
        secure: true,
        ..Setup::default()
    })
}

#[test]
fn tls_admits_clients_with_a_certificate_of_the_authority() {
    if absent() {
        return;
    }
    let env = TestEnv::new();
    let folder = env.root().to_owned();
    certificates(&folder, "own");
    certificates(&folder, "other");
    let server = secure(&folder);
    let at = format!("zk://localhost:{}", server.port());
    let with = |authority: &str, client: Option<&str>| {
        let path = |name: String| folder.join(name).display().to_string();
        let mut options = vec![
            "--wait".to_owned(),
            "12s".to_owned(),
            "--cacert".to_owned(),
            path(format!("{authority}.pem")),
        ];
        if let Some(client) = client {
            options.extend(["--cert".to_owned(), path(format!("{client}-client.pem"))]);
            options.extend(["--key".to_owned(), path(format!("{client}-client.key"))]);
        }
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        run(&env, &at, &options)
    };
    // dlock may report that the server, which has just started, has not answered yet.
    let let_in = with("own", Some("own"));
    assert_eq!(let_in.code(), Some(0), "{}", let_in.err);
    // Before dlock gives up it has reported that no server has answered.
    let refused = |authority: &str, client: Option<&str>, words: &[&str]| {
        let ended = with(authority, client);
        let last = ended.err.lines().last().unwrap_or_default();
        assert!(matches!(ended.code(), Some(77 | 69)), "{}", ended.err);
        assert!(words.iter().all(|word| last.contains(word)), "no {words:?} in: {last}");
    };
    with("other", Some("own")).failed(77, &["signed by an unknown authority", "--cacert"]);
    // The server gives the reason in its last message. The end of the connection may overtake that message.
    refused("own", None, &["certificate", "--cert"]);
    refused("own", Some("other"), &["certificate", "--cert"]);
    run(&env, &at, &["--wait", "1500ms"]).failed(69, &["does it want TLS?"]);
}

/// Starts three servers that form an ensemble.
fn ensemble() -> (Vec<Server>, String) {
    let ports: Vec<u16> = (0..9).map(|_| free_port()).collect();
    let members = (0..3).map(|n| format!("server.{}=127.0.0.1:{}:{}", n + 1, ports[3 + n], ports[6 + n]));
    let mut lines = vec!["initLimit=20".to_owned(), "syncLimit=4".to_owned()];
    lines.extend(members);
    let servers: Vec<Server> = (1..4)
        .map(|id| {
            let setup = Setup { id: Some(id), lines: lines.clone(), ..Setup::default() };
            zookeeper::start_on(ports[usize::try_from(id).expect("small") - 1], &setup)
        })
        .collect();
    for server in &servers {
        zookeeper::await_service(server.port());
    }
    let list: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    (servers, format!("zk://{}", list.join(",")))
}

#[test]
fn rolling_restart_of_an_ensemble_changes_nothing() {
    if absent() {
        return;
    }
    let (servers, at) = ensemble();
    let env = TestEnv::new();
    let finished = env.finish(&mut dlock(&env, "doctor", &at, &[]));
    let text = finished.text();
    assert!(!text.contains("a single server") && text.contains("four ticks"), "{text}");
    let gate = env.gate("gate");
    let script = "echo up >up; read _ <gate";
    let lock = ["--quiet", "--ttl", "20s", "--name", "x", "--"];
    let mut holder = dlock(&env, "run", &at, &lock);
    let holder = env.start(holder.args(["sh", "-c", script]));
    env.await_line("up");
    let mut waiter = dlock(&env, "run", &at, &lock);
    let waiter = env.start(waiter.arg("true"));
    await_waiters(&env, &at, 1);
    // One of them is the leader.
    for server in &servers {
        server.restart();
        for server in &servers {
            zookeeper::await_service(server.port());
        }
        await_waiters(&env, &at, 1);
    }
    gate.open();
    holder.finish().silently(0);
    waiter.finish().silently(0);
}
