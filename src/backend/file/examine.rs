//! The examination of a lock directory for `doctor`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Access, statfs};
use rustix::io::Errno;

use super::config;
use super::directory::Directory;
use super::fault;
use super::inspect;
use super::presence;
use super::surroundings;
use crate::backend::Examination;
use crate::backend::facts::{Rule, risks, when, with};
use crate::clock;
use crate::lock::{LockName, Moment};
use crate::net::fault::FaultResult;

/// The known facts about a directory.
#[derive(Default)]
struct Facts {
    path: String,
    /// Which users may lock there; `None` if it has not been created.
    users: Option<String>,
    network_file_system: Option<&'static str>,
    writable: Option<bool>,
    /// The setting that makes it writable, if it is on a read-only file system.
    read_only: Option<String>,
    /// The place in which it lies and from which others remove files, and when they do.
    swept: Option<(&'static str, &'static str)>,
    /// The directory above it that other processes see as another one.
    private: Option<String>,
    /// Why the kernel cannot report removed files, if it cannot.
    unwatched: Option<String>,
}

impl Facts {
    /// The facts that follow from the path alone.
    fn of(path: &Path) -> Self {
        let resolved = surroundings::resolved(path);
        Self {
            path: path.display().to_string(),
            swept: surroundings::swept(&resolved),
            private: surroundings::private(&resolved).map(|above| above.display().to_string()),
            ..Self::default()
        }
    }
}

const RISKS: &[Rule<Facts>] = &[
    Rule::always("locks exclude processes on this host only"),
    Rule::always(
        "containers and chroots exclude each other only where they share this directory (a bind mount)",
    ),
    Rule::backup(|_| {
        with("leave the lock directory out of backups: a lost counter continues from the clock")
    }),
    Rule::note(|f| when(f.users.is_none()), "the directory does not exist yet: the first run creates it"),
    Rule::note(|f| with(f.users.as_ref()?), "{0}"),
    Rule::warning(
        |f| Some(vec![f.path.clone(), f.network_file_system?.to_owned()]),
        "{0} is on {1}, where locks may not work across hosts or may outlive their process",
        "choose a local directory or a lock service",
    ),
    Rule::warning(
        |f| Some(vec![f.path.clone(), f.private.clone()?]),
        "locks in {0} exclude only processes of this unit or session, which has a private {1}",
        "choose a directory that all of them see, such as one of StateDirectory= (systemd: PrivateTmp=, DynamicUser=), with --endpoint",
    ),
    Rule::warning(
        |f| {
            f.swept
                .filter(|(place, _)| *place != "/var/tmp")
                .map(|at| vec![f.path.clone(), at.0.into(), at.1.into()])
        },
        "{0} lies in {1}: {2}; tokens and the successes of --once-per are lost with them",
        "choose a directory in /var/lib or /srv with --endpoint",
    ),
    Rule::note(
        |f| f.swept.filter(|(place, _)| *place == "/var/tmp").map(|at| vec![at.1.into()]),
        "{0}; tokens and the successes of --once-per are lost with them; a line x /var/tmp/dlock-* in a file of /etc/tmpfiles.d keeps them",
    ),
    Rule::warning(
        |f| Some(vec![f.path.clone(), f.read_only.clone()?]),
        "{0} is on a read-only file system",
        "in a systemd unit set {1}; else choose a directory on a writable file system with --endpoint",
    ),
    Rule::warning(
        |f| (!f.writable?).then(|| vec![f.path.clone()]),
        "{0} cannot be written",
        "chgrp it to a group of all its users and chmod g+w",
    ),
    Rule::warning(
        |f| with(f.unwatched.as_ref()?),
        "a lock file that is removed is noticed only when a hold is renewed: {0}",
        "renewals come three times in a TTL: choose a short one until then",
    ),
];

/// Looks at the directory and its file system.
pub(super) async fn examine(directory: &Arc<Directory>, deadline: Moment) -> FaultResult<Examination> {
    let path = directory.path();
    let begun = clock::now();
    // Any name will do: only the time that the call takes counts.
    if let Ok(name) = "doctor".parse::<LockName>() {
        inspect::last_success(directory, &name, deadline).await?;
    }
    let round_trip = clock::now().since(begun);
    let system = statfs(path).map_err(fault::os("examine the file system of", path))?;
    let stat = rustix::fs::stat(path).map_err(fault::os("examine", path))?;
    let writable = rustix::fs::access(path, Access::WRITE_OK);
    let shown = path.display().to_string();
    let facts = Facts {
        users: Some(users(stat.st_uid, stat.st_gid, stat.st_mode)),
        network_file_system: config::network_file_system_of(&system, stat.st_dev),
        read_only: (writable == Err(Errno::ROFS)).then(|| fault::writable_by(&shown)),
        writable: (writable != Err(Errno::ROFS)).then_some(writable.is_ok()),
        unwatched: presence::instance(path).err().map(|fault| fault.reason.to_string()),
        ..Facts::of(path)
    };
    Ok(examination(&facts, round_trip))
}

/// The examination of a directory that has not been created yet.
pub(super) fn missing(path: &Path) -> Examination {
    examination(&Facts::of(path), Duration::ZERO)
}

fn examination(facts: &Facts, round_trip: Duration) -> Examination {
    Examination {
        server: format!("flock(2) on Linux {}", rustix::system::uname().release().to_string_lossy()),
        reached: facts.path.clone(),
        round_trip,
        risks: risks(RISKS, facts),
    }
}

/// Describes which users may lock in a directory of that owner, group and mode: those that may write in it and pass
/// through it.
fn users(owner: u32, group: u32, mode: u32) -> String {
    let may = |shift: u32| mode >> shift & 0o3 == 0o3;
    let which = match (may(0), may(3)) {
        (true, _) => "every user".to_owned(),
        (false, true) => format!("the directory's owner (uid {owner}) and the group {group}"),
        (false, false) => format!("only the directory's owner (uid {owner})"),
    };
    format!("{which} may lock there (mode {:04o})", mode & 0o7777)
}

#[cfg(test)]
mod tests {
    use super::users;

    #[test]
    fn the_mode_of_a_directory_in_words() {
        for (mode, wanted) in [
            (0o40700, "only the directory's owner (uid 7) may lock there (mode 0700)"),
            (0o40755, "only the directory's owner (uid 7) may lock there (mode 0755)"),
            (0o42770, "the directory's owner (uid 7) and the group 8 may lock there (mode 2770)"),
            (0o41777, "every user may lock there (mode 1777)"),
        ] {
            assert_eq!(users(7, 8, mode), wanted);
        }
    }
}
