//! Usage errors as one line and a hint, instead of clap's paragraphs.

use std::error::Error as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::exit_code::{ExitCode, Hinted as _};
use super::page::subcommands;

/// Returns the error that clap found on the command line of `program` (`dlock run`).
pub fn failure(error: &clap::Error, program: &str) -> anyhow::Error {
    let argument = text(error, ContextKind::InvalidArg);
    // `--ttl <DURATION>` is shown as `--ttl`, `<NAME>...` as NAME.
    let option = argument.split(' ').next().unwrap_or_default().trim_matches(['<', '>', '.', '[', ']']);
    let value = text(error, ContextKind::InvalidValue);
    let see = format!("see {program} --help");
    let (reason, hint) = match error.kind() {
        ErrorKind::UnknownArgument if option.starts_with('-') => {
            let nearest = text(error, ContextKind::SuggestedArg);
            let hint = if nearest.is_empty() { see } else { format!("did you mean {nearest}? {see}") };
            (format!("unknown option {option}"), hint)
        }
        ErrorKind::UnknownArgument => (format!("unexpected argument {argument}"), see),
        ErrorKind::MissingRequiredArgument => {
            // `<--for-pid <PID>|--detach>`: one of them is enough.
            let first = argument.split(", ").next().unwrap_or_default();
            let options: Vec<_> =
                first.split(['<', '>', '|', ' ']).filter(|word| word.starts_with("--")).collect();
            let missing = if options.is_empty() { option.to_owned() } else { options.join(" or ") };
            (format!("{missing} is missing"), see)
        }
        ErrorKind::InvalidValue if value.is_empty() => {
            let hint = format!("write {option}=VALUE if the value starts with a dash; {see}");
            (format!("{option} needs a value"), hint)
        }
        ErrorKind::InvalidValue => {
            let known = text(error, ContextKind::ValidValue);
            (format!("{option}: {value:?} is not one of {known}"), see)
        }
        ErrorKind::ValueValidation => {
            let mut why = error.source().map(ToString::to_string).unwrap_or_default();
            if why.contains("invalid digit") {
                why = format!("{value:?} is not a number");
            }
            if why.contains("..=") {
                why = why.replace(" is not in ", " is not between ").replace("..=", " and ");
            }
            (format!("{option}: {why}"), see)
        }
        ErrorKind::TooManyValues => (format!("{option} takes no value, but {value:?} was given"), see),
        ErrorKind::InvalidUtf8 => ("an argument is not valid UTF-8".to_owned(), see),
        ErrorKind::InvalidSubcommand => return unknown_command(&text(error, ContextKind::InvalidSubcommand)),
        _ => {
            let rendered = error.to_string();
            let line = rendered.lines().next().unwrap_or_default();
            (line.trim_start_matches("error: ").to_owned(), see)
        }
    };
    ExitCode::Usage.error(reason).hint(hint)
}

fn text(error: &clap::Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        _ => String::new(),
    }
}

/// Returns the error of a first argument that is not a subcommand.
pub fn unknown_command(word: &str) -> anyhow::Error {
    let hint = match nearest(word, subcommands()) {
        Some(name) => format!("did you mean dlock {name}? see dlock --help"),
        None => format!("to run a command under a lock: dlock run --name NAME -- {word}"),
    };
    ExitCode::Usage.error(format!("unknown command {word}")).hint(hint)
}

/// Returns the candidate most similar to `word`, if one is similar enough.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // In a short word one slip is a large part.
    let slip = |c: &str| c.len() > 2 && strsim::damerau_levenshtein(word, c) == 1;
    let scored = candidates.map(|c| (if slip(c) { 0.9 } else { strsim::jaro_winkler(word, c) }, c));
    scored.filter(|(score, _)| *score > 0.75).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, c)| c)
}
