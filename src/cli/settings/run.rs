//! The settings of a run.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Context as _, Error, Result, bail, ensure};

use super::{Connection, connection, set_printer};
use crate::cli::args::{LockArgs, RunArgs};
use crate::cli::layers::{Environment, Layers};
use crate::cli::source::{Source, SourcedText};
use crate::cli::values;
use crate::hold::{Plan, Wait};
use crate::lock::{LockName, Mode, Moment};
use crate::output::sanitise;
use crate::supervise::exit_status::ExitStatus;

/// `dlock run`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunSettings {
    /// The arguments.
    pub args: RunArgs,
    /// The mode of the lock.
    pub mode: Mode,
    /// The instants and durations of the hold.
    pub plan: Plan,
    /// The command and its arguments.
    pub argv: Vec<OsString>,
    /// The text for other clients: only the program, because arguments contain secrets.
    pub first_word: String,
    /// The text for other users.
    pub label: Option<String>,
    /// Whether it campaigns again after each term (`elect --forever`).
    pub forever: bool,
    /// The lock service.
    pub connection: Connection,
}

impl RunSettings {
    /// Resolves `args` with the environment and the configuration files. The run began at `started`.
    pub fn resolve(args: RunArgs, around: &Environment, started: Moment) -> Result<Self> {
        let mut layers = Layers::load(&args.common.connection, around)?;
        set_printer(&mut layers, &args.common.messages, around)?;
        let mut setting = |option, flag: &Option<OsString>| layers.text(option, flag.as_deref());
        let ttl = setting("ttl", &args.lock.ttl)?;
        let grace = setting("grace", &args.lock.grace)?;
        let wait = setting("wait", &args.lock.wait)?;
        let label = setting("label", &args.label)?;
        let label = label.map(|found| values::shown(&found.text).map_err(Error::msg).context(found.source));
        let (mode, wait) = (mode(&args.lock), wait_of(args.lock.try_once, wait.as_ref())?);
        check_names(&args.lock.name)?;
        ensure!(!args.replace || mode == Mode::Exclusive, "--replace is for exclusive locks");
        ensure!(
            !args.replace || wait != Wait::Once,
            "--replace waits until the command that it replaces has ended, and --try does not wait"
        );
        let plan = Plan {
            started,
            wait,
            ttl: ttl.as_ref().map_or(Ok(Duration::from_secs(30)), values::ttl)?,
            grace: grace.as_ref().map_or(Ok(Duration::from_secs(5)), values::length)?,
            signal: args.signal.unwrap_or_default(),
            max_run: args.max_run.filter(|length| !length.is_zero()),
            hold_at_least: args.hold_at_least.unwrap_or_default(),
            supersede: args.supersede || args.replace,
            whole_tree: args.whole_tree,
        };
        let connection = connection(&mut layers, &args.common.connection)?;
        let (command, first_word) = match (&args.shell_command, args.argv.first()) {
            (Some(text), _) => (vec!["/bin/sh".into(), "-c".into(), text.clone()], "sh -c".to_owned()),
            (None, word) => (args.argv.clone(), word.map(|word| sanitise::os(word)).unwrap_or_default()),
        };
        Ok(Self {
            mode,
            plan,
            argv: command,
            first_word,
            label: label.transpose()?.filter(|label| !label.is_empty()),
            forever: false,
            connection,
            args,
        })
    }

    /// Returns the names of the locks.
    pub fn names(&self) -> &[LockName] {
        &self.args.lock.name
    }

    /// Returns the age of a success that makes this run unnecessary; never zero.
    pub fn once_per(&self) -> Option<Duration> {
        self.args.once_per.filter(|length| !length.is_zero())
    }

    /// Returns how dlock ends if it did not acquire the lock.
    pub fn busy(&self) -> ExitStatus {
        ExitStatus::Exited(self.args.lock.busy_exit_code)
    }
}

/// The most locks of one claim; each needs descriptors here and room in one request of a service.
const MOST_NAMES: usize = 64;

fn check_names(names: &[LockName]) -> Result<()> {
    let count = names.len();
    ensure!(count <= MOST_NAMES, "{count} locks are too many at once; the most is {MOST_NAMES}");
    let again = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name));
    again.map_or(Ok(()), |(_, name)| bail!("--name {} is given twice", sanitise::text(name.as_str())))
}

fn mode(args: &LockArgs) -> Mode {
    match (args.shared, args.slots) {
        (true, _) => Mode::Shared,
        (_, Some(slots)) => Mode::Slots(slots),
        _ => Mode::Exclusive,
    }
}

fn wait_of(try_once: bool, wait: Option<&SourcedText>) -> Result<Wait> {
    let Some(found) = wait else { return Ok(if try_once { Wait::Once } else { Wait::Forever }) };
    let length = values::length(found)?;
    match (try_once, &found.source) {
        (true, Source::Flag(_)) if !length.is_zero() => {
            bail!("--try does not wait, so it cannot be together with --wait; choose one of them")
        }
        // A configured wait yields to a flag.
        (true, _) => Ok(Wait::Once),
        (false, _) if length.is_zero() => Ok(Wait::Once),
        (false, _) => Ok(Wait::AtMost(length)),
    }
}
