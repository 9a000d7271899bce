//! The choice of the lock directory, and the checks whether locks may live in it.

use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, Stat, StatFs, fstat, fstatfs, mkdirat, openat};
use rustix::io::Errno;

use super::directory::Directory;
use super::fault;
use super::names::Naming;
use crate::backend::Options;
use crate::lock::ErrorKind;
use crate::net::address::after;
use crate::net::fault::{Fault, FaultResult};
use crate::net::passwords::without_passwords;

/// The configuration of the `file` backend: where it keeps its locks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileConfig {
    /// The absolute path of the directory. Without one it is `/var/lib/dlock` for root and `/var/tmp/dlock-UID` for other users.
    pub directory: Option<PathBuf>,
    /// With a prefix a lock's file is named by the prefix and the raw name; without one, by the percent-encoded name.
    pub prefix: Option<String>,
    /// Whether a directory on a network file system is accepted.
    pub allow_network_fs: bool,
}

impl FileConfig {
    /// Reads the connection options; opens nothing. An error is a message of one line.
    pub fn parse(options: &Options) -> Result<Self, String> {
        let directory = match &options.endpoints[..] {
            [] => None,
            [endpoint] => Some(directory_of(endpoint, options.endpoints_in)?),
            _ => return Err("the backend file takes one directory as its endpoint".to_owned()),
        };
        Ok(Self { directory, prefix: options.prefix.clone(), allow_network_fs: options.allow_network_fs })
    }

    /// Returns the path of the directory.
    pub(super) fn path(&self) -> PathBuf {
        self.directory.clone().unwrap_or_else(|| default_directory(rustix::process::geteuid().as_raw()))
    }
}

/// Returns the absolute path of the directory `endpoint`. It comes from `place`, if not from the command line.
fn directory_of(endpoint: &str, place: Option<&str>) -> Result<PathBuf, String> {
    // It may be meant for another service and contain a password.
    let shown = without_passwords(endpoint);
    let path = match after(endpoint, "file:") {
        None => endpoint,
        Some(path) => match path.strip_prefix("//") {
            // `file:///DIR` is accepted. `file://HOST/DIR` would mean another host's directory.
            Some(rest) if !rest.starts_with('/') => {
                return Err(format!("{shown} names a host; write file:/DIRECTORY"));
            }
            rest => rest.unwrap_or(path),
        },
    };
    if path.is_empty() {
        return Err("the endpoint is empty; name a service or a directory, or leave it out".to_owned());
    }
    if let Some(place) = place
        && Path::new(path).is_relative()
    {
        return Err(format!(
            "{shown} in {place} means another directory wherever dlock is started; write the whole path, or give \
             --endpoint"
        ));
    }
    // A relative path is resolved now, since dlock leaves the present working directory later.
    std::path::absolute(path).map_err(|error| format!("{path} is not a directory: {error}"))
}

/// A file system in user space, served by another program.
const FUSE: &str = "FUSE";

/// File systems on which flock(2) does not reach every host, or not reliably, by `statfs(2)` type.
const NETWORK: [(u32, &str); 16] = [
    (0x6969, "NFS"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB"),
    (0x0102_1997, "9p"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x00C3_6400, "Ceph"),
    (0x6573_5546, FUSE),
    (0x0116_1970, "GFS2"),
    (0x7461_636F, "OCFS2"),
    (0x0BD0_0BD0, "Lustre"),
    (0x7375_7245, "Coda"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x786F_4256, "a directory shared by VirtualBox"),
    (0xBACB_ACBC, "a directory shared by VMware"),
];

/// Creates the directory if it is missing, one level deep and for the owner only, opens it and checks it.
pub(super) fn open(config: &FileConfig) -> FaultResult<Directory> {
    let path = config.path();
    let mut flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let is_default = config.directory.is_none();
    if is_default {
        flags |= OFlags::NOFOLLOW;
    }
    let open = || openat(CWD, &path, flags, Mode::empty());
    let mut opened = open();
    if let Err(Errno::NOENT) = opened {
        match mkdirat(CWD, &path, Mode::RWXU) {
            // Another process may have created it meanwhile.
            Ok(()) | Err(Errno::EXIST) => opened = open(),
            Err(errno) => return Err(fault::os("create the lock directory", &path)(errno)),
        }
    }
    let handle = opened.map_err(fault::os("open the lock directory", &path))?;
    let stat = fstat(&handle).map_err(fault::os("examine", &path))?;
    if is_default {
        check_private(&path, &stat, rustix::process::geteuid().as_raw())?;
    }
    if !config.allow_network_fs {
        let system = fstatfs(&handle).map_err(fault::os("examine the file system of", &path))?;
        if let Some(name) = network_file_system(&system, stat.st_dev) {
            let reason = format!(
                "{} is on {name}, where locks may not work across hosts or may outlive their process; choose a \
                 local directory or a lock service, or pass --allow-network-fs",
                path.display()
            );
            return Err(Fault::new(ErrorKind::Unsupported, reason));
        }
    }
    let naming = Naming { prefix: config.prefix.clone() };
    Ok(Directory::new(handle, path, &stat, naming, is_default))
}

fn default_directory(uid: u32) -> PathBuf {
    if uid == 0 { PathBuf::from("/var/lib/dlock") } else { PathBuf::from(format!("/var/tmp/dlock-{uid}")) }
}

/// Refuses a default directory that is not private to the user `uid`.
///
/// Other users may write in `/var/tmp`, so the directory must be this user's own. Root's does not lie there, and a
/// service manager may have created it (`StateDirectory=`). Root's may be readable to others, since the files in it are
/// for root only.
fn check_private(path: &Path, stat: &Stat, uid: u32) -> FaultResult<()> {
    let mode = stat.st_mode & 0o777;
    let problem = if stat.st_uid != uid {
        format!("it belongs to uid {}", stat.st_uid)
    } else if mode != 0o700 && (uid != 0 || mode & 0o722 != 0o700) {
        format!("its mode is {mode:o} and not 700 (chmod 700 it)")
    } else {
        return Ok(());
    };
    let path = path.display();
    let reason =
        format!("{path} is not safe as the lock directory: {problem}; or choose one with --endpoint");
    Err(Fault::new(ErrorKind::Unwritable, reason))
}

/// Returns the name of the network file system on `device`, if it is one. A FUSE file system may be anything, so it
/// counts as one, but a container's root is local.
#[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "types are 32 bits of a word")]
pub(super) fn network_file_system(system: &StatFs, device: u64) -> Option<&'static str> {
    let (_, name) = NETWORK.into_iter().find(|(kind, _)| *kind == system.f_type as u32)?;
    let mounts = || std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    (name != FUSE || !has_kind(&mounts(), device, "fuse.fuse-overlayfs")).then_some(name)
}

/// Returns whether the file system on `device` is mounted as `kind`, by the contents `mounts` of /proc/self/mountinfo.
fn has_kind(mounts: &str, device: u64, kind: &str) -> bool {
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    mounts.lines().any(|line| {
        let mounted_as = line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').next());
        line.split(' ').nth(2) == Some(&device) && mounted_as == Some(kind)
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::TempDir;
    use super::*;
    use crate::backend::assert_refused;
    use std::os::unix::fs::PermissionsExt;

    fn parsed(endpoints: &[&str]) -> Result<Option<PathBuf>, String> {
        FileConfig::parse(&Options::at(endpoints)).map(|config| config.directory)
    }

    #[test]
    fn directories_are_written_with_and_without_the_scheme() {
        assert_eq!(parsed(&[]), Ok(None));
        for (endpoint, path) in [
            ("/run/locks", "/run/locks"),
            ("./locks", "locks"),
            ("file:/run/locks", "/run/locks"),
            ("FILE:///run/locks", "/run/locks"),
            ("file:locks", "locks"),
        ] {
            let path = std::env::current_dir().expect("a directory").join(path);
            assert_eq!(parsed(&[endpoint]), Ok(Some(path)), "{endpoint}");
        }
    }

    #[test]
    fn endpoint_without_a_directory_is_refused_with_reason() {
        for (endpoints, part) in [
            (&["/a", "/b"] as &[&str], "takes one directory"),
            (&["file://host/a"], "names a host"),
            (&["file:"], "is empty"),
            (&[""], "is empty"),
        ] {
            assert_refused(parsed(endpoints), part);
        }
    }

    #[test]
    fn an_explicit_directory_is_made_one_level_deep() {
        let temp = TempDir::new();
        let config = |d: &str| FileConfig { directory: Some(temp.path().join(d)), ..FileConfig::default() };
        assert!(open(&config("new")).is_ok());
        let mode = std::fs::metadata(temp.path().join("new")).expect("there").permissions().mode();
        assert_eq!(mode & 0o7777, 0o700);
        let deep = open(&config("missing/new")).expect_err("no parent");
        assert_eq!(deep.kind, ErrorKind::Unwritable);
        assert!(!temp.path().join("missing").exists());
    }

    #[test]
    fn the_root_of_a_rootless_container_is_local() {
        let mounts = "20 1 0:45 / / rw,relatime - fuse.fuse-overlayfs fuse-overlayfs rw\n\
                      21 20 0:46 / /mnt rw - fuse bindfs rw\n";
        assert!(has_kind(mounts, rustix::fs::makedev(0, 45), "fuse.fuse-overlayfs"));
        assert!(!has_kind(mounts, rustix::fs::makedev(0, 46), "fuse.fuse-overlayfs"));
    }

    #[test]
    fn local_file_systems_pass() {
        for local in [0xEF53, 0x0102_1994, 0x794C_7630, 0x5846_5342, 0x9123_683E] {
            assert!(NETWORK.iter().all(|(kind, _)| *kind != local), "{local:x}");
        }
    }
}
