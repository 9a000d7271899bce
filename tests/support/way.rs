//! The ways to hold a lock. The promises of one are the promises of all.

use std::fs;
use std::process::Command;

use super::process;
use super::running::{Finished, Running};
use super::test_env::TestEnv;

/// The subcommand by which a command gets its lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Run,
    /// A script acquires the lock with `acquire --for-pid` and becomes the command.
    Acquire,
    Elect,
    /// `elect --forever`.
    Forever,
}

/// `$0` words of options, then those of the command.
const SCRIPT: &str = r#"claim=$("$dlock" acquire --endpoint "$locks" "${@:1:$0}" --for-pid $$) || exit
eval "$claim"; exec "${@:$0+1}""#;

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::Run, Self::Acquire, Self::Elect, Self::Forever];
    /// Returns the command that runs `words` under the lock that the options describe.
    pub(crate) fn command<W: AsRef<str>>(self, env: &TestEnv, options: &[&str], words: &[W]) -> Command {
        let words = words.iter().map(AsRef::as_ref);
        let verb = match self {
            Self::Acquire => {
                let mut command = env.command("bash");
                command.args(["-c", SCRIPT, &options.len().to_string()]).args(options).args(words);
                return command;
            }
            Self::Run => "run",
            Self::Elect | Self::Forever => "elect",
        };
        let mut command = env.verb(verb, options);
        if self == Self::Forever {
            command.arg("--forever");
        }
        command.arg("--").args(words);
        command
    }

    /// Returns dlock's processes that hold the lock for `running`: the front and its keeper.
    pub(crate) fn pair(self, running: &Running) -> Option<(i32, i32)> {
        if self != Self::Acquire {
            return process::keeper_of(running.pid()).map(|keeper| (running.pid(), keeper));
        }
        let all = kept_for(running.pid());
        all.iter().find(|one| one.name == "lease-keeper").map(|keeper| (keeper.parent, keeper.pid))
    }

    /// Returns all of dlock's processes for `running`, including those that only wait for the pair.
    pub(crate) fn processes(self, running: &Running) -> Vec<i32> {
        if self == Self::Acquire {
            return kept_for(running.pid()).iter().map(|one| one.pid).collect();
        }
        [Some(running.pid()), process::keeper_of(running.pid())].into_iter().flatten().collect()
    }

    /// Expects that it ended because the lock on `name` was lost, with the message of this way.
    #[track_caller]
    pub(crate) fn lost(self, ended: Finished, name: &str) {
        if self == Self::Acquire {
            let by_dlock = matches!(ended.signal(), Some(15 | 9));
            assert!(by_dlock, "{:?}: {}", ended.status, ended.err);
        } else {
            ended.lost_its_lease(name);
        }
    }
}

/// Returns dlock's living processes that hold, or wait for, a lock for the process `pid`.
fn kept_for(pid: i32) -> Vec<process::Process> {
    let all = process::all().into_iter();
    all.filter(|one| one.is_alive() && served_by(one.pid) == Some(pid)).collect()
}

/// Returns the process for which the process `dlock` runs `acquire --for-pid`, if it does.
pub(crate) fn served_by(dlock: i32) -> Option<i32> {
    let line = fs::read(format!("/proc/{dlock}/cmdline")).ok()?;
    let mut words = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    // A script has the arguments of `acquire` among its own, so the program's name decides.
    words.next().filter(|word| word.ends_with("dlock"))?;
    words.find(|word| word == "--for-pid")?;
    words.next()?.parse().ok()
}
