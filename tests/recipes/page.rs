//! The page, and an environment for its recipes.

use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::process::{self, Process};
use crate::support::test_env::dlock;
use crate::support::{Running, TestEnv, until};

const PAGE: &str = include_str!("../../src/cli/manual/text/recipes.md");

/// A job that writes its PID, starts a tree, some of it in other sessions, and runs until it is stopped.
const ENDLESS: &str =
    "sleep 1000 &\nsetsid sleep 1000 &\n(setsid sh -c 'sleep 1000 & wait' &)\necho $$ >>\"$0.up\"\nwait\n";
/// A job that writes its PID, and exits with the status that a test writes to its gate.
const GATED: &str = "echo $$ >>\"$0.up\"\nread -r status <\"$0.gate\"\nexit \"${status:-0}\"\n";

/// Returns the fenced blocks of the page: name and text.
fn blocks() -> Vec<(&'static str, String)> {
    let mut blocks = Vec::new();
    let mut lines = PAGE.lines();
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("```") {
            let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push((name.trim(), text.join("\n")));
        }
    }
    blocks
}

/// A directory with a `/usr/local/bin` and a `/srv/example` of its own.
pub(crate) struct RecipeEnv {
    pub(crate) env: TestEnv,
}

impl RecipeEnv {
    pub(crate) fn new() -> Self {
        let env = TestEnv::new();
        std::fs::create_dir(env.path("bin")).expect("a directory");
        symlink(dlock(), env.path("bin/dlock")).expect("a link");
        Self { env }
    }

    /// Returns the recipe `name` of the page, with the paths of this directory.
    pub(crate) fn recipe(&self, name: &str) -> String {
        let found = blocks().into_iter().find(|(block, _)| *block == name);
        let (_, text) = found.unwrap_or_else(|| panic!("no recipe {name} on the page"));
        let root = self.env.root().display().to_string();
        text.replace("/usr/local/bin", &format!("{root}/bin")).replace("/srv/example", &root)
    }

    /// Creates the program `name`. Another process writes it: a child of this process would keep an open file for a
    /// moment, and nothing can execute a file that is open for writing.
    pub(crate) fn program(&self, name: &str, text: &str) -> PathBuf {
        let (written, path) = (self.env.write("program", text), self.env.path(name));
        let mut install = self.command("install");
        self.env.finish(install.args(["-m", "755"]).arg(written).arg(&path)).silently(0);
        path
    }

    fn job(&self, name: &str, text: &str) {
        self.program(name, &format!("#!/bin/sh\n{text}"));
    }

    /// Makes `/srv/example/NAME` a job that runs until it is stopped.
    pub(crate) fn endless(&self, name: &str) {
        self.job(name, ENDLESS);
    }

    /// Makes `/srv/example/NAME` a job that waits for its exit status.
    pub(crate) fn gated(&self, name: &str) -> crate::support::gate::Gate {
        self.job(name, GATED);
        self.env.gate(&format!("{name}.gate"))
    }

    /// Makes `/srv/example/NAME` a job that runs `words`.
    pub(crate) fn runs(&self, name: &str, words: &[String]) {
        let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        self.job(name, &format!("exec {}\n", words.join(" ")));
    }

    /// Returns a command without a terminal, in a session of its own. It finds `dlock` and the address of the lock
    /// service.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.env.command(program);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.env.path("bin").display()));
        command.env("DLOCK_ENDPOINT", self.env.locks());
        command
    }

    /// Starts a recipe that is one simple command.
    pub(crate) fn start_words(&self, line: &str) -> Running {
        let mut words = line.split_ascii_whitespace();
        let mut command = self.command(words.next().expect("a program"));
        self.env.start(command.args(words))
    }

    /// Starts a recipe as a shell would.
    pub(crate) fn start_shell(&self, text: &str) -> Running {
        self.env.start(self.command("sh").args(["-c", text]))
    }

    /// Waits until there are `count` runs of `/srv/example/NAME`. Returns their PIDs.
    #[track_caller]
    pub(crate) fn await_up(&self, name: &str, count: usize) -> Vec<i32> {
        let file = format!("{name}.up");
        until(&format!("run {count} of {name}"), || {
            let text = self.env.read(&file);
            let whole = text.ends_with('\n') && text.lines().count() >= count;
            whole.then(|| text.lines().map(|line| line.parse().expect("a pid")).collect())
        })
    }

    /// Expects that no process is left, and that the lock has no holder and no waiter.
    #[track_caller]
    pub(crate) fn assert_over(&self, lock: &str) {
        self.env.await_no_process();
        self.env.assert_free(lock);
    }

    /// Returns the living processes that have `variable=value` in their environment.
    pub(crate) fn with(variable: &str, value: &str) -> Vec<Process> {
        process::with_variable(variable, value)
    }
}

/// Returns the text after `key` on the only line of a recipe that begins with it.
pub(crate) fn field<'a>(recipe: &'a str, key: &str) -> &'a str {
    let mut found = recipe.lines().filter_map(|line| line.trim_start_matches([' ', '-']).strip_prefix(key));
    let value = found.next().unwrap_or_else(|| panic!("no {key} in {recipe}"));
    assert!(found.next().is_none(), "more than one {key} in {recipe}");
    value.trim()
}

/// Returns whether it ends within `limit`, the time that a runner gives it.
pub(crate) fn ends_within(running: &mut Running, limit: Duration) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if running.has_ended() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    running.has_ended()
}

/// Sends `signal` to the process group that `running` leads.
pub(crate) fn signal_group(running: &Running, signal: Signal) {
    let group = rustix::process::Pid::from_raw(running.pid()).expect("a pid");
    rustix::process::kill_process_group(group, signal).expect("a group of this test");
}

/// Returns whether a program is installed that a test needs. If it is missing, prints that, or fails if all programs
/// are required.
pub(crate) fn is_installed(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    let found = found.is_ok_and(|output| output.status.success());
    assert!(
        found || std::env::var_os("DLOCK_TEST_REQUIRE").is_none(),
        "{program} is missing; tests/run installs it"
    );
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

#[test]
fn each_recipe_is_run_by_a_test() {
    let tests = [
        include_str!("asked.rs"),
        include_str!("hosts.rs"),
        include_str!("kit.rs"),
        include_str!("runners.rs"),
        include_str!("scripts.rs"),
        include_str!("ssh.rs"),
    ]
    .concat();
    let blocks = blocks();
    assert!(blocks.len() >= 16, "{blocks:?}");
    for (name, text) in blocks {
        assert!(!name.is_empty(), "a recipe without a name: {text}");
        assert!(tests.contains(&format!("recipe(\"{name}\")")), "no test runs {name}");
    }
}
