//! A lock for one subshell of several.

use crate::acquire::script;
use crate::support::TestEnv;
use crate::support::wait::until_true;

#[test]
fn sibling_subshells_of_a_holder_are_outside_its_tree() {
    let env = TestEnv::new();
    let (gate, own_gate) = (env.gate("gate"), env.gate("own.gate"));
    // dlock tells the ages of subshells apart only by clock ticks.
    let text = "( me=$BASHPID; eval \"$(dlock acquire --name x --for-pid $me --grace 0)\" || exit; echo up >up; read _ <own.gate ) & \
                until [ -s up ]; do sleep 0.05; done; sleep 0.05; ( echo up >beside; read _ <gate; echo over >over ) & wait";
    let running = env.start(&mut script(&env, text));
    env.await_line("beside");
    own_gate.open();
    until_true("a free lock", || env.holders("x") == 0);
    gate.open();
    assert_eq!(env.await_line("over"), "over");
    assert_eq!(running.finish().code(), Some(0));
    env.await_no_process();
}
