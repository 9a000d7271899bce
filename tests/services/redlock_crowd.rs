//! Forty claims on a Redlock at the same moment.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::servers::redis;
use crate::site;
use crate::support::chance::rounds;
use crate::support::running::CROWD;
use crate::support::{Service, TestEnv};

const CROWD_SIZE: usize = 40;
/// The number of rounds; `DLOCK_TEST_ROUNDS` overrides it.
const ROUNDS: usize = 2;
const TTL: Duration = Duration::from_secs(3);

/// Expects that all of them hold, that no two hold one slot at once, and that no round takes ten leases. On each slot,
/// each holder must have a greater token than the one before.
fn forty(mode: &[&str]) {
    let (nodes, n) = site::shared_nodes();
    let endpoint =
        nodes.iter().map(|node| format!("{}/{n}", redis::address(node))).collect::<Vec<_>>().join(",");
    let env = TestEnv::on(Service { backend: "redis", endpoint, prefix: None });
    let script = r#"slot=${DLOCK_SLOT:-0}; mkdir "$0.$slot" || echo "$DLOCK_CLAIM" >>overlap
        echo "$slot $DLOCK_TOKEN" >>"$0.log"; rmdir "$0.$slot""#;
    let mut longest = Duration::ZERO;
    for round in 0..rounds(ROUNDS) {
        let name = format!("x{round}");
        let words =
            [&["-q", "--ttl", "3s", "--name", &name], mode, &["--", "sh", "-c", script, &name]].concat();
        let begun = Instant::now();
        let all: Vec<_> = (0..CROWD_SIZE).map(|_| env.start(&mut env.run(&words))).collect();
        for one in all {
            let ended = one.finish_within(CROWD);
            assert_eq!(ended.code(), Some(0), "in round {round}: {}", ended.err);
        }
        longest = longest.max(begun.elapsed());
        assert!(!env.exists("overlap"), "two at once in round {round}");
        let mut last = BTreeMap::new();
        for line in env.read(&format!("{name}.log")).lines() {
            let (slot, token) = line.split_once(' ').expect("two words");
            let token: u64 = token.parse().expect("a token");
            let before = last.insert(slot.to_owned(), token).unwrap_or(0);
            assert!(token > before, "{token} after {before} on slot {slot} in round {round}");
        }
    }
    eprintln!("{mode:?}: the longest round took {longest:?}");
    assert!(longest < TTL * 10, "{longest:?}");
}

#[test]
fn forty_exclusive_ones_all_run() {
    forty(&["-x"]);
}

#[test]
fn forty_for_three_slots_all_run() {
    forty(&["--slots", "3"]);
}
