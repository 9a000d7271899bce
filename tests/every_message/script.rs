//! The scripts that take the lock with `acquire` and the subcommands that go with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use crate::enumeration::command::{self, lasting, note, variable};
use crate::life::WORK;
use crate::servers::relay::fault::TTL;
use crate::shape::{Event, Shape, Verb};
use crate::support::witness::now;

/// How long a holder may rely on a lease, from before its request.
const RELIED_ON: Duration = TTL.saturating_mul(17).checked_div(20).expect("not by zero");

/// When the lease is renewed for the second time: early enough to receive the answer while it lasts.
const RENEWED_AFTER: Duration = TTL.checked_div(4).expect("not by zero");

const STEP: Duration = Duration::from_millis(5);

/// Returns the words of the script of that shape, which acquires with these options.
pub(crate) fn words(folder: &Path, shape: &Shape, options: &[&str]) -> Vec<String> {
    let own = std::env::current_exe().expect("this program");
    let words = [own.to_str(), Some("script"), folder.to_str(), Some(shape.name)];
    words.map(|word| word.expect("UTF-8")).iter().chain(options).map(|word| (*word).to_owned()).collect()
}

/// Runs as the script.
pub(crate) fn be(arguments: &[String]) -> ExitCode {
    let [folder, shape, options @ ..] = arguments else { return ExitCode::from(99) };
    let Some(shape) = Shape::named(shape) else { return ExitCode::from(98) };
    let mut acquire = dlock("acquire");
    acquire.args(options).args(["--format", "env"]).stderr(Stdio::inherit());
    match shape.verb {
        Verb::Detach => acquire.arg("--detach"),
        _ => acquire.args(["--for-pid", &std::process::id().to_string()]),
    };
    let acquired = acquire.output().expect("dlock");
    if !acquired.status.success() {
        return code(acquired.status.code());
    }
    let printed = String::from_utf8_lossy(&acquired.stdout).into_owned();
    let pairs = printed.lines().filter_map(|line| line.split_once('='));
    let claim = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let script = Script { folder: folder.into(), claim };
    match shape.verb {
        Verb::Detach => script.with_a_lease(),
        _ => script.held_for(shape.event),
    }
}

fn dlock(verb: &str) -> Command {
    let mut command = Command::new(variable("dlock"));
    command.args([verb, "--endpoint", &variable("locks")]);
    command
}

/// Returns the status as a shell does: of a signal, not which.
fn code(code: Option<i32>) -> ExitCode {
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(128))
}

/// Waits for the end of a process, at most for `limit`. Returns its status.
fn end_until(one: &mut Child, limit: Duration) -> Option<i32> {
    loop {
        match one.try_wait().expect("a child") {
            Some(status) => return status.code(),
            None if now() > limit => return None,
            None => sleep(STEP),
        }
    }
}

/// A script that has the lock.
struct Script {
    folder: PathBuf,
    /// The printed variables of its claim.
    claim: Vec<(String, String)>,
}

impl Script {
    fn command(&self, manner: &str) -> Child {
        let words = command::words(&self.folder, "claim", manner);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).envs(self.claim.iter().cloned()).spawn().expect("a command")
    }

    fn verb(&self, verb: &str) -> Child {
        dlock(verb).envs(self.claim.iter().cloned()).spawn().expect("dlock")
    }

    /// Does its work under a lock that dlock holds for it, and releases it.
    fn held_for(&self, event: Event) -> ExitCode {
        let manner = if event == Event::KillScript { "gate".to_owned() } else { lasting(WORK) };
        let worked = self.command(&manner).wait().expect("a child").code();
        let released = self.verb("release").wait().expect("a child");
        code(if released.success() { worked } else { released.code() })
    }

    /// Does its work while it knows that the lease lasts, and releases it. Notes each answer beside the true state.
    fn with_a_lease(&self) -> ExitCode {
        // The length of the first lease is unknown: it may have been renewed while it waited.
        let mut begun = now();
        let mut ended = self.note_answer("renew", self.verb("renew"), begun);
        while ended == Some(0) && now() > begun + RELIED_ON {
            // Too late to rely on it.
            begun = now();
            ended = self.note_answer("renew", self.verb("renew"), begun);
        }
        if ended == Some(0) {
            let mut work = self.command("gate");
            sleep((begun + RENEWED_AFTER).saturating_sub(now()));
            let again = now();
            let mut renew = self.verb("renew");
            if end_until(&mut renew, begun + RELIED_ON) == Some(0) {
                sleep((again + RELIED_ON).saturating_sub(now()));
            }
            fs::write(self.folder.join("gate.claim"), "").expect("a gate");
            let worked = work.wait().expect("a child").code();
            ended = self.note_answer("renew-again", renew, again).filter(|code| *code != 0).or(worked);
        }
        let begun = now();
        let released = self.note_answer("release", self.verb("release"), begun);
        code(if released == Some(0) { ended } else { released })
    }

    /// Notes the end of a command that was started at `begun`, and whether its claim holds then, past the relays.
    fn note_answer(&self, verb: &str, mut one: Child, begun: Duration) -> Option<i32> {
        let code = one.wait().expect("a child").code();
        let told = code.map_or_else(|| "signal".to_owned(), |code| code.to_string());
        let name = self.claim.iter().find(|(name, _)| name == "DLOCK_NAME").map_or("", |(_, value)| value);
        let id = self.claim.iter().find(|(name, _)| name == "DLOCK_CLAIM").map_or("", |(_, value)| value);
        let mut status = Command::new(variable("dlock"));
        let asked = status.args(["status", "--endpoint", &variable("past"), "--json", name]).output();
        let status: Value = serde_json::from_slice(&asked.expect("dlock").stdout).unwrap_or_default();
        let holds = status["holders"].as_array().map(|all| all.iter().any(|one| one["claim"] == id));
        let holds = holds.map_or("unknown", |holds| if holds { "holds" } else { "gone" });
        note(&self.folder, &format!("{verb} {told} {} {} {holds}", begun.as_micros(), now().as_micros()));
        code
    }
}
