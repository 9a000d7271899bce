//! The settings of the commands that show and break claims.

use std::ffi::OsStr;

use anyhow::{Result, anyhow, bail};

use super::{Connection, connection, messages};
use crate::cli::args::{BreakArgs, CommonArgs, ListArgs, StatusArgs, WatchArgs};
use crate::cli::exit_code::Hinted as _;
use crate::cli::layers::{Environment, Layers};
use crate::cli::values;
use crate::lock::LockName;
use crate::output::sanitise;

/// The settings of commands that do not acquire a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Viewing {
    /// Whether the output is JSON.
    pub json: bool,
    /// The lock service.
    pub connection: Connection,
}

/// `dlock status`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatusSettings {
    /// The locks, in their order. Without one, all that have holders or waiters.
    pub names: Vec<LockName>,
    /// Whether all columns are shown.
    pub wide: bool,
    /// Whether the exit status is 75 if one of the locks is in use.
    pub exit_code: bool,
    /// The settings of all such commands.
    pub viewing: Viewing,
}

/// `dlock list`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListSettings {
    /// The beginning of the names.
    pub starting_with: String,
    /// The settings of all such commands.
    pub viewing: Viewing,
}

/// `dlock watch`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchSettings {
    /// The lock.
    pub name: LockName,
    /// The settings of all such commands.
    pub viewing: Viewing,
}

/// Which claims to break.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// The claim whose id starts with these hexadecimal digits.
    Claim(String),
    /// The only one there is.
    Only,
    /// All.
    All,
}

/// `dlock break`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BreakSettings {
    /// The lock.
    pub name: LockName,
    /// Which claims.
    pub target: Target,
    /// Whether to skip the question.
    pub yes: bool,
    /// Whether to remove the entry at once.
    pub force: bool,
    /// The settings of all such commands.
    pub viewing: Viewing,
}

pub(super) fn viewing(json: bool, args: &CommonArgs, around: &Environment) -> Result<Viewing> {
    let mut layers = Layers::load(&args.connection, around)?;
    messages(&mut layers, &args.messages, around)?;
    Ok(Viewing { json, connection: connection(&mut layers, &args.connection)? })
}

impl StatusSettings {
    /// Resolves `args` with the environment and the configuration files.
    pub fn resolve(args: &StatusArgs, around: &Environment) -> Result<Self> {
        let given = args.names.iter().chain(&args.named);
        let names = given.map(|text| values::name(text, "NAME")).collect::<Result<_, _>>()?;
        let viewing = viewing(args.json, &args.common, around)?;
        Ok(Self { names, wide: args.wide, exit_code: args.exit_code, viewing })
    }
}

impl ListSettings {
    /// Resolves `args` with the environment and the configuration files.
    pub fn resolve(args: &ListArgs, around: &Environment) -> Result<Self> {
        let starting_with = match &args.starting_with {
            None => String::new(),
            Some(text) => values::beginning(text, "PREFIX")?,
        };
        Ok(Self { starting_with, viewing: viewing(args.json, &args.common, around)? })
    }
}

impl WatchSettings {
    /// Resolves `args` with the environment and the configuration files.
    pub fn resolve(args: &WatchArgs, around: &Environment) -> Result<Self> {
        let name = values::one_name(&args.lock)?;
        Ok(Self { name, viewing: viewing(args.json, &args.common, around)? })
    }
}

impl BreakSettings {
    /// Resolves `args` with the environment and the configuration files.
    pub fn resolve(args: &BreakArgs, around: &Environment) -> Result<Self> {
        let target = match (&args.claim, args.all) {
            (Some(id), false) => Target::Claim(claim_digits("--claim", id)?),
            (None, true) => Target::All,
            (Some(_), true) => {
                bail!("--claim and --all are both given; choose one of them");
            }
            (None, false) => Target::Only,
        };
        Ok(Self {
            name: values::one_name(&args.lock)?,
            target,
            yes: args.yes,
            force: args.force,
            viewing: viewing(false, &args.common, around)?,
        })
    }
}

/// Returns the first digits of an id. Fewer than eight could belong to another claim after a change of the queue.
pub(super) fn claim_digits(place: &str, id: &OsStr) -> Result<String> {
    let digits = id.to_str().map(str::to_ascii_lowercase).unwrap_or_default();
    if (8..=32).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(digits);
    }
    Err(anyhow!(
        "{place}: {:?} is not a claim id; write its 32 hexadecimal digits, or the first 8 or more of them",
        sanitise::os(id)
    )
    .hint("dlock status NAME shows the claims"))
}
