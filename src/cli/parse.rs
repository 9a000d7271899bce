//! From the words of the command line to what was asked for.

use std::ffi::OsString;
use std::mem::ManuallyDrop;

use clap::FromArgMatches as _;
use clap::error::ErrorKind;

use super::args::{
    self, AcquireArgs, BreakArgs, ClaimArgs, CompletionsArgs, DoctorArgs, ElectArgs, LeaderArgs, ListArgs,
    ManArgs, ProclaimArgs, RunArgs, StatusArgs, Subcommand, WatchArgs,
};
use super::exit_code::Failure;
use super::usage;

/// What was asked for.
#[derive(Debug)]
pub enum Invocation {
    /// `dlock run`.
    Run(Box<RunArgs>),
    /// `dlock elect`.
    Elect(Box<ElectArgs>),
    /// `dlock proclaim`.
    Proclaim(ProclaimArgs),
    /// `dlock leader`.
    Leader(LeaderArgs),
    /// `dlock acquire`.
    Acquire(Box<AcquireArgs>),
    /// `dlock release`.
    Release(ClaimArgs),
    /// `dlock renew`.
    Renew(ClaimArgs),
    /// `dlock status`.
    Status(StatusArgs),
    /// `dlock list`.
    List(ListArgs),
    /// `dlock watch`.
    Watch(WatchArgs),
    /// `dlock break`.
    Break(BreakArgs),
    /// `dlock doctor`.
    Doctor(DoctorArgs),
    /// `dlock completions`.
    Completions(CompletionsArgs),
    /// `dlock man`.
    Man(ManArgs),
    /// What the completions of a shell ask for: the words to the cursor.
    Complete(Vec<String>),
    /// `--help` or `--version`: the text to print.
    Text(String),
}

/// Reads `words`, without the program's own name. Failures are usage errors.
pub fn parse(words: Vec<OsString>) -> Result<Invocation, Failure> {
    let Some(first) = words.first() else {
        return Err(Failure::usage("a command is missing").hint("see dlock --help"));
    };
    let word = first.to_string_lossy();
    if let Some(subcommand) = Subcommand::named(&word) {
        return parse_subcommand(subcommand, words);
    }
    if word == "__complete" {
        let words = words[1..].iter().map(|word| word.to_string_lossy().into_owned());
        return Ok(Invocation::Complete(words.collect()));
    }
    if !matches!(&*word, "help" | "-h" | "--help" | "-V" | "--version") {
        return Err(usage::unknown_command(&word));
    }
    let whole = std::iter::once(OsString::from("dlock")).chain(words);
    match args::command().try_get_matches_from(whole) {
        Err(error) => displayed(&error, "dlock"),
        Ok(_) => Err(Failure::usage("a command is missing").hint("see dlock --help")),
    }
}

fn parse_subcommand(subcommand: Subcommand, words: Vec<OsString>) -> Result<Invocation, Failure> {
    let program = format!("dlock {}", subcommand.name());
    // Both are thousands of pieces, which are gone with the process as well as one by one.
    let mut command = ManuallyDrop::new(subcommand.command());
    let parsed = command.try_get_matches_from_mut(words).and_then(|matches| {
        let m = &mut *ManuallyDrop::new(matches);
        Ok(match subcommand {
            Subcommand::Run => Invocation::Run(Box::new(RunArgs::from_arg_matches_mut(m)?)),
            Subcommand::Elect => Invocation::Elect(Box::new(ElectArgs::from_arg_matches_mut(m)?)),
            Subcommand::Proclaim => Invocation::Proclaim(ProclaimArgs::from_arg_matches_mut(m)?),
            Subcommand::Leader => Invocation::Leader(LeaderArgs::from_arg_matches_mut(m)?),
            Subcommand::Acquire => Invocation::Acquire(Box::new(AcquireArgs::from_arg_matches_mut(m)?)),
            Subcommand::Release => Invocation::Release(ClaimArgs::from_arg_matches_mut(m)?),
            Subcommand::Renew => Invocation::Renew(ClaimArgs::from_arg_matches_mut(m)?),
            Subcommand::Status => Invocation::Status(StatusArgs::from_arg_matches_mut(m)?),
            Subcommand::List => Invocation::List(ListArgs::from_arg_matches_mut(m)?),
            Subcommand::Watch => Invocation::Watch(WatchArgs::from_arg_matches_mut(m)?),
            Subcommand::Break => Invocation::Break(BreakArgs::from_arg_matches_mut(m)?),
            Subcommand::Doctor => Invocation::Doctor(DoctorArgs::from_arg_matches_mut(m)?),
            Subcommand::Completions => Invocation::Completions(CompletionsArgs::from_arg_matches_mut(m)?),
            Subcommand::Man => Invocation::Man(ManArgs::from_arg_matches_mut(m)?),
        })
    });
    parsed.or_else(|error| displayed(&error, &program))
}

fn displayed(error: &clap::Error, program: &str) -> Result<Invocation, Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(Invocation::Text(error.to_string())),
        _ => Err(usage::failure(error, program)),
    }
}
