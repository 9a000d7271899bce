//! Parts of messages that have several forms.

use super::{Ms, Party};

/// Returns the form of the verb after `lock`, which is made by [`names`](super::message::names).
///
/// A single name with ` and ` in it gets the form for several.
pub fn agree(lock: &str, one: &'static str, several: &'static str) -> &'static str {
    if lock.contains(" and ") { several } else { one }
}

/// Returns the fate of a command whose lock was lost.
pub(super) fn fate(ran: bool) -> &'static str {
    if ran { "the command was stopped" } else { "the command was not started" }
}

/// Returns the fate of a command whose keeper failed.
pub(super) fn ended(surely_ran: bool) -> &'static str {
    if surely_ran {
        "the command was stopped"
    } else {
        "the command was stopped while starting, or never started"
    }
}

/// Returns the sentence about a hold that was to outlast its command.
pub(super) fn cut_short(lock: &str, by: Option<&Party>, reason: Option<&str>) -> String {
    let why = match (by, reason) {
        (Some(by), _) => format!("broken by {by}"),
        (None, Some(reason)) => reason.to_owned(),
        (None, None) => "the lease-keeper was killed or stopped".to_owned(),
    };
    format!("{lock} {} released early, after the command exited: {why}", agree(lock, "was", "were"))
}

/// Returns the sentence about processes that dlock cannot kill. `pids` are the first of them, or `None` if dlock cannot find out which
/// there are.
pub(super) fn cannot_end(
    lock: &str,
    pids: Option<&[u32]>,
    more: usize,
    lease_lost: bool,
    lacks_kill: bool,
) -> String {
    let is_one = pids.is_some_and(|pids| pids.len() + more == 1);
    let (processes, subject, object, exit) =
        if is_one { ("process", "it", "it", "exits") } else { ("processes", "they", "them", "exit") };
    let what = match pids {
        Some(pids) => {
            let pids: Vec<_> = pids.iter().map(u32::to_string).collect();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("cannot kill {processes} {}{more}", pids.join(", "))
        }
        None => "cannot verify that all processes of the command have exited".to_owned(),
    };
    let fate = if lease_lost {
        format!(
            "the lock on {lock} is lost, and {subject} can run at the same time as the next holder's command; kill {object} yourself"
        )
    } else {
        format!(
            "dlock keeps the lock on {lock} and cannot end until {subject} {exit}; kill {object} yourself"
        )
    };
    let right = if lacks_kill { ", or give dlock CAP_KILL (docker run --cap-add KILL)" } else { "" };
    format!("{what}: {fate}{right}")
}

/// Returns `: held by ci@host7`, or nothing if no holder is known.
pub(super) fn held_by(holder: Option<&Party>) -> String {
    holder.map(|holder| format!(": held by {holder}")).unwrap_or_default()
}

/// Returns when a claim with `ttl` ends.
pub(super) fn ends(ttl: Option<Ms>) -> String {
    ttl.map_or_else(|| "with this process".to_owned(), |ttl| format!("by itself within {ttl}"))
}
