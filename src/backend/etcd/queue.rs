//! A queue for display and for removals.

use std::collections::HashMap;

use etcd_client::{GetOptions, KeyValue, ResponseHeader, Txn};

use super::fault::{self, LEASE_GONE};
use super::keys::{self, Layout, QueueKeys};
use super::look::{self, Ahead, Answers, Seen};
use super::stored::{Hold, Stored, instant};
use super::wire::Wire;
use crate::backend::foreign;
use crate::lock::{ClaimId, Entry, FencingToken, LockName, LockStatus, Mode, Moment, queue};
use crate::net::fault::FaultResult;

/// The number of entries with a displayed ttl; each costs a request.
pub(super) const TIMED: usize = 32;
/// The number of keys in one request of a listing.
const PAGE: i64 = 512;

/// One entry.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) key: Vec<u8>,
    pub(super) lease: i64,
    pub(super) created: i64,
    pub(super) mode: Mode,
    /// The label, if another program's client set it.
    pub(super) value: Option<String>,
    /// The record of dlock; `None` for another program's entry.
    pub(super) stored: Option<Stored>,
    /// Its hold and the revision of that, if it had to be proved.
    pub(super) hold: Option<(Hold, i64)>,
}

/// A queue at one revision, in order.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub(super) members: Vec<Member>,
    pub(super) revision: i64,
}

impl Snapshot {
    fn of(entries: &[KeyValue], beside: &[KeyValue], queue: &QueueKeys, revision: i64) -> Self {
        let (first, end) = queue.records();
        let (hold_first, hold_end) = queue.holds();
        let within = |key: &[u8], a: &str, z: &str| key >= a.as_bytes() && key < z.as_bytes();
        let mut records = HashMap::new();
        let mut holds = HashMap::new();
        for kv in beside {
            let lease = keys::last_part(kv.key());
            if within(kv.key(), &first, &end) {
                records.insert(lease, kv);
            } else if within(kv.key(), &hold_first, &hold_end) {
                holds.insert(lease, kv);
            }
        }
        let mut members: Vec<Member> = entries
            .iter()
            .map(|kv| {
                let lease = keys::last_part(kv.key());
                let record = records.get(lease).filter(|r| r.create_revision() == kv.create_revision());
                let stored = record.and_then(|r| Stored::parse(r.value()));
                let hold = holds.get(lease).filter(|_| stored.is_some());
                let shared = if queue.is_shared(kv.key()) { Mode::Shared } else { Mode::Exclusive };
                Member {
                    key: kv.key().to_vec(),
                    lease: kv.lease(),
                    created: kv.create_revision(),
                    value: kv.value_str().ok().filter(|value| !value.is_empty()).map(str::to_owned),
                    mode: stored.as_ref().and_then(|s| s.record.mode()).unwrap_or(shared),
                    stored,
                    hold: hold.and_then(|h| Some((Hold::parse(h.value())?, h.mod_revision()))),
                }
            })
            .collect();
        members.sort_by_key(|m| m.created);
        Self { members, revision }
    }

    fn modes(&self) -> Vec<Mode> {
        self.members.iter().map(|m| m.mode).collect()
    }

    /// Returns the entries before the `at`th one.
    pub(super) fn before(&self, at: usize) -> Seen {
        let ahead = self.members[..at].iter().map(|m| Ahead { key: m.key.clone(), created: m.created });
        Seen { ahead: ahead.collect(), ..Seen::default() }
    }

    /// Returns the index of the entry of `id`.
    pub(super) fn position(&self, id: ClaimId) -> Option<usize> {
        self.members.iter().position(|m| m.stored.as_ref().and_then(|s| s.record.id()) == Some(id))
    }

    /// Returns the entry of `id` if it holds.
    pub(super) fn holder(&self, id: ClaimId) -> Option<&Member> {
        let at = self.position(id).filter(|at| *at < queue::held(&self.modes()))?;
        self.members.get(at)
    }

    pub(super) fn status(&self, name: &LockName) -> LockStatus {
        let (holders, waiters) = self.members.split_at(queue::held(&self.modes()));
        let entries = |members: &[Member], hold| members.iter().map(|member| member.entry(hold)).collect();
        LockStatus::of(name, entries(holders, true), entries(waiters, false))
    }
}

impl Member {
    /// Returns the claim id under which another program's entry is shown: no other entry has its key and create
    /// revision.
    pub(super) fn foreign_identity(&self) -> ClaimId {
        foreign::identity([&self.key, &self.created.to_be_bytes()])
    }

    fn entry(&self, holds: bool) -> Entry {
        let Some(stored) = &self.stored else {
            let claim = Some(self.foreign_identity());
            let (mode, label) = (Some(self.mode), self.value.clone());
            return Entry { claim, mode, label, ..look::foreign(&self.key) };
        };
        let proved = self.hold.filter(|_| holds);
        let since = proved.map_or(stored.since_ms, |(hold, _)| hold.since_ms);
        // A claim without a slot has no token yet.
        let unproved = Some(self.created).filter(|_| !matches!(self.mode, Mode::Slots(_)));
        let token = proved.map(|(_, revision)| revision).or(unproved);
        Entry {
            since: instant(since),
            slot: proved.and_then(|(hold, _)| hold.slot),
            token: token.and_then(|token| FencingToken::new(u64::try_from(token).ok()?)).filter(|_| holds),
            ttl: None,
            ..stored.record.entry()
        }
    }
}

/// Reads a queue at one revision.
pub(super) async fn read(wire: &Wire, queue: &QueueKeys, deadline: Moment) -> FaultResult<Snapshot> {
    let snapshots = read_all(wire, std::slice::from_ref(queue), deadline).await?;
    snapshots.into_iter().next().ok_or_else(|| fault::corrupt("an answer is missing"))
}

/// Reads several queues, at one revision as far as one transaction suffices.
pub(super) async fn read_all(
    wire: &Wire,
    queues: &[QueueKeys],
    deadline: Moment,
) -> FaultResult<Vec<Snapshot>> {
    let mut snapshots = Vec::with_capacity(queues.len());
    for queues in queues.chunks(look::MOST_OPERATIONS / 2) {
        let each = queues.iter().flat_map(|queue| [queue.entries(), queue.beside()]);
        let each = each.map(|span| look::range(span, GetOptions::new()));
        let txn = Txn::new().and_then(each.collect::<Vec<_>>());
        let answer = wire.txn(txn, deadline).await?;
        let revision = answer.header().map_or(0, ResponseHeader::revision);
        let mut answers = Answers::of(&answer);
        for queue in queues {
            let (entries, beside) = (answers.read()?, answers.read()?);
            snapshots.push(Snapshot::of(entries.kvs(), beside.kvs(), queue, revision));
        }
    }
    Ok(snapshots)
}

/// Implements [`crate::backend::Backend::inspect`].
pub(super) async fn inspect(wire: &Wire, queue: &QueueKeys, deadline: Moment) -> FaultResult<LockStatus> {
    let snapshot = read(wire, queue, deadline).await?;
    let mut status = snapshot.status(&queue.name);
    add_times(wire, &snapshot.members, &mut status, TIMED, deadline).await?;
    Ok(status)
}

/// Reads the rest of the leases of the first `most` entries. Returns the number of requests.
pub(super) async fn add_times(
    wire: &Wire,
    members: &[Member],
    status: &mut LockStatus,
    most: usize,
    deadline: Moment,
) -> FaultResult<usize> {
    let entries = status.holders.iter_mut().chain(&mut status.waiters);
    let mut asked = 0;
    for (member, entry) in members.iter().zip(entries).take(most).filter(|(m, _)| m.lease != 0) {
        let lease = member.lease;
        let lives =
            wire.call(deadline, |mut c| async move { c.client.lease_time_to_live(lease, None).await });
        // The server rounds down to seconds, so the lease may live up to one longer.
        let left = match lives.await {
            Err(fault) if fault.code == LEASE_GONE => -1,
            other => other.map(|answer| answer.ttl().saturating_add(1).min(answer.granted_ttl()))?,
        };
        entry.ttl = u64::try_from(left).ok().map(std::time::Duration::from_secs);
        asked += 1;
    }
    Ok(asked)
}

/// Implements [`crate::backend::Backend::list`].
pub(super) async fn list(
    wire: &Wire,
    layout: &Layout,
    beginning: &str,
    deadline: Moment,
) -> FaultResult<Vec<LockStatus>> {
    let mut names = names(wire, layout, beginning, deadline).await?;
    names.sort();
    names.dedup();
    let queues: Vec<QueueKeys> = names.iter().map(|name| layout.queue(name)).collect();
    let mut statuses = Vec::with_capacity(queues.len());
    let mut left = TIMED;
    for (queue, snapshot) in queues.iter().zip(read_all(wire, &queues, deadline).await?) {
        let mut status = snapshot.status(&queue.name);
        left -= add_times(wire, &snapshot.members, &mut status, left, deadline).await?;
        if !status.is_empty() {
            statuses.push(status);
        }
    }
    Ok(statuses)
}

/// Returns the names of queues with entries, read page by page.
async fn names(
    wire: &Wire,
    layout: &Layout,
    beginning: &str,
    deadline: Moment,
) -> FaultResult<Vec<LockName>> {
    let (mut from, end) = layout.names(beginning);
    let mut names = Vec::new();
    loop {
        let options = GetOptions::new().with_range(end.clone()).with_limit(PAGE).with_keys_only();
        let page = wire.get(from, options, deadline).await?;
        let found = page.kvs().iter().filter_map(|kv| layout.name_of(kv.key(), kv.lease()));
        names.extend(found.filter(|name| name.as_str().starts_with(beginning)));
        match page.kvs().last().filter(|_| page.more()) {
            None => return Ok(names),
            Some(last) => {
                from = last.key().to_vec();
                from.push(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::*;
    use crate::lock::{Holder, Request};

    fn shown(mode: Mode, hold: Option<(Hold, i64)>) -> Entry {
        let ttl = Duration::from_secs(30);
        let request = Request {
            names: vec!["x".parse().expect("valid")],
            id: ClaimId::from_number(1),
            mode,
            ttl,
            holder: Holder::default(),
            ancestors: Vec::new(),
            supersede: false,
        };
        let stored = Some(Stored::of(&request, ttl));
        let member = Member { key: b"x/1".to_vec(), lease: 1, created: 7, mode, value: None, stored, hold };
        member.entry(true)
    }

    #[test]
    fn slot_waiter_has_no_token_and_immediate_holder_its_entrys() {
        let slots = Mode::Slots(NonZeroU32::MIN);
        let token = |entry: Entry| entry.token.map(FencingToken::get);
        assert_eq!(token(shown(slots, None)), None);
        assert_eq!(token(shown(slots, Some((Hold::now(Some(1)), 9)))), Some(9));
        assert_eq!(token(shown(Mode::Exclusive, None)), Some(7));
        assert_eq!(token(shown(Mode::Exclusive, Some((Hold::now(None), 9)))), Some(9));
    }
}
