//! The examination of a lock directory for `doctor`.

use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Access, statfs};

use super::config;
use super::directory::Directory;
use super::events;
use super::fault;
use super::inspect;
use super::surroundings::{self, AGED};
use crate::backend::Examination;
use crate::backend::facts::{Rule, risks, when, with};
use crate::clock;
use crate::lock::{LockName, Moment};
use crate::net::fault::{Fault, FaultResult};

/// The known facts about a directory.
#[derive(Default)]
struct Facts {
    path: String,
    exists: bool,
    network_file_system: Option<&'static str>,
    /// Why it cannot be written, if it cannot.
    unwritable: Option<String>,
    /// The place in which it lies and from which others remove files.
    swept: Option<&'static str>,
    /// The directory above it that other processes see as another one.
    private: Option<String>,
    /// Why the kernel cannot report removed files, if it cannot.
    unwatched: Option<String>,
}

const RISKS: &[Rule<Facts>] = &[
    Rule::always("locks exclude processes on this host only"),
    Rule::always(
        "containers and chroots exclude each other only where they share this directory (a bind mount)",
    ),
    Rule::backup(|_| {
        with("leave the lock directory out of backups: a lost counter continues from the clock")
    }),
    Rule::note(|f| when(!f.exists), "the directory does not exist yet: the first run creates it"),
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
        |f| Some(vec![f.path.clone(), f.swept.filter(|place| *place != AGED)?.to_owned()]),
        "{0} lies in {1}, where old files are removed; tokens and the successes of --once-per are lost with them",
        "choose a directory in /var/lib or /srv with --endpoint",
    ),
    Rule::note(
        |f| when(f.swept == Some(AGED)),
        "systemd-tmpfiles removes files there that no run has used for 30 days; tokens and the successes of --once-per are lost with them; a line x /var/tmp/dlock-* in a file of /etc/tmpfiles.d keeps them",
    ),
    Rule::warning(
        |f| {
            let why = f.unwritable.as_deref()?;
            let (what, remedy) = why.split_once("; ").unwrap_or((why, "choose another with --endpoint"));
            Some(vec![what.to_owned(), remedy.to_owned()])
        },
        "{0}",
        "{1}",
    ),
    Rule::warning(
        |f| with(f.unwatched.as_ref()?),
        "a lock file that is removed is noticed only when a hold is renewed: {0}",
        "renewals come three times in a TTL: choose a short one until then",
    ),
];

/// Looks at the directory `path` and its file system, if it has been created.
pub(super) async fn examine(
    directory: Option<&Arc<Directory>>,
    path: &Path,
    deadline: Moment,
) -> FaultResult<Examination> {
    let resolved = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut facts = Facts {
        path: path.display().to_string(),
        swept: surroundings::swept(&resolved),
        private: surroundings::private(&resolved).map(|above| above.display().to_string()),
        ..Facts::default()
    };
    let begun = clock::now();
    if let Some(directory) = directory {
        // Any name will do: only the time that the call takes counts.
        if let Ok(name) = "doctor".parse::<LockName>() {
            inspect::last_success(directory, &name, deadline).await?;
        }
        let system = statfs(path).map_err(fault::os("examine the file system of", path))?;
        let stat = rustix::fs::stat(path).map_err(fault::os("examine", path))?;
        let reason = |fault: Fault| fault.reason.to_string();
        let writable = rustix::fs::access(path, Access::WRITE_OK).map_err(fault::os("write to", path));
        facts.exists = true;
        facts.network_file_system = config::network_file_system(&system, stat.st_dev);
        facts.unwritable = writable.err().map(reason);
        facts.unwatched = events::instance(path).err().map(reason);
    }
    Ok(Examination {
        server: format!("flock(2) on Linux {}", rustix::system::uname().release().to_string_lossy()),
        round_trip: clock::now().since(begun),
        risks: risks(RISKS, &facts),
        reached: facts.path,
    })
}
