//! `acquire --detach` on a backend where only a process can hold a lock.

use crate::support::TestEnv;

#[test]
fn a_lease_without_a_process_is_refused_with_the_way_to_hold() {
    let env = TestEnv::new();
    let words = ["--detach", "--name", "x", "--ttl", "4s", "--format", "env"];
    env.finish(&mut env.verb("acquire", words)).failed(64, &["--detach", "--for-pid"]);
    env.assert_free("x");
    env.await_no_process();
}
