//! The settings of `elect`.

use anyhow::{Result, bail};

use super::RunSettings;
use crate::cli::args::ElectArgs;
use crate::cli::layers::Environment;
use crate::lock::Moment;

impl RunSettings {
    /// Resolves `args` with the environment and the configuration files, to a run whose label is the value.
    pub fn of_election(args: ElectArgs, around: &Environment, started: Moment) -> Result<Self> {
        let ElectArgs { value, forever, run } = args;
        let unfit = [
            (run.lock.name.len() > 1, "an election has one name; dlock run takes several"),
            (
                run.lock.shared || run.lock.slots.is_some(),
                "an election has one leader; --shared and --slots are for dlock run",
            ),
            (run.replace, "--replace is for dlock run; a leader is not replaced by a newer candidate"),
            (run.label.is_some(), "--label is for dlock run; what others see of a leader is --value"),
            (
                forever && run.once_per.is_some_and(|age| !age.is_zero()),
                "--once-per cannot be combined with --forever",
            ),
        ];
        if let Some((_, why)) = unfit.into_iter().find(|(is_given, _)| *is_given) {
            bail!(why);
        }
        let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        let run = Self::resolve(run, around, started)?;
        Ok(Self { label: Some(value.unwrap_or_else(host)), forever, ..run })
    }
}
