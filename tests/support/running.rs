//! A started program and its end.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::bounds::exact;
use super::process;
use super::wait::{LIMIT, until, until_within};

/// A program that runs, with its output in files.
pub(crate) struct Running {
    child: Child,
    out: PathBuf,
    err: PathBuf,
    begun: Instant,
}

impl Running {
    #[track_caller]
    pub(crate) fn start(command: &mut Command, out: PathBuf, err: PathBuf) -> Self {
        // Taken before the start: dlock's promised times count from its own beginning.
        let begun = Instant::now();
        Self { child: command.spawn().expect("a program that starts"), out, err, begun }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    /// Waits for the keeper. Returns its PID.
    pub(crate) fn keeper(&self) -> i32 {
        until("a keeper", || process::keeper_of(self.pid()))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        process::signal(self.pid(), signal);
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child to ask").is_some()
    }

    /// Returns its standard error so far.
    pub(crate) fn err_so_far(&self) -> String {
        fs::read_to_string(&self.err).unwrap_or_default()
    }

    /// Returns its standard output so far.
    pub(crate) fn out_so_far(&self) -> String {
        fs::read_to_string(&self.out).unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn finish(self) -> Finished {
        self.finish_within(LIMIT)
    }

    /// Does the same as [`Running::finish`] with another limit, for work that depends on the machine's speed.
    #[track_caller]
    pub(crate) fn finish_within(mut self, limit: Duration) -> Finished {
        let (pid, err) = (self.pid(), self.err.clone());
        let what =
            || format!("the end of {pid} (its errors: {:?})", fs::read_to_string(err).unwrap_or_default());
        let status = until_within(limit, what, || self.child.try_wait().expect("a child to wait for"));
        Finished {
            status,
            took: self.begun.elapsed(),
            out: fs::read(&self.out).expect("its output"),
            err: String::from_utf8_lossy(&fs::read(&self.err).expect("its errors")).into_owned(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) took: Duration,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Finished {
    /// Returns its exit status, or `None` if a signal killed it.
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Returns the signal that killed it.
    pub(crate) fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// Returns the lines of its standard error. On a machine that may stand still, it may also have said that a service
    /// has not answered yet.
    fn said(&self) -> Vec<&str> {
        let counts = |line: &&str| exact() || !is_impatient(line);
        self.err.lines().filter(counts).collect()
    }

    /// Expects that it exited with `code` and printed nothing to standard error.
    #[track_caller]
    pub(crate) fn silently(self, code: i32) -> Self {
        assert_eq!((self.code(), self.said()), (Some(code), vec![]), "signal {:?}", self.signal());
        self
    }

    /// Expects that it exited with `code`, with nothing on standard output and one line about the failure that has all
    /// of `words`.
    #[track_caller]
    pub(crate) fn failed(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code(), Some(code), "signal {:?}; it said: {}", self.signal(), self.err);
        assert_eq!(self.text(), "", "standard output is the command's; it said: {}", self.err);
        self.said_one_line(words)
    }

    /// Expects that it waited for `name` with `--supersede` or `--replace` and lost its place, for a reason that
    /// contains `why`.
    #[track_caller]
    pub(crate) fn lost_its_place(self, name: &str, why: &str) -> Self {
        let last = self.err.lines().last().unwrap_or_default();
        let told = last.contains(&format!("lost the place in the queue for {name}"))
            && last.contains("does not rejoin");
        assert!(self.code() == Some(75) && told && last.contains(why), "{:?}: {}", self.status, self.err);
        self
    }

    /// Expects that its lease on `name` expired and that its command was stopped for that. If the machine stood still
    /// at the keeper's last moment, the front reports it.
    #[track_caller]
    pub(crate) fn lost_its_lease(self, name: &str) -> Self {
        let last = self.err.lines().last().unwrap_or_default();
        let told = last.contains(&format!("lost {name}"))
            && !(exact() && last.contains("the lease-keeper of dlock stopped"));
        assert!(self.code() == Some(76) && told, "{:?}: {}", self.status, self.err);
        self
    }

    /// Expects that its standard error is one line that begins with `dlock: ` and has all of `words`.
    #[track_caller]
    pub(crate) fn said_one_line(self, words: &[&str]) -> Self {
        let lines = self.said();
        assert!(
            lines.len() == 1 && self.err.ends_with('\n') && lines[0].starts_with("dlock: "),
            "not one line from dlock: {:?}",
            self.err
        );
        for word in words {
            assert!(lines[0].contains(word), "no {word:?} in: {}", lines[0]);
        }
        self
    }
}

/// Returns whether a line says that the service has not answered yet.
fn is_impatient(line: &str) -> bool {
    line.contains("has not answered yet")
}

/// The time limit for a crowd, which depends on the machine's speed.
pub(crate) const CROWD: Duration = Duration::from_secs(90);

/// Waits for the end of a crowd. Expects that each exits 0 and prints nothing, except that a service with such a crowd
/// has not answered yet.
#[track_caller]
pub(crate) fn finish_all(running: impl IntoIterator<Item = Running>) {
    for one in running {
        let ended = one.finish_within(CROWD);
        let silent = ended.err.lines().all(is_impatient);
        assert!(ended.code() == Some(0) && silent, "{:?}: {}", ended.status, ended.err);
    }
}
