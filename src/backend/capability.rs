//! Facts about a backend, as data.

use std::time::Duration;

/// The abilities and guarantees of a backend. Code and tests consult these, never the backend's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// The backend's name, as given to `--backend`.
    pub backend: &'static str,
    /// Whether claims wait in a queue: they hold in order of arrival (C02), are visible to other clients, and can be
    /// superseded. If not, each claim retries by itself until it holds.
    pub queue: bool,
    /// The durability of the fencing token.
    pub token: TokenStrength,
    /// Whether claims end by a ttl on the server; if not, the kernel ends them with their processes.
    pub leased: bool,
    /// The number of renewals in one ttl.
    pub renewals_per_ttl: u32,
    /// Whether [`super::Backend::examine`] may find a warning that concerns users of `run`.
    pub look_while_running: bool,
    /// The longest time after its ttl for which an abandoned claim may remain (C04).
    pub abandoned_bound: Duration,
}

impl Capabilities {
    /// The facts of the backend `backend`, if it is as most are.
    pub const fn of(backend: &'static str) -> Self {
        Self {
            backend,
            queue: true,
            token: TokenStrength::Durable,
            leased: true,
            renewals_per_ttl: 3,
            look_while_running: true,
            abandoned_bound: Duration::from_secs(1),
        }
    }
}

/// The durability of fencing tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenStrength {
    /// As durable as the service's data.
    Durable,
    /// May decrease when the service loses its memory or fails over.
    Volatile,
    /// A hint for ordering only.
    BestEffort,
}
