//! The stable JSON objects of `status`, `list` and `watch`.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::Serialize;

use super::{Ms, sanitise};
use crate::lock::{Entry, LockStatus};

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the names of the stable object")]
struct Lock<'a> {
    lock: &'a str,
    backend: &'a str,
    holders: Vec<EntryObject<'a>>,
    waiters: Vec<EntryObject<'a>>,
}

#[derive(Serialize)]
struct EntryObject<'a> {
    claim: Option<String>,
    mode: Option<String>,
    slot: Option<u32>,
    token: Option<String>,
    host: Option<&'a str>,
    pid: Option<u32>,
    user: Option<&'a str>,
    command: Option<&'a str>,
    label: Option<&'a str>,
    since: Option<String>,
    ttl_ms: Option<Ms>,
    ahead: Option<u32>,
    foreign: bool,
}

impl<'a> EntryObject<'a> {
    fn new(entry: &'a Entry) -> Self {
        Self {
            claim: entry.claim.map(|id| id.to_string()),
            mode: entry.mode.map(|mode| mode.to_string()),
            slot: entry.slot,
            token: entry.token.map(|token| token.to_string()),
            host: entry.host.as_deref(),
            pid: entry.pid,
            user: entry.user.as_deref(),
            command: entry.command.as_deref(),
            label: entry.label.as_deref(),
            since: entry.since.map(time),
            ttl_ms: entry.ttl.map(Ms),
            ahead: entry.ahead,
            foreign: entry.foreign,
        }
    }
}

impl<'a> Lock<'a> {
    fn new(status: &'a LockStatus, backend: &'a str) -> Self {
        Self {
            lock: status.name.as_str(),
            backend,
            holders: status.holders.iter().map(EntryObject::new).collect(),
            waiters: status.waiters.iter().map(EntryObject::new).collect(),
        }
    }
}

/// Returns RFC 3339 in UTC with milliseconds.
pub(crate) fn time(when: SystemTime) -> String {
    // The formatter supports the years 1970 to 9999; an entry may have any.
    let span = when.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_millis());
    let span = u64::try_from(span).unwrap_or(u64::MAX).min(253_402_300_799_999);
    humantime::format_rfc3339_millis(SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(span))
        .to_string()
}

/// Returns an object of texts and numbers as one line.
pub(super) fn line<T: Serialize>(object: &T) -> String {
    let text = serde_json::to_string(object).expect("structs of texts and numbers always serialise");
    sanitise::json(&text) + "\n"
}

/// Returns `{"lock","backend","holders":[…],"waiters":[…]}` and a newline.
pub fn status(status: &LockStatus, backend: &str) -> String {
    line(&Lock::new(status, backend))
}

#[derive(Serialize)]
struct Leader<'a> {
    #[serde(flatten)]
    entry: EntryObject<'a>,
    value: &'a str,
}

/// Returns the leader's entry with its `"value"`, or `null`, and a newline.
pub fn leader(leader: Option<&Entry>) -> String {
    line(&leader.map(|entry| Leader {
        entry: EntryObject::new(entry),
        value: entry.label.as_deref().unwrap_or_default(),
    }))
}

/// Returns `{"locks":[…]}` of the same objects and a newline.
pub fn list(locks: &[LockStatus], backend: &str) -> String {
    let locks: Vec<_> = locks.iter().map(|lock| Lock::new(lock, backend)).collect();
    line(&BTreeMap::from([("locks", locks)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{ClaimId, FencingToken, LockName, Mode};
    use std::time::Duration;

    fn hostile() -> LockStatus {
        let holder = Entry {
            claim: Some(ClaimId::from_bytes([0xab; 16])),
            mode: Some(Mode::Slots(std::num::NonZeroU32::MIN)),
            slot: Some(1),
            token: FencingToken::new(u64::MAX),
            host: Some("host7".into()),
            pid: Some(4121),
            user: Some("ci".into()),
            command: Some("a\"\\\n\u{9b}".into()),
            label: Some("\u{202e}".into()),
            since: Some(SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123)),
            ttl: Some(Duration::from_millis(29_500)),
            ahead: None,
            ..Entry::default()
        };
        LockStatus {
            name: LockName::new("de\"ploy").expect("valid"),
            holders: vec![holder],
            waiters: vec![Entry { foreign: true, ahead: Some(1), ..Entry::default() }],
        }
    }

    const OBJECT: &str = concat!(
        r#"{"lock":"de\"ploy","backend":"file","holders":[{"claim":"abababababababababababababababab","#,
        r#""mode":"slots:1","slot":1,"token":"18446744073709551615","host":"host7","pid":4121,"user":"ci","#,
        r#""command":"a\"\\\n\u009b","label":"\u202e","since":"2023-11-14T22:13:20.123Z","ttl_ms":29500,"#,
        r#""ahead":null,"foreign":false}],"waiters":[{"claim":null,"mode":null,"slot":null,"token":null,"#,
        r#""host":null,"pid":null,"user":null,"command":null,"label":null,"since":null,"ttl_ms":null,"#,
        r#""ahead":1,"foreign":true}]}"#
    );

    #[test]
    fn objects_are_stable() {
        assert_eq!(status(&hostile(), "file"), format!("{OBJECT}\n"));
        assert_eq!(list(&[hostile()], "file"), format!("{{\"locks\":[{OBJECT}]}}\n"));
        assert_eq!(list(&[], "file"), "{\"locks\":[]}\n");
    }

    #[test]
    fn a_leader_is_an_entry_with_a_value() {
        let leading = hostile().holders.remove(0);
        let object: serde_json::Value = serde_json::from_str(&leader(Some(&leading))).expect("JSON");
        assert_eq!((&object["value"], &object["label"]), (&"\u{202e}".into(), &"\u{202e}".into()));
        assert_eq!(object["token"], "18446744073709551615");
        let bare: serde_json::Value = serde_json::from_str(&leader(Some(&Entry::default()))).expect("JSON");
        assert_eq!((&bare["value"], &bare["label"]), (&"".into(), &serde_json::Value::Null));
        assert_eq!(leader(None), "null\n");
    }

    #[test]
    fn impossible_times_do_no_harm() {
        assert_eq!(time(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00.000Z");
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert_eq!(time(far), "9999-12-31T23:59:59.999Z");
    }
}
