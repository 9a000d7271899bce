//! Many processes at once.

use crate::support::running::{CROWD, finish_all};
use crate::support::{TestEnv, quiet};

#[test]
fn two_hundred_unprotected_updates_at_once_lose_none() {
    let _load = quiet::loading();
    let env = TestEnv::new();
    env.write("counter", "0\n");
    let script = "read n <counter; sleep 0.001; echo $((n + 1)) >counter";
    let running: Vec<_> =
        (0..200).map(|_| env.start(&mut env.run(["-q", "--name", "x", "--", "sh", "-c", script]))).collect();
    for one in running {
        // A service that 200 clients ask at once may be slow, even for a release. dlock reports that on stderr.
        let ended = one.finish_within(CROWD);
        assert_eq!(ended.code(), Some(0), "{}", ended.err);
    }
    assert_eq!(env.read("counter"), "200\n");
    env.assert_free("x");
    env.await_no_process();
}

#[test]
fn fifty_waiters_run_in_order_of_arrival() {
    let _load = quiet::loading();
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let mut waiters = Vec::new();
    for number in 0..50 {
        let script = format!("echo {number} $DLOCK_TOKEN >>order");
        waiters.push(env.start(&mut env.run(["-q", "--name", "x", "--", "sh", "-c", &script])));
        env.await_waiters("x", number + 1);
    }
    let first = holder.token();
    holder.release().silently(0);
    finish_all(waiters);
    let order = env.read("order");
    let lines: Vec<(usize, u64)> = order
        .lines()
        .filter_map(|l| l.split_once(' '))
        .map(|(n, t)| (n.parse().expect("a number"), t.parse().expect("a token")))
        .collect();
    assert!(lines.iter().map(|(n, _)| *n).eq(0..50), "{order}");
    assert!(lines[0].1 > first && lines.windows(2).all(|pair| pair[0].1 < pair[1].1), "{order}");
}
