//! What `doctor` says of a lock directory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Access, statfs};

use super::config;
use super::directory::Directory;
use super::fault;
use super::inspect;
use super::presence;
use crate::backend::{Examination, Risk};
use crate::clock;
use crate::lock::{LockName, Moment};
use crate::net::fault::FaultResult;

/// Looks at the directory and its file system.
pub(super) async fn examine(directory: &Arc<Directory>, deadline: Moment) -> FaultResult<Examination> {
    let path = directory.path();
    let begun = clock::now();
    // Any name will do: what counts is how long a look takes.
    if let Ok(name) = "doctor".parse::<LockName>() {
        inspect::last_success(directory, &name, deadline).await?;
    }
    let round_trip = clock::now().since(begun);
    let system = statfs(path).map_err(fault::os("examine the file system of", path))?;
    let mut risks = general();
    let stat = rustix::fs::stat(path).map_err(fault::os("examine", path))?;
    risks.push(Risk::note(who(stat.st_uid, stat.st_gid, stat.st_mode)));
    if let Some(name) = config::network_file_system_of(&system) {
        risks.push(Risk::warning(
            format!(
                "{} is on {name}, where a lock may not reach every host or end with its process",
                path.display()
            ),
            "choose a local directory or a lock service",
        ));
    }
    if rustix::fs::access(path, Access::WRITE_OK).is_err() {
        risks.push(Risk::warning(
            format!("{} cannot be written", path.display()),
            "let a group that has all users own it, with write permission",
        ));
    }
    if let Err(fault) = presence::instance(path) {
        let why = fault.reason;
        risks.push(Risk::warning(
            format!("a lock file that is removed is noticed only when a hold is renewed: {why}"),
            "renewals come three times in a ttl: choose a short one until then",
        ));
    }
    Ok(examination(path, round_trip, risks))
}

/// Who may lock in a directory of that owner, group and mode: whoever may write in it and pass through it.
fn who(owner: u32, group: u32, mode: u32) -> String {
    let may = |shift: u32| mode >> shift & 0o3 == 0o3;
    let whom = match (may(0), may(3)) {
        (true, _) => "everybody".to_owned(),
        (false, true) => format!("its owner (uid {owner}) and the group {group}"),
        (false, false) => format!("its owner alone (uid {owner})"),
    };
    format!("{whom} may lock there (mode {:04o})", mode & 0o7777)
}

/// What is said of a directory that nobody has made yet.
pub(super) fn missing(path: &Path) -> Examination {
    let mut risks = general();
    risks.push(Risk::note("nobody has locked there yet: the first run makes the directory"));
    examination(path, Duration::ZERO, risks)
}

/// What is so with every lock directory.
fn general() -> Vec<Risk> {
    vec![
        Risk::note("excludes the processes of this host, not those of others"),
        Risk::note(
            "containers and chroots exclude each other only where they share this directory (a bind mount)",
        ),
        Risk::of_backup("leave the lock directory out of backups: a lost counter goes on from the clock"),
    ]
}

fn examination(path: &Path, round_trip: Duration, risks: Vec<Risk>) -> Examination {
    Examination {
        server: format!("flock(2) on Linux {}", rustix::system::uname().release().to_string_lossy()),
        reached: path.display().to_string(),
        round_trip,
        risks,
    }
}

#[cfg(test)]
mod tests {
    use super::who;

    #[test]
    fn the_mode_of_a_directory_in_words() {
        for (mode, wanted) in [
            (0o40700, "its owner alone (uid 7) may lock there (mode 0700)"),
            (0o40755, "its owner alone (uid 7) may lock there (mode 0755)"),
            (0o42770, "its owner (uid 7) and the group 8 may lock there (mode 2770)"),
            (0o41777, "everybody may lock there (mode 1777)"),
        ] {
            assert_eq!(who(7, 8, mode), wanted);
        }
    }
}
