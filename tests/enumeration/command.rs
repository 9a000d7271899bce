//! The protected command. It notes when it begins and ends, and detects whether it overlaps with another.
//!
//! All members of a command's tree inherit one open file with a flock(2). So the kernel shows without a race whether a
//! member of another tree lives.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::FdFlags;

use super::process;
use crate::support::wait::holds_within;
use crate::support::witness::now;

/// The status of a command under test that exits without a signal.
pub(crate) const OWN: i32 = 7;

/// Longer than any point takes.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// Returns the manner of a command that takes that long.
pub(crate) fn lasting(length: Duration) -> String {
    length.as_millis().to_string()
}

/// Runs as the command.
pub(crate) fn be(arguments: &[String]) -> ExitCode {
    let [folder, who, manner] = arguments else { return ExitCode::from(99) };
    let folder = PathBuf::from(folder);
    let member = Member::begin(&folder, who);
    member.lead(|| {}, || member.work(manner))
}

/// Returns the words of the command of `who`, which behaves as `manner` says.
pub(crate) fn words(folder: &Path, who: &str, manner: &str) -> Vec<String> {
    let own = std::env::current_exe().expect("this program");
    let words = [own.to_str(), Some("command"), folder.to_str(), Some(who), Some(manner)];
    words.map(|word| word.expect("UTF-8").to_owned()).to_vec()
}

/// Adds a line to the log of a point.
pub(crate) fn note(folder: &Path, line: &str) {
    let log = OpenOptions::new().create(true).append(true).open(folder.join("log"));
    log.expect("a log").write_all(format!("{line}\n").as_bytes()).expect("a longer log");
}

/// Returns the log of a point so far.
pub(crate) fn log(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("log")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Returns how often the log has a line that begins with these words.
pub(crate) fn times_noted(folder: &Path, what: &str) -> usize {
    let is_it = |line: &&String| *line == what || line.starts_with(&format!("{what} "));
    log(folder).iter().filter(is_it).count()
}

/// Returns the notes of commands that ran beside another one.
pub(crate) fn overlaps(log: &[String]) -> impl Iterator<Item = String> {
    log.iter().filter(|line| line.starts_with("overlap ")).cloned()
}

pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// Waits for a file `gate.WHO`.
pub(crate) fn await_gate(folder: &Path, who: &str) {
    holds_within(LONG, Duration::from_millis(2), || folder.join(format!("gate.{who}")).exists());
}

/// This process, as a member of the tree of a command.
pub(crate) struct Member<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) who: &'a str,
    mode: String,
    slot: u32,
}

impl<'a> Member<'a> {
    /// Notes this process, before it takes any right.
    pub(crate) fn begin(folder: &'a Path, who: &'a str) -> Self {
        let (mode, slot) = (variable("DLOCK_MODE"), variable("DLOCK_SLOT").parse().unwrap_or(0));
        note(folder, &format!("member {who} {} {slot}", std::process::id()));
        Self { folder, who, mode, slot }
    }

    /// Runs the command under the right to run, which is held until its end.
    pub(crate) fn lead(&self, prepare: impl FnOnce(), work: impl FnOnce()) -> ExitCode {
        let _tree = self.alone();
        prepare();
        self.start();
        work();
        self.end();
        let is_struck = ["run", "claim"].contains(&self.who);
        ExitCode::from(u8::try_from(if is_struck { OWN } else { 0 }).expect("small"))
    }

    /// Takes so many milliseconds. Any other manner waits for a file `gate.WHO`.
    pub(crate) fn work(&self, manner: &str) {
        match manner.parse() {
            Ok(millis) => sleep(Duration::from_millis(millis)),
            Err(_) => await_gate(self.folder, self.who),
        }
    }

    /// Takes the right to run that the mode grants, for the whole tree, without the lock service. Notes an overlap and
    /// returns `None` if a member of another tree that excludes this one lives.
    pub(crate) fn alone(&self) -> Option<Vec<File>> {
        let mut all = vec![self.one("tree".to_owned(), self.mode == "shared" || self.slot > 0)?];
        if self.slot > 0 {
            all.push(self.one(format!("tree.{}", self.slot), false)?);
        }
        Some(all)
    }

    fn one(&self, name: String, is_shared: bool) -> Option<File> {
        let tree = File::options().create(true).append(true).open(self.folder.join(name));
        let tree = tree.expect("a file to lock");
        rustix::io::fcntl_setfd(&tree, FdFlags::empty()).expect("inheritable");
        let [now, in_time] = if is_shared {
            [FlockOperation::NonBlockingLockShared, FlockOperation::LockShared]
        } else {
            [FlockOperation::NonBlockingLockExclusive, FlockOperation::LockExclusive]
        };
        if rustix::fs::flock(&tree, now).is_err() {
            let excludes = |slot| slot == self.slot || slot == 0 || self.slot == 0;
            let own = std::process::id().cast_signed();
            let others = members(self.folder).into_iter().filter(|other| other.pid != own);
            let living: Vec<_> = others
                .filter(|other| excludes(other.slot) && process::lives(other.pid))
                .map(|other| format!("{} {}", other.who, process::describe(other.pid)))
                .collect();
            if !living.is_empty() {
                note(self.folder, &format!("overlap {} began beside {}", self.who, living.join(", ")));
                return None;
            }
            // The last member is dying: the kernel closes its files a moment later.
            rustix::fs::flock(&tree, in_time).expect("it dies");
        }
        Some(tree)
    }

    /// Notes the start of the command.
    pub(crate) fn start(&self) {
        let (pid, token) = (std::process::id(), variable("DLOCK_TOKEN"));
        let Self { who, mode, slot, .. } = self;
        note(self.folder, &format!("start {who} {} {pid} {token} {slot} {mode}", now().as_micros()));
    }

    /// Notes the end of the command.
    pub(crate) fn end(&self) {
        note(self.folder, &format!("end {} {}", self.who, now().as_micros()));
    }
}

/// A process that belonged to a command.
pub(crate) struct Noted {
    pub(crate) who: String,
    pub(crate) pid: i32,
    slot: u32,
}

/// Returns every process that belonged to a command.
pub(crate) fn members(folder: &Path) -> Vec<Noted> {
    let member = |line: &String| {
        let [who, pid, slot] =
            line.strip_prefix("member ")?.split(' ').collect::<Vec<_>>().try_into().ok()?;
        Some(Noted { who: who.to_owned(), pid: pid.parse().ok()?, slot: slot.parse().ok()? })
    };
    log(folder).iter().filter_map(member).collect()
}
