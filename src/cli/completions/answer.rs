//! Candidates for the next word of an unfinished command line, from clap's completion engine.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use clap::{Arg, ArgMatches, FromArgMatches as _, ValueHint};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, complete};

use crate::backend::Backend;
use crate::backend::locator::SERVICES;
use crate::cli::args::{self, CommonArgs, ConnectionArgs};
use crate::cli::connect;
use crate::cli::layers::Environment;
use crate::cli::settings::Connection;
use crate::clock;
use crate::lock::{Entry, LockName};
use crate::output::{Party, Printer};

/// The time limit of a request: a user waits for the answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Marks of candidates that the shell completes. No word of a command line contains a tab.
const COMMAND: &str = "\tcommand";
const FILES: &str = "\tfiles";
const DIRECTORIES: &str = "\tdirectories";

/// A candidate and its meaning.
type Candidate = (String, String);

/// Returns the candidates for the last of `words`, those after `dlock`, in the form that the scripts read. Changes nothing.
/// Candidates that cannot be found out are left out.
pub fn answer(words: &[String]) -> String {
    let mut line: Vec<OsString> =
        std::iter::once("dlock").chain(words.iter().map(String::as_str)).map(Into::into).collect();
    if line.len() == 1 {
        line.push(OsString::new());
    }
    let (typed, before) =
        line.split_last().map_or((OsString::new(), &[][..]), |(last, rest)| (last.clone(), rest));
    let said = args::command().ignore_errors(true).try_get_matches_from(before).unwrap_or_default();
    let said = said.subcommand().map_or_else(ArgMatches::default, |(_, matches)| matches.clone());
    let run = said.try_get_raw("argv").ok().flatten().map_or(0, Iterator::count);
    let at = line.len() - 1;
    if run > 0 {
        return format!("command {}\n", at - run);
    }
    let mut command =
        args::whole().mut_subcommands(|subcommand| subcommand.mut_args(|arg| with_values(arg, &said)));
    let found = complete(&mut command, line, at, None).unwrap_or_default();
    let (mut out, mut shells) = (String::new(), None);
    for candidate in &found {
        let word = candidate.get_value().to_string_lossy();
        if let Some((_, kind)) = word.split_once('\t') {
            shells = Some(if kind == &COMMAND[1..] { format!("{kind} {at}\n") } else { format!("{kind}\n") });
        } else if word.starts_with('-') == typed.to_string_lossy().starts_with('-') {
            // Options are candidates only for a word that begins as one: the engine offers them everywhere.
            let meaning =
                candidate.get_help().map(|help| format!("\t{}", help.to_string().replace('\n', " ")));
            writeln!(out, "{word}{}", meaning.unwrap_or_default()).expect("writing to a String cannot fail");
        }
    }
    match shells {
        Some(shells) if out.is_empty() => shells,
        _ => format!("words\n{out}"),
    }
}

/// Adds to `arg` the candidates for its values; `said` are the arguments before it.
fn with_values(arg: Arg, said: &ArgMatches) -> Arg {
    let said = said.clone();
    let values: Box<dyn Fn() -> Vec<Candidate> + Send + Sync> = match arg.get_id().as_str() {
        "name" | "names" | "named" | "starting_with" => Box::new(move || locks(&said).unwrap_or_default()),
        "claim" => Box::new(move || claims(&said).unwrap_or_default()),
        "backend" => Box::new(|| plain(SERVICES.iter().map(|service| service.name))),
        "zk_layout" => Box::new(|| plain(["curator", "kazoo"])),
        _ => match arg.get_value_hint() {
            ValueHint::CommandWithArguments => Box::new(|| plain([COMMAND])),
            ValueHint::FilePath => Box::new(|| plain([FILES])),
            ValueHint::DirPath => Box::new(|| plain([DIRECTORIES])),
            _ => return arg,
        },
    };
    arg.add(ArgValueCompleter::new(move |typed: &OsStr| {
        let fits =
            |(word, _): &Candidate| word.starts_with('\t') || word.starts_with(&*typed.to_string_lossy());
        let candidate = |(word, meaning): Candidate| {
            CompletionCandidate::new(word).help((!meaning.is_empty()).then(|| meaning.into()))
        };
        values().into_iter().filter(fits).map(candidate).collect()
    }))
}

fn plain<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<Candidate> {
    words.into_iter().map(|word| (word.to_owned(), String::new())).collect()
}

/// Asks the service that the command line names, within [`PATIENCE`].
fn ask<T>(said: &ArgMatches, question: impl AsyncFnOnce(&dyn Backend) -> Option<T>) -> Option<T> {
    let common =
        CommonArgs { connection: ConnectionArgs::from_arg_matches(said).ok()?, ..CommonArgs::default() };
    let connection = Connection::resolve(&common, &Environment::real(Printer::default())).ok()?;
    let backend = connect::open(&connection).ok()?;
    connect::run_on(connect::runtime().ok()?, question(&*backend))
}

fn locks(said: &ArgMatches) -> Option<Vec<Candidate>> {
    let locks = ask(said, async |backend| backend.list("", clock::now() + PATIENCE).await.ok())?;
    Some(plain(locks.iter().map(|lock| lock.name.as_str())))
}

fn claims(said: &ArgMatches) -> Option<Vec<Candidate>> {
    let named = |id: &&str| said.try_get_one::<LockName>(id).ok().flatten();
    let name = ["named", "name"].iter().find_map(named)?;
    let status = ask(said, async |backend| backend.inspect(name, clock::now() + PATIENCE).await.ok())?;
    let of = |entries: Vec<Entry>, state: &'static str| {
        entries.into_iter().filter_map(move |entry| {
            let owner = Party::of(&entry, SystemTime::now());
            Some((entry.claim?.to_string(), format!("{state} {owner}")))
        })
    };
    Some(of(status.holders, "holds").chain(of(status.waiters, "waits")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(words: &[&str]) -> Vec<String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        answer(&words).lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn the_cursor_is_where_clap_would_read_it() {
        for (words, expected) in [
            (&["ru"][..], &["words", "run"][..]),
            (&["run", "--nam"], &["words", "--name"]),
            (&["run", "--name=x", "--backend=et"], &["words", "--backend=etcd"]),
            (&["run", "--report="], &["files"]),
            (&["run", "-n", ""], &["command 3"]),
            (&["run", "-nw", ""], &["words"]),
            (&["run", "-w5", "--name", "x", "make", "-"], &["command 5"]),
            (&["run", "--name", "x", "--", ""], &["command 5"]),
            (&["run", "--name", "x", "--", "-"], &["command 5"]),
            (&["run", "--name", "x", "make", "--name", ""], &["command 4"]),
            (&["run", "-c", ""], &["words"]),
            (&["watch", "a", ""], &["words"]),
            (&["man", "recip"], &["words", "recipes"]),
            (&["completions", ""], &["words", "bash", "zsh", "fish"]),
        ] {
            assert_eq!(lines(words), expected, "{words:?}");
        }
        assert!(lines(&[]).contains(&"status".to_owned()));
    }
}
