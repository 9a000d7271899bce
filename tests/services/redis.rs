//! One Redis: passwords, warnings, and other clients of the same locks.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Duration;

use crate::redis_many::{env_at, env_on};
use crate::servers::{free_port, redis, shared_folder};
use crate::site::{looked, run_with};
use crate::support::wait::until_true;
use crate::support::within;

const QUIET: &[&str] = &["--maxmemory-policy", "noeviction"];

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

#[test]
fn risky_settings_are_warned_of_once_during_the_command() {
    let risky = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru", "--appendonly", "no"];
    let server = redis::start_with(&risky);
    let env = env_on(&server);
    // Without `-v` dlock prints no warning. Otherwise every run of cron would send the same mail.
    let silent = env.held(&["--name", "y"]);
    let holder = env.held(&["-v", "--name", "x"]);
    let settings = ["noeviction", "appendonly yes"];
    let is_told = || settings.iter().all(|setting| holder.running.err_so_far().contains(setting));
    until_true("the warnings", is_told);
    let ended = holder.release();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    assert_eq!(ended.err.matches("appendonly yes").count(), 1, "{}", ended.err);
    silent.release().silently(0);
    assert!(looked(&env).contains("allkeys-lru"));
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
