//! The findings of `doctor` on a service.

use std::time::Duration;

use serde::Serialize;

/// The result of examining a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Examination {
    /// The server, with its version: `etcd 3.4.23`.
    pub server: String,
    /// Its address, without secrets.
    pub reached: String,
    /// The duration of one exchange on an open connection.
    pub round_trip: Duration,
    /// The risks of relying on it.
    pub risks: Vec<Risk>,
}

/// The weight of a risk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Weight {
    /// A limit of this kind of service, which is not a fault.
    Note,
    /// In its present configuration locks can be lost or granted twice.
    Warning,
}

/// Something that can lose a lock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Risk {
    /// How much it matters.
    pub weight: Weight,
    /// The possible event and its cause: one sentence without a full stop.
    pub what: String,
    /// The remedy, likewise.
    pub remedy: Option<String>,
}

impl Risk {
    /// Creates a warning about this service, with the remedy.
    pub fn warning(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { weight: Weight::Warning, what: what.into(), remedy: Some(remedy.into()) }
    }
}
