//! Removing claims of other processes.

use etcd_client::{LeaseTimeToLiveOptions, Txn, TxnOp};

use super::fault::{self, LEASE_GONE, NO_SPACE};
use super::keys::{Layout, QueueKeys};
use super::look::{self, Ahead};
use super::queue::{self, Member, Snapshot};
use super::stored::Note;
use super::wire::{Wire, revoke};
use crate::backend::Evict;
use crate::clock;
use crate::lock::{ClaimId, Holder, Moment, Request, Verb};
use crate::net::fault::FaultResult;

/// Implements [`crate::backend::Backend::evict`].
pub(super) async fn evict(
    wire: &Wire,
    layout: &Layout,
    queue: &QueueKeys,
    id: ClaimId,
    how: Evict,
    by: &Holder,
    deadline: Moment,
) -> FaultResult<bool> {
    match how {
        Evict::Ask => ask(wire, layout, queue, id, by, deadline).await,
        Evict::Force => {
            wire.persist();
            let note = Note::Evicted(by.clone());
            loop {
                match take_out(wire, layout, queue, id, false, &note, deadline).await? {
                    Taken::Out => return Ok(true),
                    Taken::Holds => return Ok(false),
                    Taken::Absent => {}
                }
                if end_bare_lease(wire, queue, layout.lease_of(id), deadline).await? {
                    return Ok(false);
                }
            }
        }
    }
}

/// Implements [`crate::backend::Backend::withdraw`]. All keys of the claim depend on its lease, and so do its requests
/// in flight.
pub(super) async fn withdraw(
    wire: &Wire,
    layout: &Layout,
    request: &Request,
    deadline: Moment,
) -> FaultResult<()> {
    wire.persist();
    revoke(wire, layout.lease_of(request.id), deadline).await
}

/// Implements [`crate::backend::Backend::evict_foreign`].
pub(super) async fn evict_foreign(
    wire: &Wire,
    queue: &QueueKeys,
    id: ClaimId,
    deadline: Moment,
) -> FaultResult<bool> {
    let snapshot = queue::read(wire, queue, deadline).await?;
    let mut foreign = snapshot.members.into_iter().filter(|member| member.stored.is_none());
    let Some(member) = foreign.find(|member| member.foreign_identity() == id) else { return Ok(false) };
    // Only the key is deleted, because the lease may carry other keys of that client.
    let stands = look::stands(member.key.clone(), member.created);
    act(wire, Txn::new().when([stands]).and_then([TxnOp::delete(member.key, None)]), deadline).await
}

async fn ask(
    wire: &Wire,
    layout: &Layout,
    queue: &QueueKeys,
    id: ClaimId,
    by: &Holder,
    deadline: Moment,
) -> FaultResult<bool> {
    let snapshot = queue::read(wire, queue, deadline).await?;
    let Some(member) = snapshot.position(id).map(|at| &snapshot.members[at]) else { return Ok(false) };
    // The note ends with the claim.
    let note = look::put(layout.note(member.lease), Note::Ask(by.clone()).to_text(), member.lease);
    let stands = look::stands(member.key.clone(), member.created);
    act(wire, Txn::new().when([stands]).and_then([note]), deadline).await
}

/// The result of removing a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    /// It was removed.
    Out,
    /// It was to be removed only while it waits, and it holds, or cannot be proved to wait.
    Holds,
    /// It is not in the queue.
    Absent,
}

/// Removes the whole claim and leaves `note` for its owner; with `only_waiting` only if it waits. Its lease remains
/// until the owner has read the note or the ttl is over.
pub(super) async fn take_out(
    wire: &Wire,
    layout: &Layout,
    queue: &QueueKeys,
    id: ClaimId,
    only_waiting: bool,
    note: &Note,
    deadline: Moment,
) -> FaultResult<Taken> {
    while clock::now() < deadline {
        let snapshot = queue::read(wire, queue, deadline).await?;
        let Some(at) = snapshot.position(id) else { return Ok(Taken::Absent) };
        let member = &snapshot.members[at];
        let names = member.stored.as_ref().map(|s| s.record.names(&queue.name)).unwrap_or_default();
        let queues: Vec<QueueKeys> = names.iter().map(|name| layout.queue(name)).collect();
        let all = queue::read_all(wire, &queues, deadline).await?;
        let mut compares = vec![look::stands(member.key.clone(), member.created)];
        // The removal also requires that the claim was not given a slot meanwhile.
        compares.extend(queues.iter().zip(&all).map(|(queue, snapshot)| {
            let own = snapshot.members.iter().find(|own| own.lease == member.lease);
            let held_at = own.and_then(|own| own.hold).map_or(0, |(_, revision)| revision);
            look::unchanged(queue.hold(member.lease), held_at)
        }));
        if only_waiting {
            let guards = guards(&queues, &all, id);
            if guards.is_empty() {
                return Ok(Taken::Holds);
            }
            compares.extend(guards.into_iter().map(|a| look::stands(a.key, a.created)));
            // One transaction cannot prove more.
            if compares.len() > look::MOST_OPERATIONS {
                return Ok(Taken::Holds);
            }
        }
        let mut steps = removal(&queues, &all, member);
        steps.push(look::put(layout.note(member.lease), note.to_text(), member.lease));
        let removed = match act(wire, Txn::new().when(compares).and_then(steps), deadline).await {
            // The owner then learns that its entry is gone, but not why. A waiter is not removed so, because it would
            // enter again.
            Err(fault) if fault.code == NO_SPACE && !only_waiting => {
                revoke(wire, member.lease, deadline).await.map(|()| true)
            }
            removed => removed,
        };
        if removed? {
            if member.stored.as_ref().is_some_and(|s| s.record.holder.verb == Verb::Detach) {
                // A detached claim has no process to read the note. If this fails, the rest ends with its ttl.
                let _ = revoke(wire, member.lease, deadline).await;
            }
            return Ok(Taken::Out);
        }
    }
    Err(fault::late())
}

/// Returns entries ahead of the claim in one of its queues that keep it waiting.
fn guards(queues: &[QueueKeys], all: &[Snapshot], id: ClaimId) -> Vec<Ahead> {
    let each = queues.iter().zip(all).map(|(queue, snapshot)| {
        let Some(at) = snapshot.position(id) else { return Vec::new() };
        snapshot.before(at).guards(queue, snapshot.members[at].mode)
    });
    each.into_iter().find(|guards| !guards.is_empty()).unwrap_or_default()
}

/// Returns the steps that remove all entries of a claim. The other keys of the lease mean nothing without them.
fn removal(queues: &[QueueKeys], all: &[Snapshot], member: &Member) -> Vec<TxnOp> {
    let (mode, lease) = (member.mode, member.lease);
    let mut steps = Vec::new();
    for (queue, snapshot) in queues.iter().zip(all) {
        steps.push(TxnOp::delete(queue.entry(mode, lease), None));
        steps.push(TxnOp::delete(queue.record(mode, lease), None));
        let own = snapshot.members.iter().find(|m| m.lease == lease);
        if let Some(slot) = own.and_then(|m| m.hold).and_then(|(hold, _)| hold.slot) {
            steps.push(TxnOp::delete(queue.slot(slot), None));
        }
    }
    steps
}

/// Commits `txn`. Returns whether its comparisons held.
pub(super) async fn act(wire: &Wire, txn: Txn, deadline: Moment) -> FaultResult<bool> {
    match wire.txn(txn, deadline).await {
        Ok(answer) => Ok(answer.succeeded()),
        // The claim ended by itself.
        Err(fault) if fault.code == LEASE_GONE => Ok(false),
        Err(fault) => Err(fault),
    }
}

/// Revokes the lease of an attempt to enter that has no entry yet, and so can never get one. Returns whether no entry
/// of it is in `queue`.
async fn end_bare_lease(wire: &Wire, queue: &QueueKeys, lease: i64, deadline: Moment) -> FaultResult<bool> {
    let lives = wire.call(deadline, |mut c| async move {
        c.client.lease_time_to_live(lease, Some(LeaseTimeToLiveOptions::new().with_keys())).await
    });
    match lives.await {
        Ok(answer) if answer.ttl() > 0 && answer.keys().is_empty() => {
            revoke(wire, lease, deadline).await?;
            Ok(true)
        }
        Ok(answer) => {
            let (first, end) = queue.entries();
            Ok(!answer
                .keys()
                .iter()
                .any(|key| first.as_bytes() <= key.as_slice() && key.as_slice() < end.as_bytes()))
        }
        Err(fault) if fault.code == LEASE_GONE => Ok(true),
        Err(fault) => Err(fault),
    }
}
