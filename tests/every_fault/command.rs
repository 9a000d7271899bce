//! The manners of the protected command, which may leave members of its tree behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::enumeration::command::{LONG, Member, await_gate, note, words};
use crate::support::program::dlock;
use crate::sys;

/// Runs as the command, or as another member of its tree.
pub(crate) fn be(arguments: &[String]) -> ExitCode {
    let [folder, who, manner] = arguments else { return ExitCode::from(99) };
    let folder = PathBuf::from(folder);
    let member = Member::begin(&folder, who);
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
            await_lock(&folder).map_or(ExitCode::SUCCESS, |claim| lead_script(&member, script, &claim))
        }
        manner => lead(&member, manner),
    }
}

/// Returns the variables of the claim that a script has received; empty without a lock.
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

/// Runs the part of a script that is under the lock.
#[expect(clippy::zombie_processes, reason = "dlock has to kill it, and its new parent to reap it")]
fn lead_script(member: &Member<'_>, manner: &str, claim: &[(String, String)]) -> ExitCode {
    let (folder, who) = (member.folder, member.who);
    let tree = member.alone();
    if manner != "script-release" {
        // This process can be killed at any moment, and so can its children.
        let words = words(folder, who, "session");
        let mut left = Command::new(&words[0]);
        let _left = left.args(&words[1..]).envs(claim.iter().cloned()).spawn().expect("a child");
    }
    member.start();
    match manner {
        "script-gate" => await_gate(folder, who),
        "script-long" => sleep(LONG),
        _ => sleep(Duration::from_millis(15)),
    }
    member.end();
    drop(tree);
    if manner == "script-release" {
        release(folder, claim);
    }
    ExitCode::SUCCESS
}

/// Releases the lock, which may be lost already.
fn release(folder: &Path, claim: &[(String, String)]) {
    let endpoint = folder.join("locks");
    let mut command = Command::new(dlock());
    command.args(["release", "--endpoint", endpoint.to_str().expect("UTF-8")]).envs(claim.iter().cloned());
    let code = command.status().ok().and_then(|status| status.code());
    if !matches!(code, Some(0 | 76)) {
        note(folder, &format!("odd release: {code:?}"));
    }
}

fn lead(member: &Member<'_>, manner: &str) -> ExitCode {
    let (folder, who) = (member.folder, member.who);
    let prepare = || {
        if manner == "deaf" {
            sys::ignore(libc::SIGTERM);
            abandon(folder, who);
            let mut short = spawn(folder, who, "orphan");
            let _ = short.wait();
        }
    };
    member.lead(prepare, || match manner {
        "nested" => nest(folder, who),
        "long" | "deaf" => sleep(LONG),
        _ => member.work(manner),
    })
}

/// Starts a nested run. A refused run does not begin.
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

/// Starts a member that its parent does not wait for.
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
