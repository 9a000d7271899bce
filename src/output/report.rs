//! The report of one run: `--report FILE`.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::message::milliseconds_or_null;
use super::{file, sanitise};
use crate::lock::{ClaimId, FencingToken, LockName, Mode};

/// How a run went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The command ran and ended by itself.
    Ran,
    /// The lock was not free, and dlock was not to wait.
    Busy,
    /// The wait ran out.
    Timeout,
    /// Waiting would never have ended.
    Deadlock,
    /// A newer waiter with `--supersede` came.
    Superseded,
    /// The lock was lost.
    Lost,
    /// The claim was broken.
    Broken,
    /// A newer run with `--replace` came.
    Replaced,
    /// `--max-run` ended the command.
    MaxRun,
    /// `--once-per` found a success that is recent enough.
    Skipped,
    /// A signal ended the wait, or dlock and the command.
    Signal,
    /// Something else failed.
    Error,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Ran,
        Self::Busy,
        Self::Timeout,
        Self::Deadlock,
        Self::Superseded,
        Self::Lost,
        Self::Broken,
        Self::Replaced,
        Self::MaxRun,
        Self::Skipped,
        Self::Signal,
        Self::Error,
    ];

    /// As the report spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ran => "ran",
            Self::Busy => "busy",
            Self::Timeout => "timeout",
            Self::Deadlock => "deadlock",
            Self::Superseded => "superseded",
            Self::Lost => "lost",
            Self::Broken => "broken",
            Self::Replaced => "replaced",
            Self::MaxRun => "max-run",
            Self::Skipped => "skipped",
            Self::Signal => "signal",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What `--report` and `--metrics-file` tell of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// How it went.
    pub outcome: Outcome,
    /// dlock's exit status; `None` if it ends by a signal.
    pub exit_code: Option<u8>,
    /// The signal's name, such as `SIGTERM`, if it ends by one.
    pub signal: Option<String>,
    /// How long it waited for the lock.
    pub waited: Duration,
    /// How long it held the lock; `None` if it never did.
    pub held: Option<Duration>,
    /// The names, in the order given.
    pub locks: Vec<LockName>,
    /// The backend's name; `None` if none was chosen yet.
    pub backend: Option<String>,
    /// The mode.
    pub mode: Mode,
    /// The claim, if there was one.
    pub claim: Option<ClaimId>,
    /// The tokens, in the order of the names; empty if the lock was never held.
    pub tokens: Vec<FencingToken>,
    /// The sentence that said what failed.
    pub error: Option<String>,
}

#[derive(Serialize)]
struct Object<'a> {
    outcome: Outcome,
    exit_code: Option<u8>,
    signal: Option<&'a str>,
    #[serde(serialize_with = "milliseconds_or_null")]
    waited_ms: Option<Duration>,
    #[serde(serialize_with = "milliseconds_or_null")]
    held_ms: Option<Duration>,
    #[serde(serialize_with = "one_or_many")]
    lock: Vec<Option<String>>,
    backend: Option<&'a str>,
    mode: String,
    #[serde(serialize_with = "one_or_many")]
    claim: Vec<Option<String>>,
    #[serde(serialize_with = "one_or_many")]
    token: Vec<Option<String>>,
    error: Option<&'a str>,
}

fn one_or_many<S: Serializer>(values: &Vec<Option<String>>, to: S) -> Result<S::Ok, S::Error> {
    if let [one] = values.as_slice() { one.serialize(to) } else { values.serialize(to) }
}

impl Report {
    /// One JSON object and a newline; with several names `lock`, `claim` and `token` are arrays in their order,
    /// with null for what there never was.
    pub fn json(&self) -> String {
        let per_lock = |value: &dyn Fn(usize) -> Option<String>| (0..self.locks.len()).map(value).collect();
        let object = Object {
            outcome: self.outcome,
            exit_code: self.exit_code,
            signal: self.signal.as_deref(),
            waited_ms: Some(self.waited),
            held_ms: self.held,
            lock: self.locks.iter().map(|name| Some(name.to_string())).collect(),
            backend: self.backend.as_deref(),
            mode: self.mode.to_string(),
            claim: per_lock(&|_| self.claim.map(|claim| claim.to_string())),
            token: per_lock(&|n| self.tokens.get(n).map(ToString::to_string)),
            error: self.error.as_deref(),
        };
        let text = serde_json::to_string(&object).unwrap_or_default();
        sanitise::json(&text) + "\n"
    }

    /// Writes the object to `path`: a regular or new file is replaced by rename, a pipe or device written to.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        file::write(path, &self.json(), 0o666, false)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn ran() -> Report {
        Report {
            outcome: Outcome::Ran,
            exit_code: Some(3),
            signal: None,
            waited: Duration::from_millis(1500),
            held: Some(Duration::from_secs(60)),
            locks: vec![LockName::new("deploy \"x\"").expect("valid")],
            backend: Some("file".into()),
            mode: Mode::Exclusive,
            claim: Some(ClaimId::from_bytes([0xab; 16])),
            tokens: vec![FencingToken::new(7).expect("positive")],
            error: None,
        }
    }

    #[test]
    fn one_name_is_a_text_and_several_are_arrays() {
        assert_eq!(
            ran().json(),
            concat!(
                r#"{"outcome":"ran","exit_code":3,"signal":null,"waited_ms":1500,"held_ms":60000,"#,
                r#""lock":"deploy \"x\"","backend":"file","mode":"exclusive","#,
                r#""claim":"abababababababababababababababab","token":"7","error":null}"#,
                "\n"
            )
        );
        let several = Report {
            outcome: Outcome::Lost,
            exit_code: None,
            signal: Some("SIGTERM".into()),
            held: None,
            locks: ["a", "b"].map(|n| LockName::new(n).expect("valid")).into(),
            backend: None,
            claim: None,
            tokens: vec![],
            error: Some("why\u{202e}".into()),
            ..ran()
        };
        assert_eq!(
            several.json(),
            concat!(
                r#"{"outcome":"lost","exit_code":null,"signal":"SIGTERM","waited_ms":1500,"held_ms":null,"#,
                r#""lock":["a","b"],"backend":null,"mode":"exclusive","#,
                r#""claim":[null,null],"token":[null,null],"error":"why\u202e"}"#,
                "\n"
            )
        );
    }

    #[test]
    fn outcomes_are_spelled_alike_everywhere() {
        for outcome in Outcome::ALL {
            assert_eq!(serde_json::to_value(outcome).expect("serialises"), outcome.as_str());
        }
    }
}
