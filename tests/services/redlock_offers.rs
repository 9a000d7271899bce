//! The features of a Redlock, and its refusals.

use crate::servers::{free_port, redis};
use crate::site;
use crate::support::{Service, TestEnv};

/// Returns the shared nodes, with a database of their own for this test.
fn env() -> TestEnv {
    let (nodes, n) = site::shared_nodes();
    env_at(nodes.iter().map(|node| format!("{}/{n}", redis::address(node))))
}

fn env_at(addresses: impl Iterator<Item = String>) -> TestEnv {
    let endpoint = addresses.collect::<Vec<_>>().join(",");
    TestEnv::on(Service { backend: "redis", endpoint, prefix: None })
}

#[test]
fn unsupported_options_are_refused_before_any_request() {
    let gone = (0..3).map(|_| format!("redis://127.0.0.1:{}", free_port()));
    let env = env_at(gone);
    for (options, why) in [
        (&["--shared"][..], "has no shared locks"),
        (&["--supersede"], "keeps no queue"),
        (&["--replace"], "keeps no queue"),
        (&["--name", "y"], "cannot acquire several locks in one step"),
    ] {
        let ended = env.finish(env.run(["--name", "x"]).args(options).args(["--", "true"]));
        ended.failed(64, &[why]);
    }
    let detached = env.finish(&mut env.verb("acquire", ["--detach", "--name", "x", "--format", "env"]));
    detached.failed(64, &["--for-pid"]);
}

#[test]
fn status_and_list_show_holders_and_no_waiters() {
    let env = env();
    let holders = [(); 2].map(|()| env.held(&["--name", "a", "--slots", "2", "--label", "both"]));
    let alone = env.held(&["--name", "b"]);
    let waiter = env.hold(&["--name", "b", "-q"]);
    env.await_waiters("b", 1);
    let status = env.status("b");
    assert_eq!(status["waiters"].as_array().map(Vec::len), Some(0), "{status}");
    let holder = &status["holders"][0];
    assert_eq!(
        (&holder["claim"], &holder["token"]),
        (&alone.claim().into(), &alone.token().to_string().into())
    );
    assert!(holder["since"].is_string() && holder["pid"] == alone.running.pid(), "{status}");
    let status = env.status("a");
    let slots: Vec<_> =
        (0..2).map(|n| (&status["holders"][n]["slot"], &status["holders"][n]["label"])).collect();
    assert_eq!(slots, [(&1.into(), &"both".into()), (&2.into(), &"both".into())]);
    let listed = env.finish(&mut env.verb("list", ["--json"])).silently(0).text();
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    let names: Vec<_> = listed["locks"].as_array().expect("locks").iter().map(|lock| &lock["lock"]).collect();
    assert!(names.contains(&&"a".into()) && names.contains(&&"b".into()), "{listed}");
    alone.release().silently(0);
    assert_eq!(waiter.release().code(), Some(0));
    for holder in holders {
        holder.release().silently(0);
    }
}

#[test]
fn hold_broken_or_removed_by_force_states_the_reason() {
    let env = env();
    for (mode, force) in [("-x", false), ("--slots=2", false), ("-x", true), ("--slots=2", true)] {
        let holder = env.held(&["--name", "x", mode]);
        let words = [&["x", "--yes"][..], if force { &["--force"] } else { &[] }].concat();
        let broken = env.finish(&mut env.verb("break", words));
        assert_eq!(broken.code(), Some(0), "{}", broken.err);
        holder.running.finish().failed(76, &["x"]);
        env.assert_free("x");
    }
}

#[test]
fn a_run_inside_another_one_shares_its_hold() {
    let env = env();
    let inner = r#"[ "$("$dlock" run --endpoint "$locks" --name x "$0" -- sh -c 'echo $DLOCK_TOKEN')" = "$DLOCK_TOKEN" ]"#;
    for mode in ["--exclusive", "--slots=1"] {
        env.finish(&mut env.run(["-q", "--name", "x", mode, "--", "sh", "-c", inner, mode])).silently(0);
    }
}

#[test]
fn wait_for_the_own_outer_hold_is_refused() {
    let env = env();
    let inner = r#""$dlock" run --endpoint "$locks" --no-nest --name x "$0" -- true"#;
    for mode in ["--exclusive", "--slots=1"] {
        let outer = env.finish(&mut env.run(["-q", "--name", "x", mode, "--", "sh", "-c", inner, mode]));
        assert_eq!(outer.code(), Some(75), "{mode}: {}", outer.err);
    }
}
