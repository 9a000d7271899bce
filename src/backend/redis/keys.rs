//! The names of a lock's keys, and their cluster slot.

use crate::lock::{ClaimId, ErrorKind, LockName};
use crate::net::fault::{Fault, FaultResult};

/// The prefix of keys if none is given.
const DEFAULT: &str = "dlock:";
/// The parts of a lock's keys: the sorted set of the claims in its queue; the hash with the last token and success; the
/// beginning of those of one claim.
pub(super) const QUEUE: &str = "queue";
pub(super) const COUNTERS: &str = "counters";
pub(super) const CLAIM: &str = "claim:";
/// The number of slots of a cluster.
const SLOTS: u16 = 16_384;

/// Converts names to keys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Naming {
    /// The prefix that the user gave: the key is this and the raw name. Without it braces are percent-encoded.
    pub(super) prefix: Option<String>,
    /// The beginning of the names of side keys, to separate queues of different kinds.
    pub(super) group: &'static str,
}

/// The keys of one lock, all in one slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LockKeys {
    pub(super) name: LockName,
    /// The string key that other programs' clients know.
    pub(super) lock: String,
    /// The cluster slot.
    pub(super) slot: u16,
    tag: String,
    /// The end of side keys.
    pub(super) suffix: String,
    group: &'static str,
}

impl LockKeys {
    /// Returns the lock's side key for `part`.
    pub(super) fn side(&self, part: &str) -> String {
        format!("{}{}", self.side_prefix(part), self.suffix)
    }

    /// Returns the beginning of side keys for parts that begin with `part`.
    pub(super) fn side_prefix(&self, part: &str) -> String {
        format!("{{{}}}:dlock:{}{part}", self.tag, self.group)
    }

    /// Returns the key of the hash of one claim.
    pub(super) fn claim(&self, id: ClaimId) -> String {
        self.side(&format!("{CLAIM}{id}"))
    }
}

impl Naming {
    /// Returns the keys of `name`.
    ///
    /// Errors: `Invalid` if the name cannot have keys.
    pub(super) fn of(&self, name: &LockName) -> FaultResult<LockKeys> {
        let lock = match &self.prefix {
            Some(prefix) => format!("{prefix}{name}"),
            None => format!("{DEFAULT}{}", encode(name.as_str())),
        };
        if lock.starts_with('{') && lock.contains("}:dlock:") {
            let reason =
                format!("the key {lock} is of the kind that dlock keeps its queues in; choose another name");
            return Err(Fault::new(ErrorKind::Invalid, reason));
        }
        let slot = slot_of(lock.as_bytes());
        let plain = !lock.contains(['{', '}']);
        let tag =
            if plain { lock.clone() } else { tag_of(&lock).map_or_else(|| tag_for(slot), str::to_owned) };
        let suffix = if plain { String::new() } else { format!(":{lock}") };
        Ok(LockKeys { name: name.clone(), lock, slot, tag, suffix, group: self.group })
    }

    /// Returns a pattern that the keys for `part` of all locks match, also under other prefixes.
    pub(super) fn sides(&self, part: &str) -> String {
        format!("{{*}}:dlock:{}{part}*", self.group)
    }

    /// Returns the name of the lock that has this key for `part`.
    pub(super) fn name_of_side(&self, key: &str, part: &str) -> Option<LockName> {
        let middle = format!("}}:dlock:{}{part}", self.group);
        let (tag, suffix) = key.strip_prefix('{')?.split_once(middle.as_str())?;
        let lock = if suffix.is_empty() { tag } else { suffix.strip_prefix(':')? };
        let name = match &self.prefix {
            Some(prefix) => lock.strip_prefix(prefix.as_str())?.to_owned(),
            None => decode(lock.strip_prefix(DEFAULT)?)?,
        };
        let name = LockName::new(name).ok()?;
        let keys = self.of(&name).ok()?;
        (keys.side(part) == key).then_some(name)
    }
}

/// Encodes braces, so that no part of the name decides the slot.
fn encode(name: &str) -> String {
    name.replace('%', "%25").replace('{', "%7B").replace('}', "%7D")
}

fn decode(text: &str) -> Option<String> {
    let decoded = text.replace("%7B", "{").replace("%7D", "}").replace("%25", "%");
    (encode(&decoded) == text).then_some(decoded)
}

/// Returns the text between the first opening brace and the next closing one, unless it is empty.
fn tag_of(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    rest.split_once('}').map(|(tag, _)| tag).filter(|tag| !tag.is_empty())
}

/// Returns a short tag in `slot`: the first number in it, as text.
fn tag_for(slot: u16) -> String {
    (0..=u32::MAX)
        .map(|n| format!("{n:x}"))
        .find(|tag| crc16(tag.as_bytes()) % SLOTS == slot)
        .unwrap_or_default()
}

/// Returns the slot of a key by the cluster specification.
pub(super) fn slot_of(key: &[u8]) -> u16 {
    let tag = std::str::from_utf8(key).ok().and_then(tag_of);
    crc16(tag.map_or(key, str::as_bytes)) % SLOTS
}

/// CRC-16/XMODEM, the checksum that the Redis Cluster specification names.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> LockName {
        LockName::new(text).expect("valid")
    }

    fn raw(prefix: &str) -> Naming {
        Naming { prefix: Some(prefix.to_owned()), group: "" }
    }

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"user1000"));
        assert_eq!(slot_of(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot_of(b"foo{{bar}}zap"), crc16(b"{bar") % SLOTS);
    }

    #[test]
    fn keys_read_well() {
        let keys = Naming::default().of(&name("deploy")).expect("has keys");
        assert_eq!(
            (keys.lock.as_str(), keys.side(QUEUE).as_str()),
            ("dlock:deploy", "{dlock:deploy}:dlock:queue")
        );
        let keys = raw("").of(&name("a{b}c")).expect("has keys");
        assert_eq!(keys.side(QUEUE), "{b}:dlock:queue:a{b}c");
    }

    #[test]
    fn side_keys_are_no_names() {
        assert!(raw("").of(&name("{x}:dlock:queue")).is_err());
        assert!(Naming::default().of(&name("{x}:dlock:queue")).is_ok());
    }

    proptest! {
        #[test]
        fn all_keys_of_a_lock_lie_in_its_slot(text in "[a-c{}%:]{1,8}", with in any::<bool>()) {
            let naming = if with { raw("") } else { Naming::default() };
            if let Ok(keys) = naming.of(&name(&text)) {
                let id = ClaimId::from_bytes([7; 16]);
                for key in [keys.side(QUEUE), keys.side(COUNTERS), keys.claim(id)] {
                    prop_assert_eq!(slot_of(key.as_bytes()), keys.slot, "{}", key);
                }
                prop_assert_eq!(naming.name_of_side(&keys.side(QUEUE), QUEUE), Some(name(&text)));
            }
        }
    }
}
