//! What a client knows of its claim at one node.

use std::time::Duration;

use super::reply::{Other, Position, Row};
use crate::backend::claim_state::due;
use crate::backend::fault::Fault;
use crate::backend::redis::redlock::former::Armed;
use crate::lock::{FencingToken, Granted, Moment};

/// The first pause after a failure; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(100);

/// Whether the claim is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// The node has not said yet.
    Unknown,
    /// In all its queues, waiting or holding.
    In,
    /// The node knows nothing of it: it expired, or the node lost its data.
    Missing,
    /// It was ended there.
    Gone,
}

/// What a client knows of its claim at one node.
#[derive(Debug)]
pub(super) struct NodeClaim {
    pub(super) phase: Phase,
    pub(super) rows: Vec<Row>,
    /// From when the ttl counts there.
    pub(super) from: Moment,
    /// Until when the node's word does not count: it may have forgotten what it gave before it was restarted.
    pub(super) abstains_until: Moment,
    /// Which server it is.
    pub(super) run: Option<String>,
    /// The grants that were given back, or are being given back; they never count again.
    yielded: Vec<Option<FencingToken>>,
    /// How many changes of how the claim stands there are under way.
    pub(super) telling: u32,
    pub(super) armed: Option<Armed>,
    pub(super) look_at: Moment,
    pub(super) looking: bool,
    pub(super) mismatch: Option<Other>,
    pub(super) fault: Option<Fault>,
    failures: u32,
    /// The last step sent, and the last whose answer counted.
    pub(super) sent: u64,
    taken: u64,
    pub(super) left: bool,
}

impl NodeClaim {
    pub(super) fn new(names: usize) -> Self {
        Self {
            phase: Phase::Unknown,
            rows: Vec::new(),
            from: Moment::from_nanos(0),
            abstains_until: Moment::from_nanos(0),
            run: None,
            yielded: vec![None; names],
            telling: 0,
            armed: None,
            look_at: Moment::NEVER,
            looking: false,
            mismatch: None,
            fault: None,
            failures: 0,
            sent: 0,
            taken: 0,
            left: false,
        }
    }

    /// Takes over what the node said to its step number `sent`.
    pub(super) fn take(&mut self, sent: u64, position: Position, max_ttl: Duration, now: Moment) {
        self.fault = None;
        self.failures = 0;
        // A later answer was read before this one.
        if sent < self.taken {
            return;
        }
        self.taken = sent;
        let short = max_ttl.saturating_sub(position.uptime);
        self.abstains_until = if short.is_zero() { Moment::from_nanos(0) } else { now + short };
        self.run = Some(position.run);
        let gone = position.rows.iter().filter_map(|row| row.base.gone.as_deref());
        self.phase = gone.fold(Phase::In, |phase, why| match (phase, why) {
            (Phase::In | Phase::Missing, "missing") => Phase::Missing,
            _ => Phase::Gone,
        });
        let horizon = position.rows.iter().filter_map(|row| row.base.horizon).min();
        self.look_at = due(now, horizon);
        self.rows = position.rows;
    }

    /// The node could not be used; it is asked again later, and rarely when it stays away.
    pub(super) fn failed(&mut self, fault: Fault, most: Duration, now: Moment) {
        self.fault = Some(fault);
        self.armed = None;
        self.look_at = now + PAUSE.saturating_mul(1 << self.failures.min(16)).min(most);
        self.failures += 1;
    }

    /// What it gave for the `n`th name and still counts, if it counts at all.
    pub(super) fn counted(&self, n: usize, now: Moment) -> Option<Granted> {
        if self.phase != Phase::In || now < self.abstains_until {
            return None;
        }
        self.present(n)
    }

    /// What it gave for the `n`th name and was not given back.
    pub(super) fn present(&self, n: usize) -> Option<Granted> {
        let granted = self.rows.get(n)?.granted()?;
        (self.yielded[n] != Some(granted.token)).then_some(granted)
    }

    /// Whether the claim may ask for a change there now: it stands there as it was last heard.
    pub(super) fn can_be_told(&self) -> bool {
        self.phase == Phase::In && self.fault.is_none() && self.telling == 0
    }

    /// Whether it gave the `n`th name as in `hold`, with the same slot, and still counts.
    pub(super) fn carries(&self, n: usize, hold: &Granted, now: Moment) -> bool {
        self.counted(n, now).is_some_and(|given| given.slot == hold.slot)
    }

    /// Has what it gave for the `n`th name count no more.
    pub(super) fn give_back(&mut self, n: usize, token: FencingToken) {
        self.yielded[n] = Some(token);
    }

    /// Whether it certainly has nothing of the claim; one that was restarted may have forgotten what still counts.
    pub(super) fn is_out(&self, now: Moment) -> bool {
        self.phase == Phase::Gone || (self.phase == Phase::Missing && now >= self.abstains_until)
    }

    pub(super) fn is_due(&self, now: Moment) -> bool {
        let notified = self.armed.as_ref().is_none_or(|armed| {
            !armed.connection.is_open() || armed.connection.notified_count() != armed.notified
        });
        !self.looking && (now >= self.look_at || (notified && self.fault.is_none()))
    }
}
