//! Facts about a backend, as data.

use std::time::Duration;

/// What a backend can do and promises. Code and tests ask this, never the backend's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact")]
pub struct Capabilities {
    /// The backend's name, as given to `--backend`.
    pub backend: &'static str,
    /// Whether waiters stand in a queue: they hold in order of arrival (C02), others see them, and newer ones can take their place.
    /// If not, each tries by itself until it holds.
    pub queue: bool,
    /// Whether claims can hold together without slots.
    pub shared: bool,
    /// How well the fencing token survives.
    pub token: TokenStrength,
    /// Whether claims end by a ttl on the server; if not, the kernel ends them with their processes.
    pub leased: bool,
    /// How many renewals fit into one ttl.
    pub renewals_per_ttl: u32,
    /// Whether [`super::Backend::examine`] may find a warning that whoever runs a command should hear.
    pub look_while_running: bool,
    /// How long after its ttl an abandoned claim may still stand (C04).
    pub abandoned_bound: Duration,
}

/// How well fencing tokens survive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenStrength {
    /// As durable as the service's data.
    Durable,
    /// May go back when the service loses its memory or fails over.
    Volatile,
    /// A hint for ordering, no more.
    BestEffort,
}
