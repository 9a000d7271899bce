//! The description of a claim in its entry at a service, and what is said of entries without one and of other kinds.

use std::str::FromStr;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::lock::{ClaimId, Entry, Holder, LockName, Mode, Request};

/// The version of the format that this dlock writes and reads.
const FORM: u32 = 1;

/// The text that services store with an entry: one JSON object on one line.
///
/// A reader ignores unknown fields, so a newer version may add fields that older ones can do without. An incompatible
/// change raises `FORM`. Older versions then wait for the entry as for an exclusive one, and show it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The claim's id. It comes first because the nodes of a Redlock identify their claim by the beginning of its
    /// record.
    pub claim: String,
    /// The version of its format.
    #[serde(default = "first_form")]
    dlock: u32,
    /// The mode, in the text form of [`Mode`].
    pub mode: String,
    /// The length of the lease, in milliseconds.
    pub ttl_ms: u64,
    /// The process that made the claim.
    pub holder: Holder,
    /// The claims inside which its dlock was started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ancestors: Vec<String>,
    /// The names of those claims.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ancestor_names: Vec<String>,
    /// All names of the claim, in the order given, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Whether it yields to a newer claim that also has this flag.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub supersede: bool,
}

impl Record {
    /// Describes `request`, with a lease of `ttl`.
    pub fn of(request: &Request, ttl: Duration) -> Self {
        let inherited = request.ancestors.iter().flat_map(|ancestor| &ancestor.names);
        let names = if request.names.len() > 1 { request.names.as_slice() } else { &[] };
        Self {
            claim: request.id.to_string(),
            dlock: FORM,
            mode: request.mode.to_string(),
            ttl_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
            holder: request.holder.clone(),
            ancestors: request.ancestors.iter().map(|ancestor| ancestor.claim.to_string()).collect(),
            ancestor_names: inherited.map(ToString::to_string).collect(),
            names: names.iter().map(ToString::to_string).collect(),
            supersede: request.supersede,
        }
    }

    /// Returns the stored form.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Parses the record of another dlock; `None` for text that is not a record.
    pub fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok().filter(|record: &Self| record.id().is_some())
    }

    /// Returns the claim's id.
    pub fn id(&self) -> Option<ClaimId> {
        self.claim.parse().ok()
    }

    /// Returns the mode, if this dlock knows it.
    pub fn mode(&self) -> Option<Mode> {
        self.mode.parse().ok().filter(|_| self.dlock <= FORM)
    }

    /// Returns the claim's names: `only`, the lock in the queue of which it was found, for a claim with one name.
    pub fn names(&self, only: &LockName) -> Vec<LockName> {
        let names: Vec<LockName> = parsed(&self.names);
        if names.is_empty() { vec![only.clone()] } else { names }
    }

    /// Returns the entry that other clients see.
    pub fn entry(&self) -> Entry {
        Entry {
            claim: self.id(),
            mode: self.mode(),
            host: Some(self.holder.host.clone()),
            pid: Some(self.holder.pid),
            born: self.holder.born,
            user: Some(self.holder.user.clone()),
            command: Some(self.holder.command.clone()),
            label: self.holder.label.clone(),
            replace: self.holder.replace,
            ttl: Some(Duration::from_millis(self.ttl_ms)),
            verb: self.holder.verb,
            ancestors: parsed(&self.ancestors),
            related: [parsed(&self.names), parsed(&self.ancestor_names)].concat(),
            ..Entry::default()
        }
    }
}

fn first_form() -> u32 {
    1
}

/// Returns those of `texts` that can be parsed.
fn parsed<T: FromStr>(texts: &[String]) -> Vec<T> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

/// Returns the time `micros` microseconds after 1970, by the service's clock.
pub fn instant(micros: &str) -> Option<SystemTime> {
    micros.parse().ok().map(|micros| SystemTime::UNIX_EPOCH + Duration::from_micros(micros))
}

/// Returns the claim id under which an entry of another program is shown: stable for one entry, and different for any
/// other. `parts` are the service's identification of the entry, which a removal compares.
pub fn foreign_claim<const N: usize>(parts: [&[u8]; N]) -> ClaimId {
    let mut hash = Sha256::new();
    for part in parts {
        // With its length, so that two parts differ from one joined part.
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    ClaimId::from_bytes(std::array::from_fn(|at| digest[at]))
}

/// Returns why a claim on `name` in the mode `wanted` is refused, with the remedy: `owner` uses the lock as `used`. An
/// unknown owner, or a mode that this version does not know, is `None`.
pub fn mismatch(name: &LockName, owner: Option<&str>, used: Option<Mode>, wanted: Mode) -> String {
    let owner = owner.unwrap_or("another claim");
    let (how, remedy) = match used {
        Some(mode @ Mode::Slots(n)) => {
            (format!("as {}", kind(mode)), format!("use --slots {n} too, or another name"))
        }
        Some(mode) => (format!("as {}", kind(mode)), "leave out --slots, or use another name".to_owned()),
        None => ("as another kind of lock".to_owned(), "use the same kind, or another name".to_owned()),
    };
    format!("{owner} uses {name} {how}, which does not mix with {}; {remedy}", kind(wanted))
}

fn kind(mode: Mode) -> String {
    match mode {
        Mode::Exclusive => "an exclusive lock".to_owned(),
        Mode::Shared => "a shared lock".to_owned(),
        Mode::Slots(n) if n.get() == 1 => "a lock with 1 slot".to_owned(),
        Mode::Slots(n) => format!("a lock with {n} slots"),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::lock::{Ancestor, Verb};

    #[test]
    fn written_form_reads_back() {
        let name: LockName = "a".parse().expect("valid");
        let outer =
            Ancestor { claim: ClaimId::from_bytes([1; 16]), names: vec!["c".parse().expect("valid")] };
        let mut request = Request {
            names: vec![name.clone()],
            id: ClaimId::from_bytes([7; 16]),
            mode: Mode::Shared,
            ttl: Duration::from_secs(3),
            holder: Holder {
                host: "h\"1".into(),
                pid: 4,
                born: None,
                user: "ü".into(),
                command: "./x".into(),
                label: None,
                replace: true,
                verb: Verb::Acquire,
            },
            ancestors: vec![outer.clone()],
            supersede: true,
        };
        let record = Record::of(&request, request.ttl);
        assert_eq!(Record::parse(record.to_text().as_bytes()), Some(record.clone()));
        assert_eq!((record.id(), record.mode()), (Some(request.id), Some(Mode::Shared)));
        let entry = record.entry();
        assert_eq!((entry.verb, record.supersede), (Verb::Acquire, true));
        assert_eq!((entry.ancestors, entry.related), (vec![outer.claim], outer.names.clone()));
        assert_eq!(record.names(&name), std::slice::from_ref(&name));
        request.names.push("b".parse().expect("valid"));
        let record = Record::of(&request, request.ttl);
        assert_eq!(record.names(&name), request.names);
        assert_eq!(record.entry().related, [request.names, outer.names].concat());
    }

    #[test]
    fn record_of_an_older_version_is_read() {
        let text = r#"{"claim":"07070707070707070707070707070707","mode":"shared","ttl_ms":3000,
            "holder":{"host":"h","pid":4,"user":"u","command":"c"},"ancestors":["01010101010101010101010101010101"]}"#;
        let entry = Record::parse(text.as_bytes()).expect("a record").entry();
        assert_eq!((entry.ancestors, entry.related), (vec![ClaimId::from_bytes([1; 16])], Vec::new()));
    }

    #[test]
    fn record_of_a_newer_form_has_an_unknown_mode() {
        let text = r#"{"dlock":2,"claim":"07070707070707070707070707070707","mode":"shared","ttl_ms":3000,
            "holder":{"host":"h","pid":4,"user":"u","command":"c"},"further":[]}"#;
        let entry = Record::parse(text.as_bytes()).expect("a record").entry();
        assert_eq!((entry.mode, entry.host.as_deref()), (None, Some("h")));
    }

    #[test]
    fn text_of_other_programs_is_no_record() {
        for text in ["", "{}", "x", "{\"claim\":\"7\"}"] {
            assert_eq!(Record::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn another_entry_is_another_claim() {
        let all = [
            foreign_claim([b"a", b"1"]),
            foreign_claim([b"a", b"2"]),
            foreign_claim([b"a1", b""]),
            foreign_claim([b"a1"]),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{one}");
        }
        assert_eq!(foreign_claim([b"a", b"1"]), all[0]);
    }

    #[test]
    fn mismatch_shows_holder_mode_and_remedy() {
        let slots = |n| Mode::Slots(NonZeroU32::new(n).expect("positive"));
        let name = LockName::new("x").expect("valid");
        let of = |used, wanted| mismatch(&name, Some("ci@h pid 4 (./x)"), used, wanted);
        assert_eq!(
            of(Some(slots(3)), Mode::Exclusive),
            "ci@h pid 4 (./x) uses x as a lock with 3 slots, which does not mix with an exclusive lock; \
             use --slots 3 too, or another name"
        );
        assert_eq!(
            of(Some(Mode::Shared), slots(1)),
            "ci@h pid 4 (./x) uses x as a shared lock, which does not mix with a lock with 1 slot; \
             leave out --slots, or use another name"
        );
        assert_eq!(
            mismatch(&name, None, None, Mode::Shared),
            "another claim uses x as another kind of lock, which does not mix with a shared lock; \
             use the same kind, or another name"
        );
    }
}
