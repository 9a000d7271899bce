//! The path of the queue of a name.

use crate::lock::LockName;

/// The prefix of names without `--prefix`.
const PREFIX: &str = "/dlock/";
/// The node next to the queues for data that outlives claims. No encoded name is equal to it, and raw names with it are
/// refused.
const ASIDE: &str = "~dlock";

/// The paths of one configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Paths {
    chroot: String,
    prefix: Option<String>,
}

impl Paths {
    pub(super) fn new(chroot: &str, prefix: Option<&str>) -> Self {
        Self { chroot: chroot.to_owned(), prefix: prefix.map(str::to_owned) }
    }

    /// Returns the path of the queue of `name`, or why it cannot have one.
    pub(super) fn queue(&self, name: &LockName) -> Result<String, String> {
        let path = match &self.prefix {
            None => format!("{PREFIX}{}", name.percent_encoded()),
            Some(prefix) => absolute(&format!("{prefix}{name}")),
        };
        check(&path)?;
        let first = path.split('/').nth(1).unwrap_or_default();
        if path.split('/').any(|part| part.starts_with(ASIDE))
            || (self.chroot.is_empty() && first == "zookeeper")
        {
            return Err(format!("{path} is not for locks"));
        }
        Ok(format!("{}{path}", self.chroot))
    }

    /// Returns the directory of all queues, without a trailing slash; empty means the root.
    pub(super) fn folder(&self) -> String {
        let prefix = absolute(self.prefix.as_deref().unwrap_or(PREFIX));
        let folder = prefix.rfind('/').map_or("", |at| &prefix[..at]);
        format!("{}{folder}", self.chroot)
    }

    /// Returns whether all queues are direct children of the directory.
    pub(super) fn is_flat(&self) -> bool {
        self.prefix.is_none()
    }

    /// Returns the name of the queue at `path`; `None` if it is not a queue of this configuration.
    pub(super) fn name(&self, path: &str) -> Option<LockName> {
        let path = path.strip_prefix(self.chroot.as_str())?;
        match &self.prefix {
            None => LockName::from_percent_encoded(path.strip_prefix(PREFIX)?),
            Some(prefix) if prefix.starts_with('/') => {
                LockName::new(path.strip_prefix(prefix.as_str())?).ok()
            }
            Some(prefix) => LockName::new(path.strip_prefix('/')?.strip_prefix(prefix.as_str())?).ok(),
        }
    }

    /// Returns the path of the data that outlives claims.
    pub(super) fn aside(&self) -> String {
        format!("{}/{ASIDE}", self.folder())
    }

    /// Returns the path of the last success under the queue at `queue`.
    pub(super) fn success(&self, queue: &str) -> String {
        let below = queue.strip_prefix(self.folder().as_str()).unwrap_or(queue).trim_start_matches('/');
        let name = LockName::new(below).map_or_else(|_| below.replace('/', "%2F"), |n| n.percent_encoded());
        format!("{}/{name}", self.aside())
    }
}

/// Returns the path of a slot that is taken in the queue at `queue`. It is in the queue, so that its directory exists, and
/// no client takes it for a contender.
pub(super) fn slot(queue: &str, number: u32) -> String {
    format!("{queue}/{ASIDE}{number}")
}

/// Returns whether the node `name` is the one next to the queues, or a slot.
pub(super) fn is_aside(name: &str) -> bool {
    name.starts_with(ASIDE)
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

/// Errors: why a server would refuse an absolute path, so that it is a usage error.
///
/// The rules are those of `PathUtils.validatePath` of the Java client.
pub(super) fn check(path: &str) -> Result<(), String> {
    for part in path.split('/').skip(1) {
        match part {
            "" => return Err(format!("{path} has an empty part")),
            "." | ".." => return Err(format!("{path} has a part that is only dots")),
            _ => {}
        }
    }
    let bad = |c: &char| {
        let n = u32::from(*c);
        // Java represents characters outside the basic plane as two surrogates, which it refuses.
        n < 0x20 || (0x7f..=0x9f).contains(&n) || (0xd800..=0xf8ff).contains(&n) || n >= 0xfff0
    };
    match path.chars().find(bad) {
        Some(c) => Err(format!("ZooKeeper has no {} in a path", c.escape_unicode())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> LockName {
        LockName::new(text).expect("valid")
    }

    #[test]
    fn lines_stand_where_documented() {
        for (chroot, prefix, text, path, success) in [
            ("", None, "deploy", "/dlock/deploy", "/dlock/~dlock/deploy"),
            ("/c", None, "a/b", "/c/dlock/a%2Fb", "/c/dlock/~dlock/a%252Fb"),
            ("", Some(""), "locks/a", "/locks/a", "/~dlock/locks%2Fa"),
            ("", Some(""), "/locks/a", "/locks/a", "/~dlock/locks%2Fa"),
            ("/c", Some("/x/y-"), "a", "/c/x/y-a", "/c/x/~dlock/y-a"),
            ("", Some("x/"), "a b", "/x/a b", "/x/~dlock/a%20b"),
        ] {
            let paths = Paths::new(chroot, prefix);
            assert_eq!(paths.queue(&name(text)).as_deref(), Ok(path), "{prefix:?} {text}");
            assert_eq!(paths.success(path), success, "{prefix:?} {text}");
            let back = paths.name(path).expect("a name");
            assert_eq!(paths.queue(&back).as_deref(), Ok(path));
        }
    }

    #[test]
    fn inexpressible_path_is_refused() {
        let raw = Paths::new("", Some(""));
        for text in ["a//b", "a/", "..", "a/./b", "\u{e000}", "🦀", "\u{fff0}", "~dlock/x", "zookeeper/x"] {
            assert!(raw.queue(&name(text)).is_err(), "{text:?}");
            assert!(Paths::new("", None).queue(&name(text)).is_ok(), "{text:?}");
        }
        assert!(Paths::new("/c", Some("")).queue(&name("zookeeper")).is_ok());
    }

    proptest! {
        #[test]
        fn every_name_has_a_queue_and_comes_back(text in "[^\\p{Cc}]{1,30}") {
            if let Ok(name) = LockName::new(text) {
                let paths = Paths::new("", None);
                let path = paths.queue(&name).expect("a path");
                prop_assert_eq!(paths.name(&path), Some(name));
            }
        }
    }
}
