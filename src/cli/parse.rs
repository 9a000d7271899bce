//! Parses the words of the command line.

use std::ffi::OsString;
use std::mem::ManuallyDrop;

use clap::FromArgMatches as _;
use clap::error::ErrorKind;

use super::args::{self, CommandLine, Invocation};
use super::exit_code::{ExitCode, Hinted as _};
use super::page;
use super::usage;

/// Parses `words`, the command line without the name of the program.
///
/// Errors: usage.
pub fn parse(words: Vec<OsString>) -> anyhow::Result<Invocation> {
    let Some(first) = words.first() else {
        return Err(ExitCode::Usage.error("a command is missing").hint("see dlock --help"));
    };
    let word = first.to_string_lossy();
    let is_subcommand = page::subcommands().any(|name| name == word);
    let program = if is_subcommand { format!("dlock {word}") } else { "dlock".to_owned() };
    match &*word {
        "__complete" => {
            let words = words[1..].iter().map(|word| word.to_string_lossy().into_owned());
            return Ok(Invocation::Complete(words.collect()));
        }
        "help" | "-h" | "--help" | "-V" | "--version" => {}
        _ if is_subcommand => {}
        word => return Err(usage::unknown_command(word)),
    }
    // Freeing their thousands of pieces takes time, and the process ends soon.
    let mut command = ManuallyDrop::new(args::command());
    let whole = std::iter::once(OsString::from("dlock")).chain(words);
    let parsed = command
        .try_get_matches_from_mut(whole)
        .and_then(|matches| CommandLine::from_arg_matches_mut(&mut ManuallyDrop::new(matches)));
    match parsed {
        Ok(line) => Ok(line.asked),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            Ok(Invocation::Text(error.to_string()))
        }
        Err(error) => Err(usage::failure(&error, &program)),
    }
}
