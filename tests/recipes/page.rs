//! The page, and a place where its recipes can be run.

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

/// What a job does that says that it is up, starts a tree beside it, some of it in other sessions, and goes on until it is ended.
const ENDLESS: &str =
    "sleep 1000 &\nsetsid sleep 1000 &\n(setsid sh -c 'sleep 1000 & wait' &)\necho $$ >>\"$0.up\"\nwait\n";
/// What a job does that says that it is up, and exits with the status that is written to its gate.
const GATED: &str = "echo $$ >>\"$0.up\"\nread -r status <\"$0.gate\"\nexit \"${status:-0}\"\n";

/// The fenced blocks of the page: name and text.
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

/// A folder with a `/usr/local/bin` and a `/srv/example` of its own.
pub(crate) struct RecipeEnv {
    pub(crate) env: TestEnv,
}

impl RecipeEnv {
    pub(crate) fn new() -> Self {
        let env = TestEnv::new();
        std::fs::create_dir(env.path("bin")).expect("a folder");
        symlink(dlock(), env.path("bin/dlock")).expect("a link");
        Self { env }
    }

    /// The recipe `name` as it stands on the page, in this place.
    pub(crate) fn recipe(&self, name: &str) -> String {
        let found = blocks().into_iter().find(|(block, _)| *block == name);
        let (_, text) = found.unwrap_or_else(|| panic!("no recipe {name} on the page"));
        let root = self.env.root().display().to_string();
        text.replace("/usr/local/bin", &format!("{root}/bin")).replace("/srv/example", &root)
    }

    /// Makes the program `name`. Another process writes it: what this one has open for writing, its children have for a moment,
    /// and nobody may run it then.
    pub(crate) fn program(&self, name: &str, text: &str) -> PathBuf {
        let (written, path) = (self.env.write("program", text), self.env.path(name));
        let mut install = self.command("install");
        self.env.finish(install.args(["-m", "755"]).arg(written).arg(&path)).silently(0);
        path
    }

    fn job(&self, name: &str, text: &str) {
        self.program(name, &format!("#!/bin/sh\n{text}"));
    }

    /// `/srv/example/NAME` goes on until it is ended.
    pub(crate) fn endless(&self, name: &str) {
        self.job(name, ENDLESS);
    }

    /// `/srv/example/NAME` waits for the status that it is to exit with.
    pub(crate) fn gated(&self, name: &str) -> crate::support::gate::Gate {
        self.job(name, GATED);
        self.env.gate(&format!("{name}.gate"))
    }

    /// `/srv/example/NAME` runs `words`.
    pub(crate) fn runs(&self, name: &str, words: &[String]) {
        let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        self.job(name, &format!("exec {}\n", words.join(" ")));
    }

    /// A command without a terminal, in a session of its own, that finds `dlock` and knows the lock service.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.env.command(program);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.env.path("bin").display()));
        command.env("DLOCK_ENDPOINT", self.env.locks());
        command
    }

    /// Starts the words of a recipe that is one simple command.
    pub(crate) fn start_words(&self, line: &str) -> Running {
        let mut words = line.split_ascii_whitespace();
        let mut command = self.command(words.next().expect("a program"));
        self.env.start(command.args(words))
    }

    /// Starts a recipe as a shell's.
    pub(crate) fn start_shell(&self, text: &str) -> Running {
        self.env.start(self.command("sh").args(["-c", text]))
    }

    /// The pids of the runs of `/srv/example/NAME`, once there were `count`.
    #[track_caller]
    pub(crate) fn await_up(&self, name: &str, count: usize) -> Vec<i32> {
        let file = format!("{name}.up");
        until(&format!("run {count} of {name}"), || {
            let text = self.env.read(&file);
            let whole = text.ends_with('\n') && text.lines().count() >= count;
            whole.then(|| text.lines().map(|line| line.parse().expect("a pid")).collect())
        })
    }

    /// Nothing is left running, and nobody has or wants the lock.
    #[track_caller]
    pub(crate) fn assert_over(&self, lock: &str) {
        self.env.await_no_process();
        self.env.assert_free(lock);
    }

    /// The living processes that have `variable=value` in their environment.
    pub(crate) fn with(variable: &str, value: &str) -> Vec<Process> {
        process::with_variable(variable, value)
    }
}

/// What stands behind `key` on the one line of a recipe that begins with it.
pub(crate) fn field<'a>(recipe: &'a str, key: &str) -> &'a str {
    let mut found = recipe.lines().filter_map(|line| line.trim_start_matches([' ', '-']).strip_prefix(key));
    let value = found.next().unwrap_or_else(|| panic!("no {key} in {recipe}"));
    assert!(found.next().is_none(), "more than one {key} in {recipe}");
    value.trim()
}

/// Whether it ends within `limit`, which a runner gives it.
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

/// Whether a program is there that a test cannot do without; that it is not is said, and a failure where all must be there.
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
