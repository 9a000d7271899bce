//! Programs that run the jobs of a pipeline, and their ways to cancel jobs.

use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::page::{RecipeEnv, ends_within, field, signal_group};
use crate::servers::redis;
use crate::support::process;
use crate::support::scripts::Tree;
use crate::support::{Running, until};

/// The shell of a step that does not name one.
const USUAL_SHELL: &str = "bash -e {0}";
/// A GitHub runner finds the remaining processes of a step by this variable.
const TRACKING: &str = "RUNNER_TRACKING_ID";

/// Starts a step: the script in a file, whose name replaces `{0}`.
fn start_step(place: &RecipeEnv, shell: &str, script: &str) -> Running {
    let file = place.env.write("step.sh", script).display().to_string();
    let mut words = shell.split_ascii_whitespace().map(|word| word.replace("{0}", &file));
    let mut command = place.command(words.next().expect("a shell"));
    place.env.start(command.args(words).env(TRACKING, place.env.root()))
}

/// Cancels it: SIGINT to the first process, 7.5 s, SIGTERM to it, 2.5 s, SIGKILL to all. Returns the signal after which
/// it had ended.
fn cancel_step(place: &RecipeEnv, step: &mut Running) -> Option<Signal> {
    step.signal(Signal::INT);
    if ends_within(step, Duration::from_millis(7_500)) {
        return Some(Signal::INT);
    }
    step.signal(Signal::TERM);
    let after = ends_within(step, Duration::from_millis(2_500)).then_some(Signal::TERM);
    for process in RecipeEnv::with(TRACKING, &place.env.root().display().to_string()) {
        process::signal(process.pid, Signal::KILL);
    }
    after
}

/// Returns the lines below `run: |`.
fn script_of(recipe: &str) -> String {
    let (_, script) = recipe.split_once("run: |\n").expect("a script");
    script.lines().map(str::trim_start).collect::<Vec<_>>().join("\n")
}

#[test]
fn cancelled_step_with_dlock_as_shell_has_its_five_seconds() {
    let place = RecipeEnv::new();
    let recipe = place.recipe("github");
    let (shell, script) = (field(&recipe, "shell:"), script_of(&recipe));
    let build = place.gated("build");
    // The tree ignores every signal to stop, and some of it is in other sessions.
    let (tree, words) = Tree::words(&place.env, "tree");
    place.runs("deploy", &words);
    let mut step = start_step(&place, shell, &script);
    place.await_up("build", 1);
    place.env.assert_busy("deploy");
    build.open();
    tree.await_grown(&place.env);
    assert_eq!(cancel_step(&place, &mut step), Some(Signal::INT));
    assert!(tree.members().is_empty());
    place.assert_over("deploy");
}

#[test]
fn cancelled_step_with_exec_dlock_ends_at_once() {
    let place = RecipeEnv::new();
    let recipe = place.recipe("github-exec");
    place.endless("deploy");
    let mut step = start_step(&place, USUAL_SHELL, field(&recipe, "run:"));
    place.await_up("deploy", 1);
    assert_eq!(cancel_step(&place, &mut step), Some(Signal::INT));
    place.assert_over("deploy");
}

#[test]
fn a_cancelled_job_of_gitlab_ends_with_its_process_group() {
    for signal in [Signal::TERM, Signal::KILL] {
        let place = RecipeEnv::new();
        let recipe = place.recipe("gitlab");
        let (_, script) = recipe.split_once("script:\n").expect("a script");
        let lines: Vec<&str> = script.lines().map(|line| line.trim_start_matches([' ', '-'])).collect();
        let file = place.env.write("job.sh", &format!("set -eo pipefail\n{}\necho done\n", lines.join("\n")));
        place.endless("deploy");
        let job = place.env.start(place.command("bash").arg(file));
        place.await_up("deploy", 1);
        signal_group(&job, signal);
        assert_eq!(job.finish().signal(), Some(signal.as_raw()));
        place.assert_over("deploy");
    }
}

#[test]
fn aborted_jenkins_build_ends_by_its_environment_variable() {
    const COOKIE: &str = "JENKINS_SERVER_COOKIE";
    let place = RecipeEnv::new();
    let recipe = place.recipe("jenkins");
    let script = field(&recipe, "sh ").trim_matches('\'');
    let file = place.env.write("script.sh", script);
    let cookie = place.env.root().display().to_string();
    place.endless("deploy");
    let job = place.env.start(place.command("sh").arg("-e").arg(file).env(COOKIE, &cookie));
    place.await_up("deploy", 1);
    for process in RecipeEnv::with(COOKIE, &cookie) {
        process::signal(process.pid, Signal::TERM);
    }
    job.finish();
    place.assert_over("deploy");
}

#[test]
fn stopped_container_ends_within_its_grace_period() {
    const ALONE: [&str; 4] = ["--pid", "--fork", "--mount-proc", "--kill-child"];
    let place = RecipeEnv::new();
    let probe = place.env.finish(place.command("unshare").args(ALONE).arg("true"));
    if !probe.status.success() {
        return eprintln!("skipped: no PID namespace may be made here: {}", probe.err.trim());
    }
    let recipe = place.recipe("kubernetes");
    let words: Vec<String> = serde_json::from_str(field(&recipe, "command:")).expect("a list of words");
    let period: u64 = field(&recipe, "terminationGracePeriodSeconds:").parse().expect("seconds");
    let grace = words.iter().skip_while(|word| *word != "--grace").nth(1).expect("a grace period");
    assert!(grace.trim_end_matches('s').parse::<u64>().expect("seconds") < period);
    place.endless("report");
    let server = redis::start_with(&["--maxmemory-policy", "noeviction", "--requirepass", "right"]);
    // kubelet mounts a secret like this: behind two links, readable by all.
    std::fs::create_dir_all(place.env.path("secret/..1")).expect("a directory");
    place.env.write("secret/..1/password", "right\n");
    for (target, name) in [("..1", "secret/..data"), ("..data/password", "secret/password")] {
        symlink(target, place.env.path(name)).expect("a link");
    }
    let mounted = field(&recipe, "mountPath:");
    let of_service = |command: &mut Command| {
        for variable in ["DLOCK_ENDPOINT", "DLOCK_PASSWORD_FILE"] {
            let (_, rest) = recipe.split_once(&format!("name: {variable}\n")).expect("in its environment");
            let value =
                rest.lines().next().and_then(|line| line.trim().strip_prefix("value: ")).expect("a value");
            let value = value.replace("redis://locks.example.com", &redis::address(&server));
            command.env(variable, value.replace(mounted, &place.env.path("secret").display().to_string()));
        }
    };
    // A container's runtime gives process 1 a session.
    let mut container = place.command("unshare");
    container.args(ALONE).arg("setsid").args(&words);
    of_service(&mut container);
    let running = place.env.start(&mut container);
    place.await_up("report", 1);
    place.env.finish(&mut container).failed(75, &["report"]);
    let first = until("process 1 of the namespace", || {
        process::children(running.pid()).into_iter().find(|p| p.name == "dlock").map(|p| p.pid)
    });
    process::signal(first, Signal::TERM);
    assert_eq!(running.finish_within(Duration::from_secs(period)).code(), Some(128 + 15));
    place.env.await_no_process();
    let mut look = place.command("dlock");
    of_service(look.args(["status", "report", "--exit-code"]));
    place.env.finish(&mut look).silently(0);
}
