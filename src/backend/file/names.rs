//! The names of the files of one lock.

use sha2::{Digest, Sha256};

use crate::lock::{ClaimId, ErrorKind, LockName};
use crate::net::fault::{Fault, FaultResult};

/// The longest lock file name: 255 bytes, less room for the additions of the side files.
const LONGEST: usize = 255 - 34;
/// Ends the readable part of a cut name. An encoded name has hexadecimal digits after every `%`, so it never contains
/// this.
const CUT: &str = "%~";

/// The mapping of lock names to file names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Naming {
    /// With a prefix the file is named by the prefix and the raw name.
    pub(super) prefix: Option<String>,
}

/// The names of the files of one lock. Side files start with a dot, lock files never do.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct FileNames {
    base: String,
}

impl Naming {
    /// Returns the files of `lock`.
    pub(super) fn of(&self, lock: &LockName) -> FaultResult<FileNames> {
        let Some(prefix) = &self.prefix else {
            return Ok(FileNames { base: shorten(lock.percent_encoded()) });
        };
        let base = format!("{prefix}{lock}");
        let problem = if base.contains('/') {
            "it contains a slash"
        } else if base.starts_with('.') {
            "it starts with a dot, as only side files of locks do"
        } else if base.len() > LONGEST {
            "it is too long"
        } else {
            return Ok(FileNames { base });
        };
        let reason = format!("{base} cannot be the name of a lock file: {problem}; choose another name");
        Err(Fault::new(ErrorKind::Invalid, reason))
    }

    /// Returns the lock whose file is `file`, if the file's name shows it.
    pub(super) fn lock_of(&self, file: &str) -> Option<LockName> {
        let lock = match &self.prefix {
            Some(prefix) => LockName::new(file.strip_prefix(prefix.as_str())?).ok()?,
            None => LockName::from_percent_encoded(file)?,
        };
        (self.of(&lock).ok()?.base == file).then_some(lock)
    }
}

impl FileNames {
    /// The lock file itself, the one that `flock(1)` is given.
    pub(super) fn canonical(&self) -> &str {
        &self.base
    }

    pub(super) fn queue(&self) -> String {
        format!(".{}.queue", self.base)
    }

    pub(super) fn slot(&self, number: u32) -> String {
        format!(".{}.slot.{number}", self.base)
    }

    /// The FIFO that is kept, for a claim that finds the queue empty.
    pub(super) fn kept_fifo(&self) -> String {
        format!(".{}.fifo", self.base)
    }
}

/// Returns the name of the FIFO of `claim`. It shows no lock, since a reader with another prefix would name that differently.
/// No other side file has a name with a single dot.
pub(super) fn claim_fifo(claim: ClaimId) -> String {
    format!(".{claim}")
}

fn shorten(mut encoded: String) -> String {
    if encoded.len() > LONGEST {
        let digest = Sha256::digest(encoded.as_bytes());
        let hash = u128::from_be_bytes(std::array::from_fn(|at| digest[at]));
        encoded.truncate(LONGEST - CUT.len() - 32);
        encoded = format!("{encoded}{CUT}{hash:032x}");
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> LockName {
        LockName::new(text).expect("valid")
    }

    #[test]
    fn without_a_prefix_names_are_encoded_and_come_back() {
        let naming = Naming { prefix: None };
        for text in ["deploy", ".x", "a/b c%é", "a.queue", "a.slot.1"] {
            let files = naming.of(&name(text)).expect("expressible");
            assert_eq!(files.canonical(), name(text).percent_encoded());
            assert_eq!(naming.lock_of(files.canonical()), Some(name(text)));
        }
        assert_eq!(naming.lock_of("a b"), None);
    }

    #[test]
    fn prefix_takes_names_raw_and_refuses_invalid_file_names() {
        let naming = Naming { prefix: Some(String::new()) };
        assert_eq!(naming.of(&name("a b")).expect("expressible").canonical(), "a b");
        for text in ["a/b", ".a", ".a.queue", &"x".repeat(200)] {
            let naming =
                Naming { prefix: Some(if text.len() > 100 { "p".repeat(30) } else { String::new() }) };
            assert!(
                naming.of(&name(text)).as_ref().is_err_and(|fault| fault.kind == ErrorKind::Invalid),
                "{text}"
            );
        }
    }

    #[test]
    fn long_names_are_cut_without_colliding() {
        let naming = Naming { prefix: None };
        let (a, b) = ("é".repeat(100), format!("{}è", "é".repeat(99)));
        let (a, b) = (naming.of(&name(&a)).expect("fits"), naming.of(&name(&b)).expect("fits"));
        assert_ne!(a, b);
        assert!(a.canonical().contains(CUT) && a.canonical().len() == LONGEST);
        assert!(a.slot(u32::MAX).len() <= 255);
    }
}
