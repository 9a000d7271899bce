//! A resolver that does not answer, and hosts that refuse.

use std::fmt::Write as _;
use std::time::Duration;

use crate::support::TestEnv;
use crate::support::bounds::within;

/// The time in seconds after which the system gives up resolving the address of a host.
const SILENCE: u64 = 40;

/// An address for each kind of service.
const ENDPOINTS: [&str; 6] = [
    "http://HOST",
    "redis://HOST",
    "zk://HOST",
    "mysql://root@HOST/locks",
    "postgres://postgres@HOST/locks",
    "memcached://HOST",
];

/// Runs `sh -c SCRIPT` in a network in which no resolver answers.
const SILENT: &str = r#"
import os, socket, subprocess, sys
silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
silent.bind(("127.0.0.1", 53))
sys.exit(subprocess.call(["bash", "-c", sys.argv[1]]))
"#;

#[test]
fn silent_resolver_delays_no_command() {
    let env = TestEnv::new();
    env.write("resolv.conf", &format!("nameserver 127.0.0.1\noptions timeout:{SILENCE} attempts:1\n"));
    let mut asking = String::from("ip link set lo up && mount --bind resolv.conf /etc/resolv.conf || exit\n");
    for endpoint in ENDPOINTS.map(|endpoint| endpoint.replace("HOST", "none.example")) {
        for words in ["status x", "list", "run --wait 1s --name x -- touch started", "doctor"] {
            let (verb, rest) = words.split_once(' ').unwrap_or((words, ""));
            let ask = format!(r#""$dlock" {verb} --endpoint {endpoint} {rest}"#);
            writeln!(asking, r#"({ask} >/dev/null 2>&1; echo "$?") &"#).expect("a longer script");
        }
    }
    asking += "wait";
    let mut command = env.command("unshare");
    command.args(["--mount", "--net", TestEnv::python(), "-c", SILENT, &asking]);
    let ended = env.finish(&mut command).silently(0);
    assert_eq!(ended.text(), "69\n".repeat(ENDPOINTS.len() * 4));
    assert!(ended.took < Duration::from_secs(SILENCE - 10), "{:?}", ended.took);
    assert!(!env.exists("started"));
}

#[test]
fn doctor_answers_at_once_where_every_endpoint_refuses() {
    let env = TestEnv::new();
    for endpoint in ENDPOINTS.map(|endpoint| endpoint.replace("HOST", "127.0.0.1:1")) {
        let ended = env.finish(&mut env.dlock(["doctor", "--endpoint", &endpoint]));
        assert_eq!(ended.code(), Some(69), "{endpoint}: {}", ended.err);
        within(ended.took, Duration::from_secs(1));
    }
}
