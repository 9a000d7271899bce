//! The environment of one test: a directory, a lock directory, variables, and processes.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::gate::Gate;
use super::process::{self, Process};
pub(crate) use super::program::dlock;
use super::running::{Finished, Running};
use super::service::Service;
use super::wait::{LIMIT, let_pass, until, until_true};

/// env(1), by its whole path. To look a program up in a changed PATH, the standard library forks this process with its
/// hundreds of threads, which costs more than the tested program.
pub(crate) const ENV: &str = "/usr/bin/env";

/// The variable that marks every process of an environment.
pub(crate) const MARK: &str = "TEST_ENV";

static NEXT: AtomicU32 = AtomicU32::new(0);

/// One test's own directory and processes. Both are gone when it is dropped.
pub(crate) struct TestEnv {
    root: PathBuf,
    id: String,
    service: Service,
    variables: Vec<(&'static str, String)>,
}

impl TestEnv {
    pub(crate) fn new() -> Self {
        Self::with(crate::service)
    }

    /// Creates an environment whose locks are in `service`.
    pub(crate) fn on(service: Service) -> Self {
        Self::with(|_| service)
    }

    fn with(service: impl FnOnce(&Path) -> Service) -> Self {
        let id = format!("dlock-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let root = std::env::temp_dir().join(&id);
        fs::create_dir_all(root.join("locks")).expect("a directory for the test");
        let service = service(&root);
        Self { root, id, service, variables: Vec::new() }
    }

    /// Adds these variables to the environment of every command.
    pub(crate) fn with_variables(mut self, variables: Vec<(&'static str, String)>) -> Self {
        self.variables = variables;
        self
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn locks(&self) -> PathBuf {
        self.path("locks")
    }

    /// Returns the service of the locks.
    pub(crate) fn service(&self) -> &Service {
        &self.service
    }

    pub(crate) fn gate(&self, name: &str) -> Gate {
        Gate::new(self.path(name))
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("a file in the test's directory");
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// Waits until a command has written a whole line to `name`. Returns the text without the newline.
    #[track_caller]
    pub(crate) fn await_line(&self, name: &str) -> String {
        until(&format!("a line in {name}"), || {
            let text = self.read(name);
            text.ends_with('\n').then(|| text.trim_end().to_owned())
        })
    }

    /// Returns `program` in a session of its own without a terminal. Of this process's environment it has only PATH.
    /// `$dlock` and `$locks` are for scripts.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(ENV);
        // The caller of the tests may ignore signals: a shell does so for programs in the background.
        command.args(["--default-signal", "setsid"]).arg(program);
        self.dress(&mut command);
        command.stdin(Stdio::null());
        command
    }

    /// Returns whether its service is several Redis servers, which keep no queue.
    pub(crate) fn is_redlock(&self) -> bool {
        self.service.endpoint.contains(",redis://")
    }

    /// Gives a command the test's environment and directory.
    pub(crate) fn dress(&self, command: &mut Command) {
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.root)
            .env("TMPDIR", &self.root)
            .env("LANG", "C.UTF-8")
            .env("INPUTRC", "/dev/null")
            .env(MARK, &self.id)
            .env("dlock", dlock())
            .env("locks", &self.service.endpoint)
            .current_dir(&self.root);
        // Nodes of a Redlock that are younger than this do not vote, and those of tests are young.
        if self.is_redlock() {
            command.env("DLOCK_MAX_TTL", "10s");
        }
        if let Some(prefix) = &self.service.prefix {
            command.env("DLOCK_PREFIX", prefix);
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
    }

    /// Returns dlock with these arguments and no others.
    pub(crate) fn dlock<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.command(dlock());
        command.args(arguments);
        command
    }

    /// Returns `dlock VERB --endpoint ENDPOINT ARGUMENTS...`.
    pub(crate) fn verb<S: AsRef<OsStr>>(
        &self,
        verb: &str,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = self.dlock([verb, "--endpoint"]);
        command.arg(&self.service.endpoint).args(arguments);
        command
    }

    /// Returns `dlock run --endpoint ENDPOINT ARGUMENTS...`.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        self.verb("run", arguments)
    }

    /// Returns a bash script; `run` in it is `dlock run --endpoint ENDPOINT`.
    pub(crate) fn bash(&self, script: &str) -> Command {
        let mut command = self.command("bash");
        let prelude = r#"shopt -s expand_aliases; alias run='"$dlock" run --endpoint "$locks"'"#;
        command.args(["-c", &format!("{prelude}\n{script}")]);
        command
    }

    /// Starts a command with its output in files.
    #[track_caller]
    pub(crate) fn start(&self, command: &mut Command) -> Running {
        let serial = NEXT.fetch_add(1, Ordering::Relaxed);
        let (out, err) = (self.path(format!("{serial}.out")), self.path(format!("{serial}.err")));
        command.stdout(File::create(&out).expect("a file for output"));
        command.stderr(File::create(&err).expect("a file for errors"));
        Running::start(command, out, err)
    }

    /// Starts a command with `err` as its standard error, which this does not read.
    #[track_caller]
    pub(crate) fn start_saying_to(&self, command: &mut Command, err: OwnedFd) -> Running {
        let serial = NEXT.fetch_add(1, Ordering::Relaxed);
        let out = self.path(format!("{serial}.out"));
        let none = self.write(&format!("{serial}.err"), "");
        command.stdout(File::create(&out).expect("a file for output")).stderr(err);
        let running = Running::start(command, out, none);
        // A reader sees the end only when no process has the stream open for writing.
        command.stderr(Stdio::null());
        running
    }

    /// Runs a command to its end.
    #[track_caller]
    pub(crate) fn finish(&self, command: &mut Command) -> Finished {
        self.start(command).finish()
    }

    /// Starts `dlock run` with `options`. Its command reports that it runs and waits at a gate.
    #[track_caller]
    pub(crate) fn hold(&self, options: &[&str]) -> Holder {
        let serial = NEXT.fetch_add(1, Ordering::Relaxed);
        let (ready, gate) = (format!("holder{serial}.ready"), self.gate(&format!("holder{serial}.gate")));
        let script = r#"echo "$$ $DLOCK_TOKEN ${DLOCK_SLOT:-0} $DLOCK_CLAIM" >"$0"; read _ <"$1""#;
        let mut command = self.run(options);
        command.args(["--", "sh", "-c", script]).arg(self.path(&ready)).arg(gate.path());
        Holder { running: self.start(&mut command), ready: self.path(&ready), gate, said: Vec::new() }
    }

    /// Does the same as [`TestEnv::hold`] and waits until the command runs.
    #[track_caller]
    pub(crate) fn held(&self, options: &[&str]) -> Holder {
        let mut holder = self.hold(options);
        holder.await_start();
        holder
    }

    /// Returns the parsed output of `dlock status --json NAME`.
    #[track_caller]
    pub(crate) fn status(&self, name: &str) -> Value {
        let asked = self.finish(&mut self.verb("status", ["--json", name])).silently(0);
        serde_json::from_slice(&asked.out).expect("JSON from status")
    }

    pub(crate) fn holders(&self, name: &str) -> usize {
        self.status(name)["holders"].as_array().expect("a list of holders").len()
    }

    pub(crate) fn waiters(&self, name: &str) -> usize {
        self.status(name)["waiters"].as_array().expect("a list of waiters").len()
    }

    /// Waits until `count` processes wait for `name`. If no queue shows them, it counts the keepers that hold nothing,
    /// and gives them some time to send their request.
    #[track_caller]
    pub(crate) fn await_waiters(&self, name: &str, count: usize) {
        if self.is_redlock() {
            let keepers = || self.processes().into_iter().filter(|p| p.name == "lease-keeper").count();
            let held = || {
                let status = self.status(name);
                let holders = status["holders"].as_array().expect("a list of holders");
                holders.iter().filter(|holder| holder["foreign"] == false).count()
            };
            until_true(&format!("{count} waiters for {name}"), || keepers() >= held() + count);
            return let_pass(Duration::from_millis(500));
        }
        until(&format!("{count} waiters for {name}"), || (self.waiters(name) == count).then_some(()));
    }

    /// Expects that the lock can be acquired at once, and that it has no holder and no waiter.
    #[track_caller]
    pub(crate) fn assert_free(&self, name: &str) {
        self.finish(&mut self.run(["-n", "--name", name, "--", "true"])).silently(0);
        assert_eq!((self.holders(name), self.waiters(name)), (0, 0), "a claim is left in the queue");
    }

    /// Expects that the lock cannot be acquired at once.
    #[track_caller]
    pub(crate) fn assert_busy(&self, name: &str) {
        self.finish(&mut self.run(["-n", "--name", name, "--", "true"])).failed(75, &[name]);
    }

    /// Returns every living process of this test.
    pub(crate) fn processes(&self) -> Vec<Process> {
        process::with_variable(MARK, &self.id)
    }

    /// Returns every living process of this test except keepers. A keeper may end a moment after its front.
    pub(crate) fn command_processes(&self) -> Vec<Process> {
        self.processes().into_iter().filter(|p| p.name != "lease-keeper").collect()
    }

    /// Waits until no process of this test is left. That includes exiting processes without an environment that still
    /// have open files, with the locks on them.
    #[track_caller]
    pub(crate) fn await_no_process(&self) {
        let begun = Instant::now();
        let mut leaving = None;
        loop {
            let mut left = self.processes();
            if left.is_empty() {
                left = leaving.take().unwrap_or_else(process::leaving);
                left.retain(process::is_still);
                leaving = Some(left.clone());
            }
            if left.is_empty() {
                return;
            }
            assert!(begun.elapsed() < LIMIT / 4, "left behind: {left:?}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Returns a Python that is no wrapper, so that its PID is that of the started process.
    pub(crate) fn python() -> &'static str {
        if Path::new("/usr/bin/python3").exists() { "/usr/bin/python3" } else { "python3" }
    }
}

impl Drop for TestEnv {
    fn drop(&mut self) {
        // The next round finds the children of a killed parent.
        for _ in 0..200 {
            let left = self.processes();
            if left.is_empty() {
                break;
            }
            for process in left {
                process::signal(process.pid, Signal::KILL);
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// A dlock whose command waits at a gate.
pub(crate) struct Holder {
    pub(crate) running: Running,
    ready: PathBuf,
    gate: Gate,
    said: Vec<String>,
}

impl Holder {
    pub(crate) fn has_started(&self) -> bool {
        fs::read_to_string(&self.ready).is_ok_and(|text| text.ends_with('\n'))
    }

    #[track_caller]
    pub(crate) fn await_start(&mut self) {
        let what = format!("the start of a command; its dlock said {:?}", self.running.err_so_far());
        let text = until(&what, || fs::read_to_string(&self.ready).ok().filter(|text| text.ends_with('\n')));
        self.said = text.split_ascii_whitespace().map(str::to_owned).collect();
    }

    /// Returns what its dlock has said.
    pub(crate) fn err_so_far(&self) -> String {
        self.running.err_so_far()
    }

    /// Returns the PID of the command.
    pub(crate) fn command(&self) -> i32 {
        self.said[0].parse().expect("a pid")
    }

    /// Returns the PID that dlock reports to other users.
    pub(crate) fn command_pid(&self) -> String {
        self.running.pid().to_string()
    }

    pub(crate) fn token(&self) -> u64 {
        self.said[1].parse().expect("a token")
    }

    pub(crate) fn slot(&self) -> u32 {
        self.said[2].parse().expect("a slot")
    }

    pub(crate) fn claim(&self) -> &str {
        &self.said[3]
    }

    /// Lets the command end, now or when it starts.
    pub(crate) fn let_go(&self) {
        self.gate.open();
    }

    /// Lets the command end and waits for dlock.
    #[track_caller]
    pub(crate) fn release(self) -> Finished {
        self.let_go();
        self.running.finish()
    }
}

/// Lets every command end. Expects that each dlock exits 0 and prints nothing.
#[track_caller]
pub(crate) fn release_all(holders: impl IntoIterator<Item = Holder>) {
    for holder in holders {
        holder.release().silently(0);
    }
}
