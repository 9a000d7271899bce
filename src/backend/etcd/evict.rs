//! Ending somebody's claim.

use std::num::NonZeroU32;

use etcd_client::{LeaseTimeToLiveOptions, Txn, TxnOp};

use super::fault::{Fault, FaultResult};
use super::keys::{Layout, Queue};
use super::look::{self, Ahead};
use super::queue::{self, Member, Snapshot};
use super::stored::Note;
use super::wire::{Wire, revoke};
use crate::backend::{Evict, tcp};
use crate::clock;
use crate::lock::{ClaimId, Holder, Mode, Moment, Request, Verb};

/// For how long a claim that is not there, but may be on its way, is kept out, in seconds. The client crate closes a
/// connection that was given up when it likes.
const KEEP_OUT: i64 = tcp::LATE_IF_OPEN.as_secs().cast_signed();

/// As [`crate::backend::Backend::evict`].
pub(super) async fn evict(
    wire: &Wire,
    layout: &Layout,
    queue: &Queue,
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
            let (mut out, mut unread) = (false, None);
            loop {
                match take_out(wire, layout, queue, id, false, &note, deadline).await? {
                    Taken::Out { unread: lease } => (out, unread) = (true, lease),
                    Taken::Holds => return Ok(out),
                    Taken::Absent => {}
                }
                match keep_out(wire, layout, queue, layout.lease_of(id), &note, deadline).await {
                    Ok(true) if out => {
                        if let Some(lease) = unread {
                            // If that fails, what is left on it ends with its ttl.
                            let _ = revoke(wire, lease, deadline).await;
                        }
                        return Ok(true);
                    }
                    // The note could not be left. It is removed all the same, and the note to its owner keeps it out for as
                    // long as its lease lives.
                    Err(_) if out => return Ok(true),
                    Ok(true) => {
                        end_bare_lease(wire, layout.lease_of(id), deadline).await?;
                        return Ok(false);
                    }
                    Ok(false) => {}
                    Err(fault) => return Err(fault),
                }
            }
        }
    }
}

/// As [`crate::backend::Backend::withdraw`]. What the claim has hangs on its lease, whose id is known, so the end of that goes
/// out before anything is read.
pub(super) async fn withdraw(
    wire: &Wire,
    layout: &Layout,
    request: &Request,
    deadline: Moment,
) -> FaultResult<()> {
    let lease = layout.lease_of(request.id);
    let rest = async {
        for name in &request.names {
            let queue = layout.queue(name);
            evict(wire, layout, &queue, request.id, Evict::Force, &request.holder, deadline).await?;
        }
        Ok(())
    };
    // Whatever came of the first, the other has seen to it that nothing of the claim is there.
    let (_, rest) = tokio::join!(revoke(wire, lease, deadline), rest);
    rest
}

/// As [`crate::backend::Backend::evict_foreign`].
pub(super) async fn evict_foreign(
    wire: &Wire,
    queue: &Queue,
    id: ClaimId,
    deadline: Moment,
) -> FaultResult<bool> {
    let snapshot = queue::read(wire, queue, deadline).await?;
    let mut foreign = snapshot.members.into_iter().filter(|member| member.stored.is_none());
    let Some(member) = foreign.find(|member| member.foreign_identity() == id) else { return Ok(false) };
    // Its lease may carry other things of that client.
    let stands = look::stands(member.key.clone(), member.created);
    act(wire, Txn::new().when([stands]).and_then([TxnOp::delete(member.key, None)]), deadline).await
}

async fn ask(
    wire: &Wire,
    layout: &Layout,
    queue: &Queue,
    id: ClaimId,
    by: &Holder,
    deadline: Moment,
) -> FaultResult<bool> {
    let snapshot = queue::read(wire, queue, deadline).await?;
    let Some(member) = snapshot.position(id).map(|at| &snapshot.members[at]) else { return Ok(false) };
    // It goes with the claim.
    let note = look::put(layout.note(member.lease), Note::Ask(by.clone()).to_text(), member.lease);
    let stands = look::stands(member.key.clone(), member.created);
    act(wire, Txn::new().when([stands]).and_then([note]), deadline).await
}

/// What became of a claim that was to be removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    /// It is removed.
    Out {
        /// Its lease, if nobody reads the note there: it held, and no process looked after it.
        unread: Option<i64>,
    },
    /// It holds, or it cannot be proved that it does not, and was to be removed only if it waits.
    Holds,
    /// It is not in the queue.
    Absent,
}

/// Removes the whole claim with `note` to its owner, if it only waits or whatever it does. Its lease stays until
/// the owner has read the note or the ttl is over.
pub(super) async fn take_out(
    wire: &Wire,
    layout: &Layout,
    queue: &Queue,
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
        let queues: Vec<Queue> = names.iter().map(|name| layout.queue(name)).collect();
        let all = queue::read_all(wire, &queues, deadline).await?;
        let mut compares = vec![look::stands(member.key.clone(), member.created)];
        let guards = guards(&queues, &all, id);
        let holds = guards.is_empty();
        if only_waiting {
            if holds {
                return Ok(Taken::Holds);
            }
            compares.extend(guards.into_iter().map(|a| look::stands(a.key, a.created)));
            // What one transaction cannot prove is not taken for proved.
            if compares.len() > look::MOST_OPERATIONS {
                return Ok(Taken::Holds);
            }
        }
        let steps = removal(layout, &queues, &all, member);
        let mut noted = steps.clone();
        noted.push(look::put(layout.note(member.lease), note.to_text(), member.lease));
        let removed = match act(wire, Txn::new().when(compares.clone()).and_then(noted), deadline).await {
            // Its owner learns that the entry is gone, and not why. A waiter would enter again for that.
            Err(Fault::Full(_)) if !only_waiting => {
                act(wire, Txn::new().when(compares).and_then(steps), deadline).await
            }
            removed => removed,
        };
        if removed? {
            let verb = member.stored.as_ref().map(|stored| stored.record.holder.verb);
            let is_nobodys = holds && verb == Some(Verb::Detach);
            return Ok(Taken::Out { unread: is_nobodys.then_some(member.lease) });
        }
    }
    Err(Fault::late())
}

/// Entries before the claim in one of its queues that keep it waiting.
fn guards(queues: &[Queue], all: &[Snapshot], id: ClaimId) -> Vec<Ahead> {
    let each = queues.iter().zip(all).map(|(queue, snapshot)| {
        let Some(at) = snapshot.position(id) else { return Vec::new() };
        snapshot.before(at).guards(queue, snapshot.members[at].mode)
    });
    each.into_iter().find(|guards| !guards.is_empty()).unwrap_or_default()
}

/// The steps that remove all entries of a claim. What else hangs on the lease means nothing without them.
fn removal(layout: &Layout, queues: &[Queue], all: &[Snapshot], member: &Member) -> Vec<TxnOp> {
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
    if member.stored.as_ref().is_some_and(|s| !s.record.ancestors.is_empty()) {
        steps.push(TxnOp::delete(layout.nested(lease), None));
    }
    steps
}

/// Commits `txn`; whether its comparisons held.
pub(super) async fn act(wire: &Wire, txn: Txn, deadline: Moment) -> FaultResult<bool> {
    let answer = wire.call(deadline, |mut c| {
        let txn = txn.clone();
        async move { c.client.txn(txn).await }
    });
    match answer.await {
        Ok(answer) => Ok(answer.succeeded()),
        // The claim ended by itself.
        Err(Fault::LeaseNotFound) => Ok(false),
        Err(fault) => Err(fault),
    }
}

/// Leaves `note` for a claim that is not in the queue but may be on its way, so that it does not get there; `false` if it
/// has got there. The note has a lease of its own, for longer than a request may take. A note that tells its owner why it
/// was removed stays what it is.
async fn keep_out(
    wire: &Wire,
    layout: &Layout,
    queue: &Queue,
    lease: i64,
    note: &Note,
    deadline: Moment,
) -> FaultResult<bool> {
    let key = layout.note(lease);
    let before = wire.call(deadline, |mut c| {
        let key = key.clone();
        async move { c.client.get(key, None).await }
    });
    let before = before.await?.kvs().first().and_then(|kv| Note::parse(kv.value()));
    let told = before.filter(|note| !matches!(note, Note::Ask(_))).unwrap_or_else(|| note.clone());
    let granted = wire.call(deadline, |mut c| async move { c.client.lease_grant(KEEP_OUT, None).await });
    let of_note = granted.await?.id();
    let kinds = [Mode::Exclusive, Mode::Shared, Mode::Slots(NonZeroU32::MIN)];
    let absent: Vec<_> = kinds.map(|mode| look::stands(queue.entry(mode, lease), 0)).into();
    let left = look::put(key, told.to_text(), of_note);
    let kept_out = act(wire, Txn::new().when(absent).and_then([left]), deadline).await?;
    if !kept_out {
        revoke(wire, of_note, deadline).await?;
    }
    Ok(kept_out)
}

/// An attempt to enter may have got its lease and not yet its entry; without the lease it never will.
async fn end_bare_lease(wire: &Wire, lease: i64, deadline: Moment) -> FaultResult<()> {
    let lives = wire.call(deadline, |mut c| async move {
        c.client.lease_time_to_live(lease, Some(LeaseTimeToLiveOptions::new().with_keys())).await
    });
    match lives.await {
        Ok(answer) if answer.ttl() > 0 && answer.keys().is_empty() => revoke(wire, lease, deadline).await,
        Ok(_) | Err(Fault::LeaseNotFound) => Ok(()),
        Err(fault) => Err(fault),
    }
}
