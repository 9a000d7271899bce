//! The settings of `run`.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};

use super::{Connection, connection, messages};
use crate::cli::args::{LockArgs, RunArgs};
use crate::cli::exit_code::{ExitCode, Hinted as _};
use crate::cli::layers::{Environment, Layers};
use crate::cli::source::{Source, SourcedText};
use crate::cli::values;
use crate::hold::Wait;
use crate::lock::{LockName, Mode};
use crate::output::{LogFormat, Verbosity, sanitise};
use crate::supervise::exit_status::ExitStatus;
use crate::supervise::signals::Signal;

/// The command that runs under the lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommandLine {
    /// A command and its arguments; at least one element.
    Argv(Vec<OsString>),
    /// A text for `/bin/sh -c`.
    Shell(OsString),
}

impl CommandLine {
    /// Returns the text for other clients: only the program, because arguments contain secrets.
    pub fn first_word(&self) -> String {
        match self {
            Self::Argv(argv) => argv.first().map_or_else(String::new, |word| sanitise::os(word)),
            Self::Shell(_) => "sh -c".to_owned(),
        }
    }

    /// Returns the program and its arguments.
    pub fn argv(&self) -> Vec<OsString> {
        match self {
            Self::Argv(argv) => argv.clone(),
            Self::Shell(text) => vec!["/bin/sh".into(), "-c".into(), text.clone()],
        }
    }
}

/// `dlock run`.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "one for each switch")]
pub struct RunSettings {
    /// The locks, without repetition, at least one.
    pub names: Vec<LockName>,
    /// The mode.
    pub mode: Mode,
    /// The wait for the lock.
    pub wait: Wait,
    /// The length of the lease, at least [`crate::lock::validity::LeaseTimes::LEAST_TTL`].
    pub ttl: Duration,
    /// The time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// The first signal when dlock stops the command.
    pub signal: Signal,
    /// The longest hold; never zero.
    pub max_run: Option<Duration>,
    /// The shortest hold.
    pub hold_at_least: Duration,
    /// The age of a success that makes this run unnecessary; never zero.
    pub once_per: Option<Duration>,
    /// Whether it replaces older waiters.
    pub supersede: bool,
    /// Whether it also replaces a holder with `--replace`.
    pub replace: bool,
    /// Whether it holds the lock until every descendant has exited.
    pub whole_tree: bool,
    /// Whether it queues separately inside a run that holds the lock.
    pub no_nest: bool,
    /// Whether the service manager receives READY=1 when the command starts.
    pub notify_ready: bool,
    /// The exit status when the lock was not acquired.
    pub busy_exit_code: u8,
    /// The command.
    pub command: CommandLine,
    /// The text for other users.
    pub label: Option<String>,
    /// Whether it campaigns again after each term (`elect --forever`).
    pub forever: bool,
    /// The file of the report.
    pub report: Option<PathBuf>,
    /// The file of the metrics.
    pub metrics_file: Option<PathBuf>,
    /// The lock service.
    pub connection: Connection,
    /// How much is printed.
    pub verbosity: Verbosity,
    /// The format of messages.
    pub log_format: LogFormat,
}

impl RunSettings {
    /// Resolves `args` with the environment and the configuration files.
    pub fn resolve(args: &RunArgs, around: &Environment) -> Result<Self> {
        let mut layers = Layers::load(&args.common.connection, around)?;
        let (verbosity, log_format) = messages(&mut layers, &args.common.messages, around)?;
        let mut setting = |option, flag: &Option<OsString>| layers.text(option, flag.as_deref());
        let ttl = setting("ttl", &args.lock.ttl)?;
        let grace = setting("grace", &args.lock.grace)?;
        let wait = setting("wait", &args.lock.wait)?;
        let label = setting("label", &args.label)?;
        let (mode, wait) = (mode(&args.lock)?, wait_of(args.lock.try_once, wait.as_ref())?);
        check_replace(args.replace, mode, wait)?;
        let path =
            |option, flag: &Option<OsString>| flag.as_deref().map(|f| values::file(f, option)).transpose();
        Ok(Self {
            names: names(&args.lock.name)?,
            mode,
            wait,
            ttl: ttl.as_ref().map_or(Ok(Duration::from_secs(30)), values::ttl)?,
            grace: grace.as_ref().map_or(Ok(Duration::from_secs(5)), values::length)?,
            signal: args.signal.as_deref().map_or(Ok(Signal::TERM), values::signal)?,
            max_run: flagged("max-run", args.max_run.as_deref())?,
            hold_at_least: flagged("hold-at-least", args.hold_at_least.as_deref())?.unwrap_or_default(),
            once_per: flagged("once-per", args.once_per.as_deref())?,
            supersede: args.supersede,
            replace: args.replace,
            whole_tree: args.whole_tree,
            no_nest: args.no_nest,
            notify_ready: args.notify_ready,
            busy_exit_code: args
                .lock
                .busy_exit_code
                .as_deref()
                .map_or(Ok(ExitCode::Busy.number()), values::exit_status)?,
            command: command_line(args)?,
            label: label.map(values::label).transpose()?.filter(|label| !label.is_empty()),
            forever: false,
            report: path("report", &args.report)?,
            metrics_file: path("metrics-file", &args.metrics_file)?,
            connection: connection(&mut layers, &args.common.connection)?,
            verbosity,
            log_format,
        })
    }
}

impl RunSettings {
    /// Returns how dlock ends if it did not acquire the lock.
    pub fn busy(&self) -> ExitStatus {
        ExitStatus::Exited(self.busy_exit_code)
    }
}

/// Returns a length of time that only a flag can set. Zero counts as unset.
fn flagged(option: &'static str, flag: Option<&OsStr>) -> Result<Option<Duration>> {
    let Some(flag) = flag else { return Ok(None) };
    let source = Source::Flag(option);
    let length = values::length(&SourcedText { text: values::line(option, flag, &source)?, source })?;
    Ok(Some(length).filter(|length| !length.is_zero()))
}

/// The most locks of one claim; each needs descriptors here and room in one request of a service.
const MOST_NAMES: usize = 64;

fn names(given: &[OsString]) -> Result<Vec<LockName>> {
    let mut names = Vec::with_capacity(given.len());
    for text in given {
        let name = values::name(text, "--name")?;
        if names.contains(&name) {
            bail!("--name {} is given twice", sanitise::text(name.as_str()));
        }
        names.push(name);
    }
    if names.len() > MOST_NAMES {
        let reason = format!("{} locks are too many at once; the most is {MOST_NAMES}", names.len());
        bail!(reason);
    }
    if names.is_empty() {
        let failure = anyhow!("--name is missing; name the lock with --name NAME");
        return Err(failure.hint("see dlock run --help"));
    }
    Ok(names)
}

fn mode(args: &LockArgs) -> Result<Mode> {
    let slots = args.slots.as_deref().map(values::slots).transpose()?;
    match (args.exclusive, args.shared, slots) {
        (_, false, None) => Ok(Mode::Exclusive),
        (false, true, None) => Ok(Mode::Shared),
        (false, false, Some(slots)) => Ok(Mode::Slots(slots)),
        _ => Err(anyhow!("a lock has one mode; choose one of --exclusive, --shared and --slots")),
    }
}

/// Checks `--replace`: the run holds the lock alone, and waits until the old command has exited.
fn check_replace(replace: bool, mode: Mode, wait: Wait) -> Result<()> {
    let reason = match (replace, mode, wait) {
        (true, Mode::Shared | Mode::Slots(_), _) => "--replace is for exclusive locks",
        (true, _, Wait::Once) => {
            "--replace waits until the command that it replaces has ended, and --try does not wait"
        }
        _ => return Ok(()),
    };
    Err(anyhow!(reason))
}

fn wait_of(try_once: bool, wait: Option<&SourcedText>) -> Result<Wait> {
    let Some(found) = wait else { return Ok(if try_once { Wait::Once } else { Wait::Forever }) };
    let length = values::length(found)?;
    match (try_once, &found.source) {
        (true, Source::Flag(_)) if !length.is_zero() => {
            Err(anyhow!("--try does not wait, so it cannot be together with --wait; choose one of them"))
        }
        (true, _) => Ok(Wait::Once),
        (false, _) if length.is_zero() => Ok(Wait::Once),
        (false, _) => Ok(Wait::AtMost(length)),
    }
}

fn command_line(args: &RunArgs) -> Result<CommandLine> {
    match (&args.shell_command, args.argv.as_slice()) {
        (Some(text), []) => Ok(CommandLine::Shell(text.clone())),
        (None, [_, ..]) => Ok(CommandLine::Argv(args.argv.clone())),
        (Some(_), [first, ..]) => {
            let first = sanitise::text(&sanitise::os(first));
            Err(anyhow!("--command and the command {first} are both given; choose one of them"))
        }
        (None, []) => Err(anyhow!("a command is missing; write it after the options")
            .hint("dlock run --name NAME -- COMMAND [ARG]...; see dlock run --help")),
    }
}
