//! Checks whether other users of this host can read or change a file: by its mode, its directory and its owner.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use rustix::fs::{StatVfsMountFlags, fstatvfs};

use crate::backend::Risk;
use crate::output::sanitise;

/// Returns whether the file is on a read-only mount.
pub(super) fn is_read_only(file: &File) -> bool {
    fstatvfs(file).is_ok_and(|facts| facts.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Returns the risk that other users can read the secret in the file `path`; `what` names the secret.
pub(super) fn doubt(what: &str, path: &Path) -> Option<Risk> {
    let meta = fs::metadata(path).ok()?;
    // Root may give a secret to a group: the members of a service share it.
    let (others, change) = if meta.uid() == 0 { (0o004, "o-r") } else { (0o044, "go-r") };
    if meta.file_type().is_char_device() || !is_reachable(path, others) || is_alone() {
        return None;
    }
    let shown = sanitise::os(path.as_os_str());
    let risk = format!("{what}, and other users of this host can read it: {shown}");
    Some(Risk::warning(risk, format!("chmod {change} {shown}, or mount it with such a mode")))
}

/// Returns whether the mode of the file lets `others` read it, and the directories above it let them reach it.
fn is_reachable(path: &Path, others: u32) -> bool {
    let lets = |at: &Path, bits: u32| fs::metadata(at).is_ok_and(|meta| meta.mode() & bits != 0);
    let Ok(real) = fs::canonicalize(path) else { return false };
    lets(&real, others) && real.ancestors().skip(1).all(|directory| lets(directory, others >> 2))
}

/// The ranges of user ids of this namespace: the first id in it, and how many there are.
fn ids() -> Vec<(u32, u32)> {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let range = |line: &str| {
        let mut numbers = line.split_whitespace().map(str::parse);
        Some((numbers.next()?.ok()?, numbers.nth(1)?.ok()?))
    };
    map.lines().filter_map(range).collect()
}

/// Returns whether this user namespace has only one user.
fn is_alone() -> bool {
    matches!(ids()[..], [(_, 1)])
}

/// Returns the user id that files show whose owner has no id in this user namespace, if there can be such files.
pub(super) fn nameless() -> Option<u32> {
    let ids = ids();
    let is_whole = ids.is_empty() || ids.iter().any(|(first, count)| *first == 0 && *count == u32::MAX);
    let number = fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?;
    number.trim().parse().ok().filter(|_| !is_whole)
}
