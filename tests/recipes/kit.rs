//! The action for GitHub's workflows and the template for GitLab, as their runners run them.

use std::path::PathBuf;

use rustix::process::Signal;

use crate::page::{RecipeEnv, field};
use crate::support::Running;
use crate::support::process;

const ACTION: &str = include_str!("../../.github/actions/dlock/action.yml");
const TEMPLATE: &str = include_str!("../../.gitlab/dlock.yml");

fn in_checkout(path: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), path].iter().collect()
}

/// Returns the inputs that have a default, with the default.
fn defaults() -> Vec<(String, String)> {
    let (_, inputs) = ACTION.split_once("inputs:\n").expect("inputs");
    let (inputs, _) = inputs.split_once("outputs:\n").expect("outputs");
    let mut found = Vec::new();
    let mut name = String::new();
    for line in inputs.lines() {
        if let Some(default) = line.trim_start().strip_prefix("default: ") {
            found.push((format!("INPUT_{}", name.to_uppercase()), default.to_owned()));
        } else if let Some(input) = line.strip_prefix("  ").and_then(|line| line.strip_suffix(':')) {
            input.clone_into(&mut name);
        }
    }
    assert!(found.len() > 4, "{found:?}");
    found
}

/// Starts a job with the lock deploy; its step is `step`.
fn start_job(place: &RecipeEnv, step: &str, inputs: &[(&str, &str)]) -> Running {
    let step = place.env.write("step.sh", step);
    let action = in_checkout(".github/actions/dlock");
    let recipe = place.recipe("github-action");
    let mut command = place.command("node");
    command.arg(in_checkout("tests/recipes/worker.js"));
    command.arg(action.join(field(ACTION, "main:"))).arg(step).arg(action.join(field(ACTION, "post:")));
    command.envs(defaults()).env("INPUT_NAME", field(&recipe, "name:")).envs(inputs.iter().copied());
    place.env.start(&mut command)
}

#[test]
fn job_of_github_holds_the_lock_until_it_ends() {
    let place = RecipeEnv::new();
    let deploy = place.gated("deploy");
    let step = format!(
        "[ \"$token\" = \"$DLOCK_TOKEN\" ] && [ \"$claim\" = \"$DLOCK_CLAIM\" ] || exit 9
         dlock run --name deploy --slots 3 --try -- true || exit 8
         {}/deploy",
        place.env.root().display()
    );
    for (status, ends_as) in [("0", 0), ("3", 1)] {
        let job = start_job(&place, &step, &[("INPUT_MODE", "3")]);
        place.await_up("deploy", 1);
        assert_eq!(place.env.status("deploy")["holders"][0]["mode"], "slots:3");
        deploy.write(status);
        let ended = job.finish();
        assert_eq!(ended.code(), Some(ends_as), "{}", ended.err);
        place.assert_over("deploy");
        std::fs::remove_file(place.env.path("deploy.up")).expect("there");
    }
}

#[test]
fn job_of_github_without_the_lock_fails_and_runs_no_step() {
    let place = RecipeEnv::new();
    let holder = place.env.held(&["-q", "--name", "deploy"]);
    let ended = start_job(&place, "echo ran", &[("INPUT_WAIT", "0")]).finish();
    assert_eq!(ended.code(), Some(1), "{}", ended.err);
    assert!(ended.err.contains("held by"), "{}", ended.err);
    assert_eq!(ended.text(), "::error::The lock was not acquired: dlock exited with 75\n");
    holder.release().silently(0);
    let ended = start_job(&place, "echo ran", &[("INPUT_PROGRAM", "/nowhere/dlock")]).finish();
    assert_eq!(ended.code(), Some(1), "{}", ended.err);
    assert!(ended.text().starts_with("::error::The lock was not acquired: cannot run /nowhere/dlock: "));
    place.assert_over("deploy");
}

#[test]
fn job_of_github_is_ended_whole_on_its_death_or_a_loss() {
    for is_broken in [false, true] {
        let place = RecipeEnv::new();
        place.endless("deploy");
        let job = start_job(&place, &format!("{}/deploy", place.env.root().display()), &[]);
        place.await_up("deploy", 1);
        place.env.assert_busy("deploy");
        if is_broken {
            place.env.finish(&mut place.env.verb("break", ["deploy", "--yes"])).silently(0);
        } else {
            process::signal(job.pid(), Signal::KILL);
        }
        assert!(job.finish().signal().is_some());
        place.assert_over("deploy");
    }
}

#[test]
fn job_of_gitlab_holds_the_lock_until_its_shell_ends() {
    let place = RecipeEnv::new();
    let (_, begin) = TEMPLATE.split_once("before_script:\n").expect("a script");
    let lines: Vec<&str> = begin.lines().filter_map(|line| line.trim_start().strip_prefix("- ")).collect();
    assert_eq!(lines.len(), 2);
    let deploy = place.gated("deploy");
    let script = format!("set -eo pipefail\n{}\n{}/deploy\n", lines.join("\n"), place.env.root().display());
    let file = place.env.write("job.sh", &script);
    let start = |wait: &str| {
        let mut command = place.command("bash");
        let variables = [("LOCK", "deploy"), ("LOCK_WAIT", wait), ("LOCK_TTL", field(TEMPLATE, "LOCK_TTL:"))];
        command.arg(&file).envs(variables).env("CI_PROJECT_PATH", "group/app").env("CI_JOB_ID", "17");
        place.env.start(&mut command)
    };
    let job = start(field(TEMPLATE, "LOCK_WAIT:"));
    place.await_up("deploy", 1);
    assert_eq!(place.env.status("deploy")["holders"][0]["label"], "group/app job 17");
    start("0").finish().failed(75, &["deploy"]);
    deploy.write("3");
    assert_eq!(job.finish().code(), Some(3));
    place.assert_over("deploy");
}
