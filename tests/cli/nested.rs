//! Runs inside runs, and waits that would never end.

use crate::support::Bed;
use crate::support::wait::until_true;

const RUN: &str = r#""$dlock" run --endpoint "$locks""#;

/// Runs a script under the lock x, with RUN standing for a dlock in it.
#[track_caller]
fn under_x(bed: &Bed, options: &[&str], script: &str) -> crate::support::Finished {
    let script = script.replace("RUN", RUN);
    let mut command = bed.run(["--name", "x"]);
    bed.finish(command.args(options).args(["--", "bash", "-c", &script]))
}

#[test]
fn a_nested_run_shares_the_hold_and_its_token() {
    let bed = Bed::new();
    let script =
        r#"a=$DLOCK_TOKEN; b=$(RUN --name x -- sh -c 'echo $DLOCK_TOKEN'); [ "$a" = "$b" ] && exit 8"#;
    under_x(&bed, &[], script).silently(8);
    let script = r#"RUN -n --name x -- bash -c 'RUN -n --name x -- sh -c "exit 9"'"#;
    under_x(&bed, &[], script).silently(9);
    bed.assert_free("x");
}

#[test]
fn a_weaker_mode_nests_under_a_stronger_one() {
    let bed = Bed::new();
    under_x(&bed, &[], "RUN -n -s --name x -- sh -c 'exit 9'").silently(9);
    under_x(&bed, &["-s"], "RUN -n -s --name x -- sh -c 'exit 9'").silently(9);
}

#[test]
fn a_background_nested_run_keeps_the_hold_beyond_its_parent() {
    let bed = Bed::new();
    let gate = bed.gate("gate");
    let script = "RUN --name x -- sh -c 'echo up >ready; read _ <gate' >/dev/null 2>&1 & \
                  until [ -s ready ]; do sleep 0.01; done; exit 4";
    let script = script.replace("RUN", RUN);
    let mut outer = bed.start(&mut bed.run(["--name", "x", "--", "bash", "-c", &script]));
    bed.await_line("ready");
    let keeper = outer.keeper();
    until_true("the end of the outer command", || {
        crate::support::process::children(keeper).iter().all(|p| p.name == "dlock")
    });
    bed.assert_busy("x");
    assert!(!outer.has_ended());
    gate.open();
    outer.finish().silently(4);
    bed.assert_free("x");
}

#[test]
fn a_killed_nested_run_does_not_keep_the_hold() {
    let bed = Bed::new();
    let script = "RUN --name x -- sh -c 'echo up >ready; exec sleep 1000' & \
                  until [ -s ready ]; do sleep 0.01; done; { kill -9 $!; wait; } 2>/dev/null; exit 4";
    under_x(&bed, &[], script).silently(4);
    bed.assert_free("x");
}

#[test]
fn a_nested_runs_own_names_are_its_own() {
    let bed = Bed::new();
    let script =
        r#"RUN -n --name x --name y -- sh -c 'echo "$DLOCK_NAMES"; echo "$DLOCK_TOKENS"'; echo $DLOCK_TOKEN"#;
    let ended = under_x(&bed, &[], script).silently(0);
    let text = ended.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), &lines[..2]), (5, &["x", "y"][..]), "{text}");
    assert_eq!(lines[2], lines[4], "x has the outer token");
    bed.assert_free("x");
    bed.assert_free("y");
}

#[test]
fn exclusive_under_an_own_shared_hold_is_refused_at_once() {
    let bed = Bed::new();
    let ended = under_x(&bed, &["-s"], "RUN --name x -- touch started");
    ended.failed(75, &["shared", "x"]);
    assert!(!bed.exists("started"));
    bed.assert_free("x");
}

#[test]
fn an_ordinary_second_claim_under_the_own_hold_is_a_deadlock() {
    let bed = Bed::new();
    let ended = under_x(&bed, &[], "RUN --no-nest --name x -- touch started");
    assert_eq!((ended.code(), ended.text().as_str()), (Some(75), ""), "{}", ended.err);
    assert!(
        ended.err.lines().last().is_some_and(|l| l.starts_with("dlock: ") && l.contains('x')),
        "{}",
        ended.err
    );
    assert!(!bed.exists("started"));
    bed.assert_free("x");
    // Shared claims do not wait for each other.
    under_x(&bed, &["-s"], "RUN --no-nest -s --name x -- true").silently(0);
}

#[test]
fn of_two_that_close_a_circle_the_later_is_told() {
    let bed = Bed::new();
    let step = |own: &str, other: &str| {
        let gate = bed.gate(&format!("{own}.gate"));
        let script = format!(
            "echo up >{own}.up; read _ <{own}.gate; {RUN} --name {other} -- sh -c 'echo {own} >>log'"
        );
        let running = bed.start(&mut bed.run(["--name", own, "--", "bash", "-c", &script]));
        bed.await_line(&format!("{own}.up"));
        (running, gate)
    };
    let (first, first_gate) = step("a", "b");
    let (second, second_gate) = step("b", "a");
    first_gate.open();
    bed.await_waiters("b", 1);
    second_gate.open();
    let refused = second.finish();
    assert_eq!(refused.code(), Some(75), "{}", refused.err);
    let last = refused.err.lines().last().unwrap_or_default().to_owned();
    assert!(last.starts_with("dlock: ") && last.contains('a') && last.contains('b'), "{last}");
    assert_eq!(first.finish().code(), Some(0));
    assert_eq!(bed.read("log"), "a\n");
}

#[test]
fn a_circle_of_three_is_told_to_the_last_with_all_its_holders() {
    let bed = Bed::new();
    let mut running = Vec::new();
    for (own, other) in [("deploy", "build"), ("build", "test"), ("test", "deploy")] {
        let gate = bed.gate(&format!("{own}.gate"));
        let script = format!(
            "echo up >{own}.up; read _ <{own}.gate; {RUN} --name {other} -- sh -c 'echo {own} >>log'"
        );
        let one = bed.start(&mut bed.run(["--name", own, "--", "bash", "-c", &script]));
        bed.await_line(&format!("{own}.up"));
        running.push((one, gate, other));
    }
    let (last, last_gate, _) = running.pop().expect("three");
    for (_, gate, other) in &running {
        gate.open();
        bed.await_waiters(other, 1);
    }
    last_gate.open();
    let refused = last.finish();
    assert_eq!(refused.code(), Some(75), "{}", refused.err);
    let line = refused.err.lines().last().unwrap_or_default().to_owned();
    for word in ["deploy", "build", "test"] {
        assert!(line.contains(word), "{line}");
    }
    for (one, _, _) in running.into_iter().rev() {
        assert_eq!(one.finish().code(), Some(0));
    }
    assert_eq!(bed.read("log"), "build\ndeploy\n");
}

#[test]
fn a_nested_wait_without_a_circle_is_no_deadlock() {
    let bed = Bed::new();
    let holder = bed.held(&["--name", "y"]);
    let script = format!("{RUN} -q --name y -- sh -c 'exit 6'");
    let outer = bed.start(&mut bed.run(["--name", "x", "--", "bash", "-c", &script]));
    bed.await_waiters("y", 1);
    holder.release().silently(0);
    outer.finish().silently(6);
}

#[test]
fn hand_me_down_variables_of_a_hold_that_is_over_give_nothing() {
    let bed = Bed::new();
    let ended = bed.finish(&mut bed.run(["--name", "x", "--", "sh", "-c", "printf %s \"$DLOCK_HELD\""]));
    let held = ended.silently(0).text();
    let holder = bed.held(&["--name", "x"]);
    let mut command = bed.run(["-n", "--name", "x", "--", "touch", "started"]);
    bed.finish(command.env("DLOCK_HELD", held)).failed(75, &["held by"]);
    assert!(!bed.exists("started"));
    holder.release().silently(0);
}

#[test]
fn a_daemon_of_an_ended_run_asks_for_an_ordinary_claim() {
    let bed = Bed::new();
    let gate = bed.gate("gate");
    let script = format!(
        "setsid bash -c 'read _ <gate; {RUN} -n --name x -- touch started; echo $? >code' >/dev/null 2>&1 &"
    );
    bed.finish(&mut bed.run(["--name", "x", "--", "bash", "-c", &script])).silently(0);
    let holder = bed.held(&["--name", "x"]);
    gate.open();
    assert_eq!(bed.await_line("code"), "75");
    assert!(!bed.exists("started"));
    holder.release().silently(0);
}
