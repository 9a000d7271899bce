//! The keys of items.
//!
//! A key has at most 250 bytes, without whitespace and control characters. Keys that dlock adds to a lock contain `%.`,
//! and truncated keys contain `%~`. Escaped names contain neither, since a `%` there is followed by two hexadecimal
//! digits.

use sha2::{Digest, Sha256};

use crate::lock::{ErrorKind, LockName};
use crate::net::fault::{Fault, FaultResult};
use crate::queue::document::Which;

/// The longest key.
const LONGEST: usize = 250;
/// The suffix of the key of a token counter. The counter remains when the lock is free, so it shows which locks exist.
const TOKEN: &str = "%.token";

/// Converts names to keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Naming {
    pub(super) prefix: String,
    /// Whether whitespace and `%` in a name become `%XX`. Other programs' clients write raw names.
    pub(super) escapes: bool,
}

/// A key.
pub(super) type Key = Vec<u8>;

impl Naming {
    /// Returns the key of the lock `name`.
    ///
    /// Errors: `Invalid` for a name that cannot be encoded so.
    pub(super) fn lock(&self, name: &LockName) -> FaultResult<Key> {
        // Names have no other whitespace.
        let escaped = || name.as_str().replace('%', "%25").replace(' ', "%20");
        let name = if self.escapes { escaped() } else { name.to_string() };
        let text = format!("{}{name}", self.prefix);
        let is_wrong = |c: char| c.is_ascii_whitespace() || c.is_ascii_control();
        if text.contains(is_wrong) {
            let why = "a key of memcached has no whitespace; leave out --prefix to have it escaped";
            return Err(Fault::new(ErrorKind::Invalid, why));
        }
        if !self.escapes && (text.contains("%.") || text.contains("%~")) {
            let why = "keys with %. and %~ are dlock's own; leave out --prefix to have the name escaped";
            return Err(Fault::new(ErrorKind::Invalid, why));
        }
        Ok(within(text.into_bytes(), ""))
    }

    /// Returns the key of the token counter of the lock with the key `lock`.
    pub(super) fn token(lock: &[u8]) -> Key {
        within(lock.to_vec(), TOKEN)
    }

    /// Returns the key of an item of a lock.
    pub(super) fn of(&self, which: Which<'_>) -> FaultResult<Key> {
        match which {
            Which::Queue(name) => self.lock(name),
            Which::Gone(name, id) => Ok(within(self.lock(name)?, &format!("%.gone-{id}"))),
            Which::Success(name) => Ok(within(self.lock(name)?, "%.success")),
        }
    }

    /// Returns those of `keys`, all keys of a server, that may be locks under this prefix.
    pub(super) fn locks_among(&self, keys: &[Key]) -> Vec<Key> {
        let tokens: std::collections::HashSet<&[u8]> =
            keys.iter().map(Vec::as_slice).filter(|key| key.ends_with(TOKEN.as_bytes())).collect();
        let mut locks: Vec<Key> =
            tokens.iter().map(|token| token[..token.len() - TOKEN.len()].to_vec()).collect();
        // The counters of long keys have truncated keys.
        let long = keys.iter().filter(|key| key.len() + TOKEN.len() > LONGEST);
        locks.extend(long.filter(|key| tokens.contains(Self::token(key).as_slice())).cloned());
        locks.retain(|key| !key.is_empty() && key.starts_with(self.prefix.as_bytes()));
        locks.sort();
        locks
    }
}

/// Returns `key` followed by `end`. A key that is too long is truncated, with a hash of it before `end`.
fn within(mut key: Key, end: &str) -> Key {
    if key.len() + end.len() > LONGEST {
        let digest = Sha256::digest(&key);
        key.truncate(LONGEST - end.len() - 2 - 32);
        let hash = u128::from_be_bytes(std::array::from_fn(|at| digest[at]));
        key.extend_from_slice(format!("%~{hash:032x}").as_bytes());
    }
    key.extend_from_slice(end.as_bytes());
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::ClaimId;

    fn key(prefix: Option<&str>, name: &str) -> Result<String, ErrorKind> {
        let (prefix, escapes) = (prefix.unwrap_or_default().to_owned(), prefix.is_none());
        let naming = Naming { prefix, escapes };
        let key = naming.lock(&LockName::new(name).expect("a name")).map_err(|fault| fault.kind)?;
        Ok(String::from_utf8(key).expect("UTF-8"))
    }

    #[test]
    fn plain_names_are_their_keys() {
        assert_eq!(key(None, "deploy"), Ok("deploy".into()));
        assert_eq!(key(Some(""), "a/b:c%2F"), Ok("a/b:c%2F".into()));
        assert_eq!(key(Some("app:"), "é"), Ok("app:é".into()));
        assert_eq!(key(None, "a b%"), Ok("a%20b%25".into()));
    }

    #[test]
    fn unescapable_key_is_refused_under_an_empty_prefix() {
        for name in ["a b", "a%.token", "a%~b"] {
            assert_eq!(key(Some(""), name), Err(ErrorKind::Invalid), "{name}");
            assert!(key(None, name).is_ok());
        }
    }

    #[test]
    fn long_keys_end_in_a_hash_and_stay_apart() {
        let prefix = "p".repeat(100);
        let one = key(Some(&prefix), &"x".repeat(200)).expect("fits");
        let two = key(Some(&prefix), &format!("{}y", "x".repeat(199))).expect("fits");
        assert!(one.len() == LONGEST && two.len() == LONGEST && one != two);
        let exact = key(Some(&"p".repeat(50)), &"x".repeat(200)).expect("fits");
        assert_eq!(exact, format!("{}{}", "p".repeat(50), "x".repeat(200)));
    }

    #[test]
    fn no_item_beside_a_lock_is_a_lock() {
        let naming = Naming { prefix: String::new(), escapes: true };
        let name = LockName::new("x".repeat(200)).expect("a name");
        let lock = naming.lock(&name).expect("valid");
        let id = ClaimId::from_number(1);
        let beside = [Which::Gone(&name, id), Which::Success(&name)];
        let [note, success] = beside.map(|which| naming.of(which).expect("valid"));
        let all = [lock.clone(), Naming::token(&lock), success, note];
        assert!(all.iter().all(|key| key.len() <= LONGEST));
        assert!(all[1..].iter().all(|key| String::from_utf8_lossy(key).contains("%.")));
    }

    #[test]
    fn locks_are_found_by_their_counters() {
        let naming = Naming { prefix: "app:".into(), escapes: false };
        let name = |text: &str| LockName::new(text).expect("a name");
        let (short, long) = (name("deploy"), "x".repeat(244));
        let short = naming.lock(&short).expect("valid");
        let long = format!("app:{long}").into_bytes();
        let keys = [
            short.clone(),
            Naming::token(&short),
            long.clone(),
            Naming::token(&long),
            b"other".to_vec(),
            b"other%.token".to_vec(),
            format!("app:{}", "y".repeat(244)).into_bytes(),
        ];
        let found = naming.locks_among(&keys);
        assert!(found.contains(&short) && found.contains(&long), "{found:?}");
        assert!(!found.contains(&b"other".to_vec()) && !found.contains(&keys[6]), "{found:?}");
    }
}
