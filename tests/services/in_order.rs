//! The order of arrival for every kind of lock.

use super::ways::One;
use crate::support::TestEnv;
use crate::support::way::Way;

#[test]
fn all_verbs_hold_in_the_order_of_arrival() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let ways = [Way::Elect, Way::Acquire, Way::Run, Way::Forever, Way::Acquire, Way::Elect];
    let mut all = Vec::new();
    for (n, way) in ways.into_iter().enumerate() {
        all.push(One::start(&env, way, &n.to_string(), "9s"));
        env.await_waiters("x", n + 1);
    }
    let mut last = holder.token();
    holder.release().silently(0);
    for one in all {
        let (_, token) = one.turn(&env, 1);
        assert!(token > last, "{token} after {last}");
        last = token;
        one.end(&env);
    }
    let order: Vec<_> = env.read("turns").lines().map(|line| line[..1].to_owned()).collect();
    assert_eq!(order, ["0", "1", "2", "3", "4", "5"]);
    env.await_no_process();
}
