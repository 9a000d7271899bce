//! Parses the words of the command line.

use std::ffi::OsString;

use clap::Parser as _;
use clap::error::ErrorKind;

use super::args::{CommandLine, Invocation};
use super::exit_code::{ExitCode, Hinted as _};
use super::page;
use super::usage;

/// Parses `words`, the command line without the name of the program.
///
/// Errors: usage.
pub fn parse(words: Vec<OsString>) -> anyhow::Result<Invocation> {
    let word = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    if words.is_empty() {
        return Err(ExitCode::Usage.error("a command is missing").hint("see dlock --help"));
    }
    if word == "__complete" {
        let words = words[1..].iter().map(|word| word.to_string_lossy().into_owned());
        return Ok(Invocation::Complete(words.collect()));
    }
    match CommandLine::try_parse_from(std::iter::once("dlock".into()).chain(words)) {
        Ok(line) => Ok(line.asked),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            Ok(Invocation::Text(error.to_string()))
        }
        Err(error) => {
            let is_subcommand = page::subcommands().any(|name| name == word);
            let program = if is_subcommand { format!("dlock {word}") } else { "dlock".to_owned() };
            Err(usage::failure(&error, &program))
        }
    }
}
