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
    /// Something that is wrong with this one, and what to do about it.
    pub fn warning(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { weight: Weight::Warning, what: what.into(), remedy: Some(remedy.into()) }
    }
}
