//! What the scripts are answered.

use std::fmt::Write as _;
use std::time::Duration;

use clap::{Arg, Command, ValueHint};

use super::cursor::{Completion, CursorContext, find};
use crate::backend::Backend;
use crate::backend::locator::SERVICES;
use crate::cli::args::{ListArgs, Subcommand};
use crate::cli::connect;
use crate::cli::layers::{Environment, Layers};
use crate::cli::parse::{self, Invocation};
use crate::cli::settings::ListSettings;
use crate::clock;
use crate::lock::{Entry, LockName};
use crate::output::sanitise;

/// Whoever has pressed Tab waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// What can be said for one candidate: it, and what it means.
type Candidate = (String, String);

/// What can stand at the end of `words`, those behind `dlock`, in the form that the scripts read. What cannot be found out is left
/// out, and nothing is changed anywhere.
pub fn answer(words: &[String]) -> String {
    let typed = words.last().map_or("", String::as_str);
    let found = find(words);
    let (candidates, lead) = match &found.expected {
        Completion::Subcommand => (subcommands(), ""),
        Completion::Option(command) => (options(command), ""),
        Completion::Command(n) => return format!("command {n}\n"),
        Completion::Value { arg, lead } => match values(arg, &found) {
            Some(candidates) => (candidates, lead.as_str()),
            None if arg.get_value_hint() == ValueHint::FilePath => return "files\n".into(),
            None if arg.get_value_hint() == ValueHint::DirPath => return "directories\n".into(),
            None => (Vec::new(), ""),
        },
        Completion::Nothing => (Vec::new(), ""),
    };
    let mut out = "words\n".to_owned();
    for (word, meaning) in candidates {
        let word = format!("{lead}{word}");
        if word.starts_with(typed) {
            let tab = if meaning.is_empty() { "" } else { "\t" };
            writeln!(out, "{word}{tab}{meaning}").expect("writing to a String cannot fail");
        }
    }
    out
}

fn subcommands() -> Vec<Candidate> {
    let about = |s: Subcommand| s.command().get_about().map(ToString::to_string).unwrap_or_default();
    Subcommand::ALL.into_iter().map(|s| (s.name().to_owned(), about(s))).collect()
}

fn options(command: &Command) -> Vec<Candidate> {
    let named = |arg: &Arg| {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        Some((format!("--{}", arg.get_long()?), help.replace('\n', " ")))
    };
    command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(named).collect()
}

/// The values of `arg`, or `None` if it is not known which there are.
fn values(arg: &Arg, found: &CursorContext) -> Option<Vec<Candidate>> {
    let known = arg.get_possible_values();
    if !known.is_empty() {
        return Some(known.iter().map(|value| (value.get_name().to_owned(), String::new())).collect());
    }
    let plain = |words: &[&str]| words.iter().map(|word| ((*word).to_owned(), String::new())).collect();
    match arg.get_id().as_str() {
        "name" | "names" | "named" | "starting_with" => Some(locks(found)),
        "claim" => Some(claims(found)),
        "backend" => Some(plain(&SERVICES.map(|service| service.name))),
        "zk_layout" => Some(plain(&["curator", "kazoo"])),
        "profile" => Some(profiles(found)),
        _ => None,
    }
}

/// The options that say where the service is, as those of a look.
fn look(found: &CursorContext) -> Option<ListArgs> {
    let words = std::iter::once("list".to_owned()).chain(found.connection.iter().cloned());
    match parse::parse(words.map(Into::into).collect()) {
        Ok(Invocation::List(args)) => Some(args),
        _ => None,
    }
}

fn profiles(found: &CursorContext) -> Vec<Candidate> {
    let around = Environment::real();
    let Some(mut args) = look(found) else { return Vec::new() };
    args.common.connection.profile = None;
    let Ok(layers) = Layers::load(&args.common.connection, &around) else { return Vec::new() };
    layers.profiles().into_iter().map(|name| (name.to_owned(), String::new())).collect()
}

/// Asks the service, within [`PATIENCE`].
fn ask<T>(found: &CursorContext, question: impl AsyncFnOnce(&dyn Backend) -> Option<T>) -> Option<T> {
    let settings = ListSettings::resolve(&look(found)?, &Environment::real()).ok()?;
    let backend = connect::open(&settings.viewing.connection).ok()?;
    connect::run_on(connect::runtime().ok()?, question(&*backend))
}

fn locks(found: &CursorContext) -> Vec<Candidate> {
    let locks = ask(found, async |backend| backend.list("", clock::now() + PATIENCE).await.ok());
    let count = |n: usize, what: &str| if n == 0 { String::new() } else { format!("{n} {what}") };
    let meaning = |holders: usize, waiters: usize| {
        let parts = [count(holders, "holding"), count(waiters, "waiting")];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
    };
    let locks = locks.unwrap_or_default().into_iter();
    locks.map(|lock| (lock.name.to_string(), meaning(lock.holders.len(), lock.waiters.len()))).collect()
}

fn claims(found: &CursorContext) -> Vec<Candidate> {
    let Some(name) = found.lock.as_deref().and_then(|name| name.parse::<LockName>().ok()) else {
        return Vec::new();
    };
    let status = ask(found, async |backend| backend.inspect(&name, clock::now() + PATIENCE).await.ok());
    let Some(status) = status else { return Vec::new() };
    let of = |entries: Vec<Entry>, state: &'static str| {
        entries.into_iter().filter_map(move |entry| Some((entry.claim?.to_string(), meaning(&entry, state))))
    };
    of(status.holders, "holds").chain(of(status.waiters, "waits")).collect()
}

fn meaning(entry: &Entry, state: &str) -> String {
    let mut text = state.to_owned();
    for part in [&entry.user, &entry.host, &entry.command, &entry.label].into_iter().flatten() {
        text.push(' ');
        text.push_str(&sanitise::text(part));
    }
    text
}
