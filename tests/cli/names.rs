//! Names: odd ones, and several at once.

use crate::support::Bed;
use crate::support::bed::release_all;
use crate::support::running::finish_all;

#[test]
fn a_path_as_name_is_a_name_and_says_how_to_lock_the_file() {
    let bed = Bed::new();
    let path = bed.path("x.lock").display().to_string();
    let folder = bed.root().display().to_string();
    let ended = bed.finish(&mut bed.run(["--name", &path, "--", "true"]));
    assert_eq!(ended.code(), Some(0));
    ended.said_one_line(&[&path, &format!("--endpoint {folder} --name x.lock")]);
    bed.finish(&mut bed.run(["-q", "--name", &path, "--", "true"])).silently(0);
    // What it says does lock the file.
    let words = ["run", "--endpoint", &folder, "--name", "x.lock", "--", "flock", "-n", &path, "true"];
    bed.finish(&mut bed.dlock(words)).silently(1);
}

#[test]
fn every_odd_name_is_a_lock_of_its_own() {
    let bed = Bed::new();
    let long = "n".repeat(200);
    let wide = "ü".repeat(100);
    let names = [
        "a b",
        "a/b",
        "../up",
        "/no/such/file",
        ".",
        "..",
        ".hidden",
        "-dash",
        "--",
        "*",
        "~",
        "$HOME",
        "a%2Fb",
        "%",
        "a:b",
        "\"quoted\"",
        "'single'",
        "back\\slash",
        "ünïcode",
        "日本語",
        "🔒",
        "a=b",
        "a,b",
        "#x",
        "new{}",
        "|pipe",
        ";semi",
        "&",
        "CON",
        "x.lock",
        "x.line",
        "x.token",
        "x~",
        &long,
        &wide,
    ];
    for name in names {
        let bed = &bed;
        let option = format!("--name={name}");
        let script = "printf %s \"$DLOCK_NAME\"";
        let ended = bed.finish(&mut bed.run([&option, "--", "sh", "-c", script]));
        assert_eq!(ended.silently(0).text(), name);
    }
    // All are held at once: no two share anything.
    let holders: Vec<_> = names.iter().map(|name| bed.held(&["-n", &format!("--name={name}")])).collect();
    let listed = bed.finish(&mut bed.verb("list", ["--json"])).silently(0);
    let listed: serde_json::Value = serde_json::from_slice(&listed.out).expect("JSON");
    let mut seen: Vec<&str> =
        listed["locks"].as_array().expect("locks").iter().filter_map(|l| l["lock"].as_str()).collect();
    seen.sort_unstable();
    let mut expected = names.to_vec();
    expected.sort_unstable();
    assert_eq!(seen, expected);
    release_all(holders);
    let up = bed.root().parent().expect("a parent").join("up");
    assert!(!up.exists() && !bed.path("up").exists(), "a name led out of its directory");
}

#[test]
fn several_names_are_all_or_none() {
    let bed = Bed::new();
    let holder = bed.held(&["--name", "b"]);
    let ended = bed.finish(&mut bed.run(["-n", "--name", "a", "--name", "b", "--", "touch", "started"]));
    ended.failed(75, &["b"]);
    bed.assert_free("a");
    holder.release().silently(0);
    let script = "echo \"$DLOCK_NAME|$DLOCK_TOKEN\"; echo \"$DLOCK_NAMES\"; echo \"$DLOCK_TOKENS\"";
    let names = ["--name", "c", "--name", "a", "--name", "b"];
    let mut command = bed.run(names);
    let ended = bed.finish(command.args(["--", "sh", "-c", script])).silently(0);
    let text = ended.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 7, "{text}");
    assert_eq!(lines[1..4], ["c", "a", "b"]);
    assert_eq!(lines[0], format!("c|{}", lines[4]));
    assert!(!bed.exists("started"));
}

#[test]
fn a_name_given_twice_does_not_wait_for_itself() {
    let bed = Bed::new();
    let ended = bed.finish(&mut bed.run(["-w", "5s", "--name", "a", "--name", "a", "--", "true"]));
    // Either it counts once, or it is an error of usage.
    if ended.code() != Some(0) {
        ended.failed(64, &["a"]);
    }
    bed.assert_free("a");
}

#[test]
fn opposite_orders_of_many_processes_all_finish() {
    let bed = Bed::new();
    let orders = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"], ["a", "c", "b"]];
    let script = r#"[ "$(cat busy 2>/dev/null)" = "" ] || echo overlap >>log; echo $$ >busy; : >busy"#;
    let running: Vec<_> = (0..24)
        .map(|n: usize| {
            let order = orders[n % orders.len()];
            let mut command = bed.run(["-q"]);
            command.args(order.iter().flat_map(|name| ["--name", name]));
            bed.start(command.args(["--", "sh", "-c", script]))
        })
        .collect();
    finish_all(running);
    assert_eq!(bed.read("log"), "");
    for name in ["a", "b", "c"] {
        bed.assert_free(name);
    }
}

#[test]
fn a_killed_holder_of_several_names_frees_them_all() {
    let bed = Bed::new();
    let holder = bed.held(&["--name", "a", "--name", "b"]);
    bed.assert_busy("a");
    bed.assert_busy("b");
    holder.running.signal(rustix::process::Signal::KILL);
    holder.running.finish();
    for name in ["a", "b"] {
        crate::support::wait::until_true("a free lock", || bed.holders(name) == 0);
        bed.assert_free(name);
    }
    bed.await_no_process();
}

#[test]
fn a_great_many_names_are_held_together_or_refused() {
    let bed = Bed::new();
    let names: Vec<String> = (0..300).map(|n| format!("--name=lock-{n}")).collect();
    let ended = bed.finish(bed.run(names).args(["--", "touch", "started"]));
    if ended.code() == Some(0) {
        assert!(bed.exists("started"));
    } else {
        ended.failed(64, &["300"]);
        assert!(!bed.exists("started"));
    }
    bed.await_no_process();
}
