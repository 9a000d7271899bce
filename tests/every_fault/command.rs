//! The command that the runs protect: it sees for itself whether it overlaps with another.
//!
//! All members of a command's tree inherit one open file with an exclusive flock(2), so the kernel says without any
//! race whether a member of another tree lives.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::FdFlags;

use crate::process;
use crate::shape::COMMANDS_OWN;
use crate::support::program::dlock;
use crate::sys;

/// Longer than any point takes.
const LONG: Duration = Duration::from_secs(120);

/// The words of the command of `who`, which behaves as `manner` says.
pub(crate) fn words(folder: &Path, who: &str, manner: &str) -> Vec<String> {
    let own = std::env::current_exe().expect("this program");
    let words = [own.to_str(), Some("command"), folder.to_str(), Some(who), Some(manner)];
    words.map(|word| word.expect("UTF-8").to_owned()).to_vec()
}

/// Adds a line to what is known of a point.
pub(crate) fn note(folder: &Path, line: &str) {
    let log = OpenOptions::new().create(true).append(true).open(folder.join("log"));
    log.expect("a log").write_all(format!("{line}\n").as_bytes()).expect("a longer log");
}

/// Is the command, or another member of its tree.
pub(crate) fn be(arguments: &[String]) -> ExitCode {
    let [folder, who, manner] = arguments else { return ExitCode::from(99) };
    let (folder, pid) = (PathBuf::from(folder), std::process::id());
    note(&folder, &format!("member {who} {pid}"));
    match manner.as_str() {
        "member" => endure(),
        "session" => {
            let _ = rustix::process::setsid();
            endure()
        }
        "nested-member" => {
            note(&folder, "nested");
            sleep(Duration::from_millis(60));
            ExitCode::SUCCESS
        }
        "orphan" => {
            abandon(&folder, who);
            ExitCode::SUCCESS
        }
        script if script.starts_with("script") => {
            await_lock(&folder).map_or(ExitCode::SUCCESS, |claim| lead_script(&folder, who, script, &claim))
        }
        manner => lead(&folder, who, manner),
    }
}

/// The variables of the claim that a script was told of; nothing if it has no lock.
fn await_lock(folder: &Path) -> Option<Vec<(String, String)>> {
    let begun = Instant::now();
    let told = loop {
        match fs::read_to_string(folder.join("gate.told")) {
            Ok(told) => break told,
            Err(_) if begun.elapsed() > LONG => return None,
            Err(_) => sleep(Duration::from_millis(1)),
        }
    };
    let printed = fs::read_to_string(folder.join("run.out")).unwrap_or_default();
    let variable = |line: &str| {
        let (name, value) = line.strip_prefix("export ")?.split_once('=')?;
        Some((name.to_owned(), value.trim_matches('\'').to_owned()))
    };
    let variables: Vec<_> = printed.lines().filter_map(variable).collect();
    (told == "held").then_some(variables)
}

/// The part of a script that is under the lock.
#[expect(clippy::zombie_processes, reason = "dlock has to end it, and whoever inherits it to reap it")]
fn lead_script(folder: &Path, who: &str, manner: &str, claim: &[(String, String)]) -> ExitCode {
    let tree = alone(folder, who);
    if manner != "script-release" {
        // It may be ended at any moment, and so may what it starts.
        let words = words(folder, who, "session");
        let mut left = Command::new(&words[0]);
        let _left = left.args(&words[1..]).envs(claim.iter().cloned()).spawn().expect("a child");
    }
    note(folder, &format!("start {who} {}", std::process::id()));
    match manner {
        "script-gate" => await_gate(folder, who),
        "script-long" => sleep(LONG),
        _ => sleep(Duration::from_millis(15)),
    }
    note(folder, &format!("end {who}"));
    drop(tree);
    if manner == "script-release" {
        release(folder, claim);
    }
    ExitCode::SUCCESS
}

/// Releases the lock; it may be gone.
fn release(folder: &Path, claim: &[(String, String)]) {
    let endpoint = folder.join("locks");
    let mut command = Command::new(dlock());
    command.args(["release", "--endpoint", endpoint.to_str().expect("UTF-8")]).envs(claim.iter().cloned());
    let code = command.status().ok().and_then(|status| status.code());
    if !matches!(code, Some(0 | 76)) {
        note(folder, &format!("odd release: {code:?}"));
    }
}

/// The right to run, of which no lock service knows; its members inherit it.
fn alone(folder: &Path, who: &str) -> File {
    let tree = File::options().create(true).append(true).open(folder.join("tree")).expect("a file to lock");
    if rustix::fs::flock(&tree, FlockOperation::NonBlockingLockExclusive).is_err() {
        let members = members(folder).into_iter().filter(|(whose, pid)| whose != who && process::lives(*pid));
        let living: Vec<_> =
            members.map(|(whose, pid)| format!("{whose} {}", process::describe(pid))).collect();
        // The last one may be dying: what it has open is closed a moment later.
        if !living.is_empty() {
            note(folder, &format!("overlap {who} began beside {}", living.join(", ")));
        }
    }
    rustix::io::fcntl_setfd(&tree, FdFlags::empty()).expect("inheritable");
    tree
}

fn await_gate(folder: &Path, who: &str) {
    let begun = Instant::now();
    while !folder.join(format!("gate.{who}")).exists() && begun.elapsed() < LONG {
        sleep(Duration::from_millis(2));
    }
}

fn lead(folder: &Path, who: &str, manner: &str) -> ExitCode {
    let _tree = alone(folder, who);
    if manner == "deaf" {
        sys::ignore(libc::SIGTERM);
        abandon(folder, who);
        let mut short = spawn(folder, who, "orphan");
        let _ = short.wait();
    }
    note(folder, &format!("start {who} {}", std::process::id()));
    match manner {
        "brief" => sleep(Duration::from_millis(15)),
        "while" => sleep(Duration::from_millis(300)),
        "next" => sleep(Duration::from_millis(10)),
        "gate" => await_gate(folder, who),
        "nested" => nest(folder, who),
        _ => sleep(LONG),
    }
    note(folder, &format!("end {who}"));
    ExitCode::from(u8::try_from(if who == "run" { COMMANDS_OWN } else { 0 }).expect("small"))
}

/// Has a run that is nested in this one begin; one that is refused does not.
fn nest(folder: &Path, who: &str) {
    let endpoint = folder.join("locks");
    let mut nested = Command::new(dlock());
    nested.args(["run", "--endpoint", endpoint.to_str().expect("UTF-8"), "--name", "a", "--"]);
    nested.args(words(folder, who, "nested-member")).stderr(Stdio::null());
    let mut nested = nested.spawn().expect("a nested run");
    let begun = || fs::read_to_string(folder.join("log")).is_ok_and(|log| log.contains("nested\n"));
    while !begun() && matches!(nested.try_wait(), Ok(None)) {
        sleep(Duration::from_millis(1));
    }
}

/// Starts a member that nobody waits for.
#[expect(clippy::zombie_processes, reason = "dlock has to end and to reap it")]
fn abandon(folder: &Path, who: &str) {
    spawn(folder, who, "session");
}

fn spawn(folder: &Path, who: &str, manner: &str) -> std::process::Child {
    let words = words(folder, who, manner);
    Command::new(&words[0]).args(&words[1..]).spawn().expect("a child")
}

fn endure() -> ExitCode {
    sys::ignore(libc::SIGTERM);
    sleep(LONG);
    ExitCode::SUCCESS
}

/// Whose tree, and the pid, of everybody who belonged to a command.
pub(crate) fn members(folder: &Path) -> Vec<(String, i32)> {
    let text = fs::read_to_string(folder.join("log")).unwrap_or_default();
    let member = |line: &str| {
        let (who, pid) = line.strip_prefix("member ")?.split_once(' ')?;
        Some((who.to_owned(), pid.parse().ok()?))
    };
    text.lines().filter_map(member).collect()
}
