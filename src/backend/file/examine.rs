//! What `doctor` says of a lock directory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Access, statfs};

use super::config;
use super::directory::Directory;
use super::fault::{Fault, Outcome};
use super::inspect;
use super::presence::Presence;
use crate::backend::{Examination, Risk};
use crate::clock;
use crate::lock::{LockName, Moment};

/// Looks at the directory and its file system.
pub(super) async fn examine(directory: &Arc<Directory>, deadline: Moment) -> Outcome<Examination> {
    let path = directory.path();
    let begun = clock::now();
    // Any name will do: what counts is how long a look takes.
    if let Ok(name) = "doctor".parse::<LockName>() {
        inspect::last_success(directory, &name, deadline).await?;
    }
    let round_trip = clock::now().since(begun);
    let system = statfs(path).map_err(Fault::os("examine the file system of", path))?;
    let mut risks = general();
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
    let watched = Presence::watch(directory, &[]).map(|presence| Arc::new(presence).end());
    if let Err(fault) = watched {
        let why = fault.during("", None).reason;
        risks.push(Risk::warning(
            format!("a lock file that is removed is noticed only when a hold is renewed: {why}"),
            "renewals come three times in a ttl: choose a short one until then",
        ));
    }
    Ok(examination(path, round_trip, risks))
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
