//! `dlock break` on the hold of another process.

use rustix::process::Signal;

use super::acquire::{pair, script};
use crate::support::scene::Scene;
use crate::support::way::Way;
use crate::support::{TestEnv, process};

#[test]
fn broken_holder_ends_its_tree_first_and_shows_the_requester() {
    let scene = Scene::of(TestEnv::new(), Way::Run, &["--grace", "300ms"], &["-q"]);
    let claim = scene.env.status("x")["holders"][0]["claim"].as_str().expect("a claim").to_owned();
    let breaking = scene.env.finish(&mut scene.env.verb("break", ["x", "--claim", &claim, "--yes"]));
    assert_eq!(breaking.code(), Some(0), "{}", breaking.err);
    scene.conclude().failed(76, &["x", "broke"]);
}

#[test]
fn without_a_terminal_to_ask_on_breaking_wants_yes() {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "x"]);
    let asked = env.finish(&mut env.verb("break", ["x", "--claim", holder.claim()]));
    asked.failed(64, &["--yes"]);
    assert_eq!(env.holders("x"), 1);
    holder.release().silently(0);
}

#[test]
fn script_under_termination_may_release_first() {
    // The grace is longer than a release takes. If dlock waited for the release to end, the test would wait until
    // SIGKILL.
    let text = "eval \"$(dlock acquire --name x --for-pid $$ --grace 10s)\" || exit; \
                trap 'kill $!; dlock release; echo $? >status; exit 5' TERM; sleep 1000 & echo up >up; wait";
    for broken in [true, false] {
        let env = TestEnv::new();
        let running = env.start(&mut script(&env, text));
        env.await_line("up");
        if broken {
            env.finish(&mut env.verb("break", ["x", "--yes"])).silently(0);
        } else {
            // systemd and init send SIGTERM to every process that is left.
            let (front, keeper) = pair(&env);
            for process in [front, keeper] {
                process::signal(process.pid, Signal::TERM);
            }
        }
        assert_eq!((running.finish().code(), env.read("status").as_str()), (Some(5), "0\n"), "{broken}");
        env.assert_free("x");
        env.await_no_process();
    }
}
