//! What people write who know other tools: flock, timeout, consul lock, etcdctl lock, systemctl.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::args::Subcommand;
use crate::output::sanitise;

/// Options of other tools, and dlock's.
const OPTIONS: [(&str, &str); 20] = [
    ("--timeout", "--wait"),
    ("--wait-timeout", "--wait"),
    ("--nonblock", "--try"),
    ("--nonblocking", "--try"),
    ("--no-wait", "--try"),
    ("--nb", "--try"),
    ("--kill-after", "--grace"),
    ("--conflict-exit-code", "--busy-exit-code"),
    ("--lock", "--name"),
    ("--lock-name", "--name"),
    ("--lockfile", "--name"),
    ("--file", "--name"),
    ("--host", "--endpoint"),
    ("--server", "--endpoint"),
    ("--url", "--endpoint"),
    ("--address", "--endpoint"),
    ("--http-addr", "--endpoint"),
    ("--endpoints", "--endpoint"),
    ("--limit", "--slots"),
    ("--lease", "--ttl"),
];

/// Commands of other tools, and dlock's.
const COMMANDS: [(&str, &str); 9] = [
    ("lock", "run"),
    ("exec", "run"),
    ("ls", "list"),
    ("show", "status"),
    ("ps", "status"),
    ("unlock", "break"),
    ("kill", "break"),
    ("steal", "break"),
    ("check", "doctor"),
];

/// The option of `program` (`dlock run`) that is meant by another tool's `option`.
pub(super) fn option(option: &str, program: &str) -> Option<&'static str> {
    let meant = OPTIONS.iter().find(|(theirs, _)| *theirs == option)?.1;
    let subcommand = program.strip_prefix("dlock ").and_then(Subcommand::named)?;
    let known = subcommand.command().get_arguments().any(|a| a.get_long() == meant.strip_prefix("--"));
    known.then_some(meant)
}

/// The command that is meant by another tool's `word`.
pub(super) fn command(word: &str) -> Option<&'static str> {
    COMMANDS.iter().find(|(theirs, _)| *theirs == word).map(|(_, ours)| *ours)
}

/// How to write a run of `command` under the lock `name`. Arguments are not repeated: they may be secrets.
pub(super) fn named_run(name: &str, command: &[OsString]) -> String {
    let first = command.first().map(|word| sanitise::text(&sanitise::os(word))).unwrap_or_default();
    let more = if command.len() > 1 { " ..." } else { "" };
    format!("did you mean dlock run --name {name} -- {first}{more}?")
}

/// Whether `word` reads as a command: a path, or the name of a program.
pub(super) fn is_command(word: &OsStr) -> bool {
    let in_path = |path: OsString| std::env::split_paths(&path).any(|folder| folder.join(word).is_file());
    word.as_bytes().contains(&b'/') || std::env::var_os("PATH").is_some_and(in_path)
}
