//! The user of this process.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

/// Returns the login name of the effective user of this process.
pub(super) fn login_name() -> Option<String> {
    let uid = fs::metadata("/proc/self").ok()?.uid().to_string();
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let line = passwd.lines().find(|line| line.split(':').nth(2) == Some(uid.as_str()));
    let name = line.and_then(|line| line.split(':').next()).filter(|name| !name.starts_with(['+', '-']));
    name.or((uid == "0").then_some("root")).filter(|name| !name.is_empty()).map(str::to_owned)
}
