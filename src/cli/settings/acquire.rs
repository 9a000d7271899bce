//! The settings of `acquire`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use anyhow::Result;

use super::RunSettings;
use crate::cli::args::{AcquireArgs, RunArgs};
use crate::cli::layers::Environment;
use crate::lock::Moment;
use crate::output::assignments::Format;

/// `dlock acquire`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AcquireSettings {
    /// The settings of `run`; other clients see the command.
    pub run: RunSettings,
    /// The process that uses the lock. Without one it is a lease of one TTL, unless it is renewed.
    pub for_pid: Option<i32>,
    /// The format of the claim.
    pub format: Format,
}

impl AcquireSettings {
    /// Resolves `args` with the environment and the configuration files.
    pub fn resolve(args: AcquireArgs, around: &Environment, started: Moment) -> Result<Self> {
        let run_args = RunArgs {
            // Other clients see the name of the process, or the command that acquired the lease.
            argv: vec![args.for_pid.and_then(first_word).unwrap_or_else(|| "dlock acquire".into())],
            lock: args.lock,
            supersede: args.supersede,
            no_nest: true,
            label: args.label,
            common: args.common,
            ..RunArgs::default()
        };
        let format = args.format.as_deref().and_then(Format::named).unwrap_or_default();
        let run = RunSettings::resolve(run_args, around, started)?;
        Ok(Self { run, for_pid: args.for_pid, format })
    }
}

/// Returns the first word of the process's command line.
fn first_word(pid: i32) -> Option<OsString> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let word = line.split(|byte| *byte == 0).next().filter(|word| !word.is_empty())?;
    Some(OsString::from_vec(word.to_vec()))
}
