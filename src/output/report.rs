//! The report of a run: `--report FILE`.

use std::io;
use std::path::Path;

use serde::{Serialize, Serializer};

use super::{Ms, file, json};

/// Makes [`Outcome`] from a table of variants and their names in reports.
macro_rules! outcomes {
    ($($(#[$doc:meta])* $variant:ident $name:literal,)*) => {
        /// How a run ended.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
        pub enum Outcome {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl Outcome {
            /// All outcomes and their names.
            pub const ALL: &[(Self, &str)] = &[$((Self::$variant, $name)),*];
        }
    };
}

outcomes! {
    /// The command ran and exited.
    Ran "ran",
    /// The lock was busy, and dlock was not to wait.
    Busy "busy",
    /// The wait ran out.
    Timeout "timeout",
    /// The wait would never have ended.
    Deadlock "deadlock",
    /// A newer waiter passed `--supersede`.
    Superseded "superseded",
    /// The lock was lost.
    Lost "lost",
    /// The claim was broken.
    Broken "broken",
    /// A newer run passed `--replace`.
    Replaced "replaced",
    /// `--max-run` stopped the command.
    MaxRun "max-run",
    /// `--once-per` found a recent success.
    Skipped "skipped",
    /// A signal ended the wait, or dlock and the command.
    Signal "signal",
    /// Another failure.
    Error "error",
}

/// The data of `--report` and `--metrics-file`.
///
/// With several names `lock`, `claim` and `token` are arrays in the order of the names. A value that does not exist is null.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    /// How the run ended.
    pub outcome: Outcome,
    /// dlock's exit status; `None` if a signal ends dlock.
    pub exit_code: Option<u8>,
    /// The name of the signal that ends dlock, such as `SIGTERM`.
    pub signal: Option<String>,
    /// How long the run waited for the lock.
    pub waited_ms: Ms,
    /// How long the run held the lock; `None` if it never did.
    pub held_ms: Option<Ms>,
    /// The names.
    #[serde(serialize_with = "one_or_many")]
    pub lock: Vec<Option<String>>,
    /// The backend's name.
    pub backend: String,
    /// The mode.
    pub mode: String,
    /// The claim, once for each name.
    #[serde(serialize_with = "one_or_many")]
    pub claim: Vec<Option<String>>,
    /// The token of each name.
    #[serde(serialize_with = "one_or_many")]
    pub token: Vec<Option<String>>,
    /// The message about the failure.
    pub error: Option<String>,
}

fn one_or_many<S: Serializer>(values: &Vec<Option<String>>, to: S) -> Result<S::Ok, S::Error> {
    if let [one] = values.as_slice() { one.serialize(to) } else { values.serialize(to) }
}

impl Report {
    /// Returns one JSON object and a newline.
    pub fn json(&self) -> String {
        json::line(self)
    }

    /// Writes the object to `path`, as [`file::write`] does.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        file::write(path, &self.json(), 0o666, false)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::time::Duration;

    pub(crate) fn ran() -> Report {
        Report {
            outcome: Outcome::Ran,
            exit_code: Some(3),
            signal: None,
            waited_ms: Ms(Duration::from_millis(1500)),
            held_ms: Some(Ms(Duration::from_secs(60))),
            lock: vec![Some("deploy \"x\"".into())],
            backend: "file".into(),
            mode: "exclusive".into(),
            claim: vec![Some("ab".repeat(16))],
            token: vec![Some("7".into())],
            error: None,
        }
    }

    #[test]
    fn report_is_one_object() {
        assert_eq!(
            ran().json(),
            concat!(
                r#"{"outcome":"ran","exit_code":3,"signal":null,"waited_ms":1500,"held_ms":60000,"#,
                r#""lock":"deploy \"x\"","backend":"file","mode":"exclusive","#,
                r#""claim":"abababababababababababababababab","token":"7","error":null}"#,
                "\n"
            )
        );
    }
}
