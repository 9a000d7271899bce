//! The command that everybody protects: it says when it begins and ends, and sees for itself whether it overlaps with
//! another.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::FlockOperation;

use crate::support::process::is_alive;
use crate::support::witness::now;

/// The status of the claim's command that comes to its own end.
pub(crate) const OWN: i32 = 7;

/// Nobody waits at a gate for longer.
const LONG: Duration = Duration::from_secs(120);

/// How long a command takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Length {
    For(Duration),
    /// Until there is a file `gate.WHO`.
    Gate,
}

/// The words of the command of `who`.
pub(crate) fn words(folder: &Path, who: &str, length: Length) -> Vec<String> {
    let own = std::env::current_exe().expect("this program");
    let length = match length {
        Length::For(length) => length.as_millis().to_string(),
        Length::Gate => "gate".to_owned(),
    };
    let words = [own.to_str(), Some("command"), folder.to_str(), Some(who), Some(&length)];
    words.map(|word| word.expect("UTF-8").to_owned()).to_vec()
}

/// Adds a line to what is known of a life.
pub(crate) fn note(folder: &Path, line: &str) {
    let log = OpenOptions::new().create(true).append(true).open(folder.join("log"));
    log.expect("a log").write_all(format!("{line}\n").as_bytes()).expect("a longer log");
}

pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// Is the command.
pub(crate) fn be(arguments: &[String]) -> ExitCode {
    let [folder, who, length] = arguments else { return ExitCode::from(99) };
    let folder = PathBuf::from(folder);
    let (mode, slot) = (variable("DLOCK_MODE"), variable("DLOCK_SLOT").parse().unwrap_or(0_u32));
    // Held to the end, whatever that is; the kernel says without any race whether another one is there.
    let Some(_alone) = alone(&folder, &mode, slot) else { return met(&folder, who) };
    let token = variable("DLOCK_TOKEN");
    note(&folder, &format!("start {who} {} {} {token} {slot} {mode}", now().as_micros(), std::process::id()));
    if let Ok(millis) = length.parse() {
        sleep(Duration::from_millis(millis));
    } else {
        let begun = now();
        while !folder.join(format!("gate.{who}")).exists() && now() < begun + LONG {
            sleep(Duration::from_millis(5));
        }
    }
    note(&folder, &format!("end {who} {}", now().as_micros()));
    ExitCode::from(u8::try_from(if who == "claim" { OWN } else { 0 }).expect("small"))
}

/// The right to run that the mode gives, of which no lock service knows.
fn alone(folder: &Path, mode: &str, slot: u32) -> Option<Vec<File>> {
    let one = |name: String, is_shared: bool| {
        let tree = File::options().create(true).append(true).open(folder.join(name)).expect("a file to lock");
        let [now, in_time] = if is_shared {
            [FlockOperation::NonBlockingLockShared, FlockOperation::LockShared]
        } else {
            [FlockOperation::NonBlockingLockExclusive, FlockOperation::LockExclusive]
        };
        if rustix::fs::flock(&tree, now).is_err() {
            // The last one may be dying: what it has open is closed a moment later.
            let minds = |its| its == slot || its == 0 || slot == 0;
            if begun(folder).into_iter().any(|(_, pid, its)| minds(its) && is_alive(pid)) {
                return None;
            }
            rustix::fs::flock(&tree, in_time).expect("it dies");
        }
        Some(tree)
    };
    let mut all = vec![one("tree".to_owned(), mode == "shared" || slot > 0)?];
    if slot > 0 {
        all.push(one(format!("tree.{slot}"), false)?);
    }
    Some(all)
}

/// Says beside whom it began, and does nothing.
fn met(folder: &Path, who: &str) -> ExitCode {
    let living: Vec<_> =
        begun(folder).into_iter().filter(|(_, pid, _)| is_alive(*pid)).map(|(who, ..)| who).collect();
    note(folder, &format!("overlap {who} began beside {}", living.join(", ")));
    ExitCode::from(98)
}

/// Who has begun: the name, the pid and the slot of each.
fn begun(folder: &Path) -> Vec<(String, i32, u32)> {
    let text = fs::read_to_string(folder.join("log")).unwrap_or_default();
    let one = |line: &str| {
        let words: Vec<&str> = line.strip_prefix("start ")?.split(' ').collect();
        Some((words[0].to_owned(), words[2].parse().ok()?, words[4].parse().ok()?))
    };
    text.lines().filter_map(one).collect()
}
