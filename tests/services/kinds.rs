//! Kinds of locks that do not mix, started within the same milliseconds, and many claims at once.

use std::collections::BTreeSet;

use crate::support::TestEnv;
use crate::support::chance::rounds;
use crate::support::running::CROWD;

/// Logs when two commands run at once.
const ALONE: &str = r#"mkdir "$0" || echo "$DLOCK_CLAIM" >>overlap; sleep 0.03; rmdir "$0""#;

/// The number of rounds; `DLOCK_TEST_ROUNDS` overrides it.
const PAIRS: usize = 4;
const CROWDS: usize = 1;

fn pairs(kinds: [&[&str]; 2]) {
    let env = TestEnv::new();
    for round in 0..rounds(PAIRS) {
        let name = format!("x{round}");
        let [one, other] = kinds.map(|kind| {
            let words = [&["-q", "--name", &name], kind, &["--", "sh", "-c", ALONE, &name]].concat();
            env.start(&mut env.run(words))
        });
        let codes = [one, other].map(|one| one.finish().code());
        for code in codes {
            assert!([Some(0), Some(64)].contains(&code), "{codes:?} in round {round} of {kinds:?}");
        }
        assert!(codes.contains(&Some(0)), "no command ran in round {round} of {kinds:?}");
        assert!(!env.exists("overlap"), "two at once in round {round} of {kinds:?}");
    }
}

#[test]
fn exclusive_beside_slots() {
    pairs([&["-x"], &["--slots", "2"]]);
}

#[test]
fn slots_beside_other_counts() {
    pairs([&["--slots", "1"], &["--slots", "3"]]);
}

/// Every run gets one of the slots, if there are any, and a token that no other run on that slot has.
#[test]
fn forty_at_the_same_moment_all_run() {
    let script = r#"slot=${DLOCK_SLOT:-0}; mkdir "$0.$slot" || echo "$DLOCK_CLAIM" >>overlap
        echo "$slot $DLOCK_TOKEN" >>"$0.log"; rmdir "$0.$slot""#;
    let env = TestEnv::new();
    for (mode, slots) in [("--exclusive", &["0 "][..]), ("--slots=3", &["1 ", "2 ", "3 "])] {
        for round in 0..rounds(CROWDS) {
            let name = format!("x{mode}{round}");
            let options = ["-q", mode, "--wait", "60s", "--name", &name];
            let words = [&options[..], &["--", "sh", "-c", script, &name]].concat();
            let all: Vec<_> = (0..40).map(|_| env.start(&mut env.run(&words))).collect();
            for one in all {
                let ended = one.finish_within(CROWD);
                assert_eq!(ended.code(), Some(0), "{mode} in round {round}: {}", ended.err);
            }
            assert!(!env.exists("overlap"), "two on one slot in round {round}");
            let log = env.read(&format!("{name}.log"));
            let slots_and_tokens: BTreeSet<&str> = log.lines().collect();
            assert_eq!(slots_and_tokens.len(), 40, "{mode} in round {round}: {log}");
            let is_a_slot = |line: &str| slots.iter().any(|slot| line.starts_with(slot));
            assert!(log.lines().all(is_a_slot), "{mode} in round {round}: {log}");
        }
    }
}
