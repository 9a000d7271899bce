//! Reading queues.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::dialect::{Dialect, NOTE, Row, Sets, stored, unstored};
use super::position::{length, quoted};
use super::sessions::Sessions;
use crate::backend::record::{Record, granted, instant, with_details};
use crate::lock::queue::held;
use crate::lock::{ClaimId, Entry, Granted, LockName, LockStatus, Mode, Moment};
use crate::net::fault::{Fault, FaultResult};

/// One claim in a queue.
#[derive(Debug)]
pub(super) struct ClaimRow {
    /// `None` if another version's format makes it unreadable.
    pub(super) id: Option<ClaimId>,
    mode: Option<Mode>,
    /// `None` if another version's format makes it unreadable.
    pub(super) record: Option<Record>,
    since: Option<SystemTime>,
    label: Option<String>,
    granted: Option<Granted>,
    held: Option<SystemTime>,
    ttl: Option<Duration>,
}

/// Queues by name.
pub(super) type Queues = BTreeMap<LockName, Vec<ClaimRow>>;

/// The columns of an entry for display, which [`ClaimRow`] parses.
const ENTRY: &str =
    "c.name, c.mode, c.claim, c.about, c.label, c.fence, c.slot, c.held, c.since, c.lease_until";

/// Returns the batch that reads the live entries of one queue, or with `None` of all queues; it changes nothing.
pub(super) fn question(dialect: &dyn Dialect, name: Option<&LockName>) -> String {
    let (claims, now) = (&dialect.tables().claim, dialect.now());
    // A note does not have the name of a lock.
    let only = match name {
        Some(name) => format!("c.name = {}", dialect.text(&stored(name))),
        None => format!("c.name < '{NOTE}'"),
    };
    format!(
        "SELECT {ENTRY} - {now} FROM {claims} c WHERE {only} AND c.lease_until > {now} ORDER BY c.name, c.seq;"
    )
}

pub(super) fn queues(sets: &Sets) -> FaultResult<Queues> {
    let mut queues = Queues::new();
    for row in sets.iter().flatten() {
        let (name, found) = ClaimRow::parse(row)?;
        // A name that cannot be decoded is not a lock of this version.
        if let Some(name) = name {
            queues.entry(name).or_default().push(found);
        }
    }
    Ok(queues)
}

/// Reads all queues at one moment.
async fn all(service: &Sessions, deadline: Moment) -> FaultResult<Queues> {
    let answer = service.read(deadline, &question(&*service.dialect, None)).await?;
    answer.map_or_else(|| Ok(Queues::new()), |answer| queues(&answer.sets))
}

/// Reads the status of one queue.
pub(super) async fn one(service: &Sessions, name: &LockName, deadline: Moment) -> FaultResult<LockStatus> {
    let answer = service.read(deadline, &question(&*service.dialect, Some(name))).await?;
    answer.map_or_else(|| Ok(status(name, &[])), |answer| Ok(status_of(name, &queues(&answer.sets)?)))
}

/// Returns the status of the queue of `name` among `queues`.
pub(super) fn status_of(name: &LockName, queues: &Queues) -> LockStatus {
    status(name, queues.get(name).map(Vec::as_slice).unwrap_or_default())
}

/// Reads the queues with claims and with names that start with `prefix`.
pub(super) async fn starting_with(
    service: &Sessions,
    prefix: &str,
    deadline: Moment,
) -> FaultResult<Vec<LockStatus>> {
    let queues = all(service, deadline).await?;
    let wanted = queues.iter().filter(|(name, _)| name.as_str().starts_with(prefix));
    Ok(wanted.map(|(name, queue)| status(name, queue)).collect())
}

fn status(name: &LockName, queue: &[ClaimRow]) -> LockStatus {
    let modes: Vec<Mode> = queue.iter().map(ClaimRow::mode).collect();
    let (holders, waiters) = queue.split_at(held(&modes));
    let entries = |found: &[ClaimRow]| found.iter().map(ClaimRow::entry).collect();
    LockStatus::of(name, entries(holders), entries(waiters))
}

impl ClaimRow {
    /// Parses an entry. Unreadable fields are `None`, because the entry is in the queue nevertheless.
    fn parse(row: &Row) -> FaultResult<(Option<LockName>, Self)> {
        if row.len() != 10 {
            return Err(Fault::nonsense("no entry of a queue"));
        }
        let text = |n: usize| row[n].as_deref();
        let found = Self {
            id: text(2).and_then(|id| id.trim().parse().ok()),
            mode: text(1).and_then(|mode| mode.parse().ok()),
            record: text(3).and_then(|about| Record::parse(about.as_bytes())),
            label: text(4).and_then(quoted),
            granted: granted(text(5), text(6)),
            held: text(7).and_then(instant),
            since: text(8).and_then(instant),
            ttl: text(9).and_then(length),
        };
        Ok((text(0).and_then(unstored), found))
    }

    /// Returns its mode. A mode that this version does not know counts as exclusive.
    pub(super) fn mode(&self) -> Mode {
        self.mode.unwrap_or(Mode::Exclusive)
    }

    fn entry(&self) -> Entry {
        let unread = || Entry { claim: self.id, mode: self.mode, ..Entry::default() };
        with_details(
            self.record.as_ref().map_or_else(unread, Record::entry),
            self.label.clone(),
            self.granted,
            self.held.or(self.since),
            self.ttl,
        )
    }
}
