//! The settings of the commands about elections.

use std::ffi::OsStr;

use anyhow::{Result, anyhow, bail};

use super::looks::viewing;
use super::{RunSettings, Viewing};
use crate::cli::args::{ElectArgs, LeaderArgs, ProclaimArgs};
use crate::cli::exit_code::Hinted as _;
use crate::cli::layers::Environment;
use crate::cli::values;
use crate::lock::LockName;
use crate::output::sanitise;

/// `dlock proclaim`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProclaimSettings {
    /// The new value.
    pub value: String,
    /// The settings of all such commands.
    pub viewing: Viewing,
}

/// `dlock leader`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaderSettings {
    /// The lock.
    pub name: LockName,
    /// Whether changes are shown.
    pub follow: bool,
    /// The settings of all such commands.
    pub viewing: Viewing,
}

/// Returns a value, from the option or argument `place`.
fn value(text: &OsStr, place: &str) -> Result<String> {
    let Some(text) = text.to_str() else {
        bail!("{place}: {} is not valid UTF-8", sanitise::os(text));
    };
    values::shown_text(text.to_owned(), place, "a value")
}

/// Refuses options of `run` that elections do not have.
fn refuse_what_does_not_elect(args: &ElectArgs) -> Result<()> {
    let run = &args.run;
    if run.lock.name.is_empty() {
        let failure = anyhow!("--name is missing; name the election with --name NAME");
        return Err(failure.hint("see dlock elect --help"));
    }
    if run.lock.name.len() > 1 {
        bail!("an election has one name; dlock run takes several");
    }
    if run.lock.shared || run.lock.slots.is_some() {
        bail!("an election has one leader; --shared and --slots are for dlock run");
    }
    if run.replace {
        bail!("--replace is for dlock run; a leader is not replaced by a newer candidate");
    }
    if run.label.is_some() {
        bail!("--label is for dlock run; what others see of a leader is --value");
    }
    if run.argv.is_empty() && run.shell_command.is_none() {
        let failure = anyhow!("a command is missing; write it after the options");
        return Err(failure.hint("dlock elect --name NAME -- COMMAND [ARG]...; see dlock elect --help"));
    }
    Ok(())
}

impl RunSettings {
    /// Resolves `args` with the environment and the configuration files, to a run whose label is the value.
    pub fn of_election(args: &ElectArgs, around: &Environment) -> Result<Self> {
        refuse_what_does_not_elect(args)?;
        let run = Self::resolve(&args.run, around)?;
        if args.forever && run.once_per.is_some() {
            bail!("--once-per cannot be combined with --forever");
        }
        let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        let value = args.value.as_deref().map(|text| value(text, "--value")).transpose()?;
        Ok(Self { label: Some(value.unwrap_or_else(host)), forever: args.forever, ..run })
    }
}

impl ProclaimSettings {
    /// Resolves `args` with the environment and the configuration files.
    pub fn resolve(args: &ProclaimArgs, around: &Environment) -> Result<Self> {
        let Some(text) = &args.value else {
            bail!("VALUE is missing; say what to proclaim");
        };
        let viewing = viewing(false, &args.common, around)?;
        Ok(Self { value: value(text, "VALUE")?, viewing })
    }
}

impl LeaderSettings {
    /// Resolves `args` with the environment and the configuration files.
    pub fn resolve(args: &LeaderArgs, around: &Environment) -> Result<Self> {
        let name = values::one_name(&args.election)?;
        let viewing = viewing(args.json, &args.common, around)?;
        Ok(Self { name, follow: args.follow, viewing })
    }
}
