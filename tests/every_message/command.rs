//! The command under the lock of every claim.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use crate::enumeration::command::{self, Member, OWN};

/// The length of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Length {
    For(Duration),
    /// Until there is a file `gate.WHO`.
    Gate,
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For(length) => write!(f, "{}", length.as_millis()),
            Self::Gate => f.write_str("gate"),
        }
    }
}

/// Returns the words of the command of `who`.
pub(crate) fn words(folder: &Path, who: &str, length: Length) -> Vec<String> {
    command::words(folder, who, &length.to_string())
}

/// Runs as the command.
pub(crate) fn be(arguments: &[String]) -> ExitCode {
    let [folder, who, length] = arguments else { return ExitCode::from(99) };
    let folder = PathBuf::from(folder);
    let member = Member::begin(&folder, who);
    // Held until the end.
    let Some(_tree) = member.alone() else { return ExitCode::from(98) };
    member.start();
    match length.parse() {
        Ok(millis) => sleep(Duration::from_millis(millis)),
        Err(_) => command::await_gate(&folder, who),
    }
    member.end();
    ExitCode::from(u8::try_from(if who == "claim" { OWN } else { 0 }).expect("small"))
}
