//! What `doctor` learns of a service.

use std::time::Duration;

/// A service, looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Examination {
    /// What answered, with its version: `etcd 3.4.23`.
    pub server: String,
    /// Where it answered, without secrets.
    pub reached: String,
    /// How long one exchange took on an open connection.
    pub round_trip: Duration,
    /// What one should know before relying on it.
    pub risks: Vec<Risk>,
}

/// How much a risk matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weight {
    /// A limit of this kind of service; nothing is wrong.
    Note,
    /// Locks can be lost or given twice as the service is set up now.
    Warning,
}

/// Something that can cost a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Risk {
    /// How much it matters.
    pub weight: Weight,
    /// What can happen, and why: one sentence without a full stop.
    pub what: String,
    /// What to do about it, likewise.
    pub remedy: Option<String>,
}

impl Risk {
    /// A limit of this kind of service.
    pub fn note(what: impl Into<String>) -> Self {
        Self { weight: Weight::Note, what: what.into(), remedy: None }
    }

    /// That tokens fall with the service's data; `help` says what there is against it, or what becomes of them.
    pub fn of_backup(help: &str) -> Self {
        Self::note(format!(
            "a service restored from a backup gives lower tokens than it has given since; {help}"
        ))
    }

    /// That somebody on the way to `place` can come by the password; `remedy` says how to have it encrypted.
    pub fn of_open_password(place: &str, remedy: &str) -> Self {
        let what =
            format!("the password may be sent without encryption, to {place} or to somebody who poses as it");
        Self::warning(what, remedy)
    }

    /// Something that is wrong with this one, and what to do about it.
    pub fn warning(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { weight: Weight::Warning, what: what.into(), remedy: Some(remedy.into()) }
    }
}
