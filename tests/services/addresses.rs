//! A host with two addresses. The first one is silent.

use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;

use crate::causes::ports::Full;
use crate::servers::proxy::Proxy;
use crate::site;
use crate::support::TestEnv;
use crate::support::wait::until_true;

/// Runs the rest of the command line with the file `hosts` in the place of /etc/hosts.
const WITH_HOSTS: &str = r#"mount --bind hosts /etc/hosts && exec "$@""#;

/// Returns an environment whose host has a silent first address, and the relay at the second address.
fn behind_a_silent_address() -> (TestEnv, Proxy, Full) {
    let site = site::shared();
    let mut part = site.part();
    let server = site.servers()[0].port();
    let silent = Full::new();
    // No other program uses this address, so the port of the first one is free there.
    let second = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 2), silent.port())).expect("the same port");
    let way = Proxy::over(second, server);
    part.endpoint =
        part.endpoint.replace(&format!("127.0.0.1:{server}"), &format!("twice.example:{}", way.port()));
    let env = TestEnv::on(part);
    env.write("hosts", "127.0.0.1 localhost twice.example\n127.0.0.2 twice.example\n");
    (env, way, silent)
}

/// Returns `dlock run` with these words; the file `hosts` decides the addresses.
fn run(env: &TestEnv, words: &[&str]) -> Command {
    let run = env.run(words);
    let mut command = env.command("unshare");
    command.args(["--mount", "bash", "-c", WITH_HOSTS, "bash"]).args(run.get_args().skip(2));
    command
}

#[test]
fn hold_behind_a_silent_address_outlasts_a_broken_connection() {
    let (env, way, _silent) = behind_a_silent_address();
    let script = "echo >up; sleep 12; echo survived";
    let running = env.start(&mut run(&env, &["--name", "x", "--ttl", "6s", "-q", "--", "sh", "-c", script]));
    env.await_line("up");
    let made = way.made();
    way.reset();
    until_true("another connection", || way.made() > made);
    assert_eq!(running.finish().silently(0).text(), "survived\n");
}
