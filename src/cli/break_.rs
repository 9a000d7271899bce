//! `dlock break`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::time::SystemTime;

use super::args::BreakArgs;
use super::connect;
use super::exit_code::{ExitCode, Hinted as _};
use super::holder;
use super::out::{self, Out};
use crate::backend::{Backend, Evict};
use crate::lock::{ClaimId, Entry, Holder, LockStatus, Verb};
use crate::output::status::Detail;
use crate::output::{Party, ServicePlace, sanitise, status};

/// Asks a question, and returns whether the answer is yes.
type Ask<'a> = &'a mut dyn FnMut(&str) -> anyhow::Result<bool>;

/// Shows the claims of other clients, asks, and marks or removes them.
pub async fn run(backend: &dyn Backend, args: &BreakArgs, out: &mut dyn Out) -> anyhow::Result<()> {
    act(backend, args, &holder::invoker("dlock break".into()), out, &mut ask_terminal).await
}

async fn act(
    backend: &dyn Backend,
    args: &BreakArgs,
    by: &Holder,
    out: &mut dyn Out,
    ask: Ask<'_>,
) -> anyhow::Result<()> {
    let name = args.lock.lock();
    let queue = connect::ask(|deadline| backend.inspect(name, deadline)).await?;
    let lock = sanitise::text(name.as_str());
    nameless(&queue, args, &lock)?;
    let service = out::service(backend);
    let chosen = choose(&queue, args.claim.as_deref(), &service)?;
    let shown = |chosen: &[(ClaimId, &Entry)], layout| {
        status::lock("", &subset(&queue, chosen), &service, Detail::Usual, layout)
    };
    if args.claim.is_none() && !args.all && chosen.len() > 1 {
        out.write(&shown(&chosen, &out.layout()))?;
        let claims = chosen.len();
        return Err(ExitCode::Usage.error(format!(
            "{claims} claims hold or wait for {lock}; choose one with --claim ID, or --all"
        )));
    }
    let foreign = chosen.iter().find(|(_, entry)| entry.foreign).filter(|_| !args.force);
    if let Some((_, entry)) = foreign {
        return Err(needs_force(entry, &lock));
    }
    if !args.yes {
        let shown = shown(&chosen, &out.layout());
        let question = question(chosen.len(), args.force, &lock);
        if !ask(&format!("{shown}{question}"))? {
            return out.write("nothing was changed\n");
        }
    }
    let mut missed = Vec::new();
    for (id, entry) in &chosen {
        // A waiter without a process yet has one that waits for it.
        let holds = queue.holders.iter().any(|holder| holder.claim == Some(*id));
        let detached = holds && entry.verb == Verb::Detach;
        let how = if args.force || detached { Evict::Force } else { Evict::Ask };
        let there = if entry.foreign {
            connect::ask(|deadline| backend.evict_foreign(name, *id, deadline)).await?
        } else {
            connect::ask(|deadline| backend.evict(name, *id, how, by, deadline)).await?
        };
        if !there {
            missed.push(Party::of(entry, SystemTime::now()).to_string());
            continue;
        }
        out.write(&done(entry, how, holds, &lock))?;
    }
    // With --all a claim that is gone already is no failure.
    match missed.first() {
        Some(party) if !args.all => Err(ExitCode::Lost.error(format!("{party} is gone from {lock}"))),
        _ => Ok(()),
    }
}

/// Returns the line about the claim of `entry` that was asked to leave, or removed.
fn done(entry: &Entry, how: Evict, holds: bool, lock: &str) -> String {
    // "asked ... for 2m16s to leave" would read as if the asking took so long.
    let party = Party { since: None, ..Party::of(entry, SystemTime::now()) };
    match how {
        _ if entry.foreign => {
            format!("removed {party} from {lock}; its command keeps running, so two commands may overlap\n")
        }
        _ if holds && entry.verb == Verb::Detach => format!(
            "removed {party} from {lock}; it was a detached lease (acquire --detach), so dlock has no process to stop\n"
        ),
        Evict::Ask => format!("asked {party} to leave {lock}\n"),
        Evict::Force if holds => {
            format!("removed {party} from {lock}; until its command has exited, two commands may overlap\n")
        }
        Evict::Force => format!("removed waiter {party} from {lock}\n"),
    }
}

/// Returns the question before dlock ends `count` claims on `lock`, or removes them by force.
fn question(count: usize, force: bool, lock: &str) -> String {
    match (count, force) {
        (1, false) => format!("End this claim and its command, and let the next one have {lock}? [y/N] "),
        (n, false) => format!("End these {n} claims on {lock} and their commands? [y/N] "),
        (1, true) => format!(
            "Remove this claim from {lock} at once? Its command may keep running alongside the next holder's. [y/N] "
        ),
        (n, true) => format!(
            "Remove these {n} claims from {lock} at once? Their commands may keep running alongside the next holder's. [y/N] "
        ),
    }
}

/// Refuses entries of other programs that have no id, because dlock may not read enough.
fn nameless(queue: &LockStatus, args: &BreakArgs, lock: &str) -> anyhow::Result<()> {
    let found = queue.holders.iter().chain(&queue.waiters).find(|entry| entry.claim.is_none());
    let Some(entry) = found.filter(|_| args.claim.is_none()) else { return Ok(()) };
    let party = Party::of(entry, SystemTime::now());
    Err(ExitCode::Usage.error(format!(
        "{lock} is also used by {party}, which dlock cannot tell from others; end it yourself"
    )))
}

/// Returns the error about the client of another program, which dlock cannot ask to stop.
fn needs_force(entry: &Entry, lock: &str) -> anyhow::Error {
    let party = Party::of(entry, SystemTime::now());
    // The lock of a process ends with that alone.
    let remedy = match entry.pid {
        Some(pid) => format!("stop process {pid} yourself"),
        None => "--force removes the entry at once, and two commands may overlap".to_owned(),
    };
    ExitCode::Usage.error(format!("{party} uses {lock}, and cannot be asked to stop")).hint(remedy)
}

/// Returns the claims to end, at least one, waiters first: so none of them starts in between.
fn choose<'a>(
    queue: &'a LockStatus,
    claim: Option<&str>,
    service: &ServicePlace,
) -> anyhow::Result<Vec<(ClaimId, &'a Entry)>> {
    let entries = queue.waiters.iter().chain(&queue.holders);
    let claims: Vec<_> = entries.filter_map(|entry| entry.claim.map(|id| (id, entry))).collect();
    let lock = sanitise::text(queue.name.as_str());
    if claims.is_empty() {
        return Err(
            ExitCode::Lost.error(format!("{lock} is neither held nor waited for ({})", service.looked()))
        );
    }
    let Some(digits) = claim else { return Ok(claims) };
    let found: Vec<_> = claims.into_iter().filter(|(id, _)| id.to_string().starts_with(digits)).collect();
    match found.len() {
        0 => Err(ExitCode::Lost.error(format!("{lock} has no claim {digits}"))),
        1 => Ok(found),
        n => Err(ExitCode::Usage
            .error(format!("{n} claims on {lock} start with {digits}; write more digits"))
            .hint("dlock status --wide shows them all")),
    }
}

fn subset(queue: &LockStatus, chosen: &[(ClaimId, &Entry)]) -> LockStatus {
    let among = |entries: &[Entry]| {
        let chosen = |entry: &&Entry| chosen.iter().any(|(id, _)| entry.claim == Some(*id));
        entries.iter().filter(chosen).cloned().collect()
    };
    LockStatus { name: queue.name.clone(), holders: among(&queue.holders), waiters: among(&queue.waiters) }
}

/// Asks on the terminal, also if standard input and output are redirected.
fn ask_terminal(text: &str) -> anyhow::Result<bool> {
    let terminal = std::fs::OpenOptions::new().read(true).write(true).open("/dev/tty");
    let Ok(mut terminal) = terminal else {
        return Err(ExitCode::Usage
            .error("there is no terminal to ask on")
            .hint("add --yes to break without being asked"));
    };
    let mut answer = String::new();
    terminal
        .write_all(text.as_bytes())
        .and_then(|()| BufReader::new(&terminal).read_line(&mut answer))
        .map_err(|error| ExitCode::System.error(format!("cannot ask on the terminal: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes" | "Yes"))
}

#[cfg(test)]
#[path = "break_tests.rs"]
mod tests;
