//! Waits that would never end, by each subcommand that takes a lock.

use std::time::{Duration, Instant};

use crate::support::way::Way;
use crate::support::{TestEnv, within};

/// Returns a script that waits for the lock `name` by the subcommand of `way`, and logs `who` under it.
fn waits_for(way: Way, name: &str, who: &str) -> String {
    let options = format!(r#"--endpoint "$locks" --name {name}"#);
    match way {
        Way::Acquire => format!(
            r#"claim=$("$dlock" acquire {options} --for-pid $$) || exit; eval "$claim"; echo {who} >>log"#
        ),
        Way::Run => format!(r#""$dlock" run {options} -- sh -c 'echo {who} >>log'"#),
        Way::Elect | Way::Forever => format!(r#""$dlock" elect {options} -- sh -c 'echo {who} >>log'"#),
    }
}

#[test]
fn cycle_of_three_is_shown_to_the_last_with_all_holders() {
    for ways in [[Way::Run, Way::Acquire, Way::Elect], [Way::Elect, Way::Run, Way::Acquire]] {
        let env = TestEnv::new();
        let mut running = Vec::new();
        for (way, (own, other)) in
            ways.into_iter().zip([("deploy", "build"), ("build", "test"), ("test", "deploy")])
        {
            let gate = env.gate(&format!("{own}.gate"));
            let script = format!("echo up >{own}.up; read _ <{own}.gate; {}", waits_for(way, other, own));
            let one = env.start(&mut way.command(&env, &["--name", own], &["bash", "-c", &script]));
            env.await_line(&format!("{own}.up"));
            running.push((one, gate, other));
        }
        let (last, last_gate, _) = running.pop().expect("three");
        for (_, gate, other) in &running {
            gate.open();
            env.await_waiters(other, 1);
        }
        let begun = Instant::now();
        last_gate.open();
        let refused = last.finish();
        within(begun.elapsed(), Duration::from_secs(1));
        assert_eq!(refused.code(), Some(75), "{}", refused.err);
        let line = refused.err.lines().last().unwrap_or_default();
        for word in ["deploy", "build", "test"] {
            assert!(line.contains(word), "{line}");
        }
        for (one, _, _) in running.into_iter().rev() {
            assert_eq!(one.finish().code(), Some(0));
        }
        assert_eq!(env.read("log"), "build\ndeploy\n");
        env.await_no_process();
    }
}
