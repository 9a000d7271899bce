//! Joining the queue: first the lease, then the entries, which need it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd_client::{GetOptions, KeyValue, LeaseGrantOptions, ResponseHeader, Txn, TxnOp, TxnResponse};
use tokio::sync::Notify;

use super::core::{Core, Place};
use super::dial::Connection;
use super::evict::{self, Taken};
use super::fault::{self, LEASE_EXISTS, LEASE_GONE, NOT_PERMITTED};
use super::keep_alive::LEAST_BEHIND_PROXY;
use super::keys::{Layout, QueueKeys};
use super::look::{self, Answers, Seen};
use super::queue;
use super::stored::{Note, Stored};
use super::wire::{Wire, revoke};
use crate::backend::claim_state::Publisher;
use crate::backend::mixing::{Use, mismatch};
use crate::clock::{self, Clock};
use crate::lock::{ErrorKind, LockName, Mode, Moment, Request};
use crate::net::cause;
use crate::net::fault::{Fault, FaultResult};

/// A claim that has joined, its position, and the revision of that.
pub(super) struct Joined {
    pub(super) core: Arc<Core>,
    pub(super) place: Place,
    pub(super) revision: i64,
}

/// One attempt to join.
struct Attempt<'a> {
    wire: &'a Arc<Wire>,
    layout: &'a Layout,
    queues: Vec<QueueKeys>,
    request: &'a Request,
    lease: i64,
    stored: Stored,
    deadline: Moment,
}

/// The result of the transaction.
enum Entered {
    /// The entries were created at that revision, with these queues.
    New(i64, Vec<Seen>),
    /// The entries existed.
    Before(i64),
    /// A claim of another kind is in the queue of that name.
    Mismatch(LockName, Box<KeyValue>),
    /// The claim was removed before its entries arrived, as found at that revision.
    KeptOut(i64),
}

/// Implements [`crate::backend::Backend::enter`].
pub(super) async fn enter(
    wire: &Arc<Wire>,
    layout: &Layout,
    request: &Request,
    deadline: Moment,
) -> FaultResult<Joined> {
    let begun = clock::now();
    let attempt = Attempt {
        wire,
        layout,
        queues: request.names.iter().map(|name| layout.queue(name)).collect(),
        request,
        lease: layout.lease_of(request.id),
        stored: Stored::of(request, request.ttl),
        deadline,
    };
    attempt.check_size()?;
    attempt.check_ttl().await?;
    let (ttl, entered) = attempt.join().await.map_err(|fault| attempt.explain(fault))?;
    let (created, seen) = match entered {
        Entered::New(created, seen) => (created, Some(seen)),
        // No entry was created at that revision, so the claim will be found gone.
        Entered::Before(created) | Entered::KeptOut(created) => (created, None),
        Entered::Mismatch(name, other) => return Err(attempt.mismatch(&name, &other).await),
    };
    let core = Arc::new(attempt.core(ttl, created, begun));
    let joined = settle(Arc::clone(&core), seen, request, deadline).await;
    if joined.as_ref().is_err_and(|fault| !fault.is_transient()) {
        // The caller will not try again, so nothing may remain.
        revoke(wire, core.lease, deadline).await?;
    }
    joined
}

/// Positions the new claim in its queues, and supersedes older ones.
async fn settle(
    core: Arc<Core>,
    seen: Option<Vec<Seen>>,
    request: &Request,
    deadline: Moment,
) -> FaultResult<Joined> {
    let mut joined = stand(core, seen, deadline).await?;
    if matches!(joined.place, Place::Gone) {
        joined.core.conclude().await;
        return Ok(joined);
    }
    if request.supersede && supersede(&joined.core, request, deadline).await? {
        joined = stand(joined.core, None, deadline).await?;
    }
    Ok(joined)
}

/// Returns the position of the new claim, from the read at its creation if given.
async fn stand(core: Arc<Core>, seen: Option<Vec<Seen>>, deadline: Moment) -> FaultResult<Joined> {
    if let Some(seen) = seen {
        let targets = core.targets(&seen);
        let revision = core.created;
        if !targets.is_empty() {
            core.publish_waiting(&seen, &targets);
            return Ok(Joined { core, place: Place::Waits(targets, revision), revision });
        }
        if !matches!(core.mode, Mode::Slots(_)) {
            core.publish_held(core.granted(revision, None)?);
            return Ok(Joined { core, place: Place::Held, revision });
        }
    }
    let place = core.settle(deadline).await?;
    let revision = match &place {
        Place::Waits(_, revision) => *revision,
        // From the entry on, so that later events are reported again.
        Place::Held | Place::Gone => core.created,
    };
    Ok(Joined { core, place, revision })
}

impl Attempt<'_> {
    fn check_size(&self) -> FaultResult<()> {
        let (names, most) = (self.queues.len(), look::MOST_NAMES);
        if names <= most {
            return Ok(());
        }
        let reason = format!("{names} names are too many for one step of etcd; take at most {most} together");
        Err(Fault::new(ErrorKind::Invalid, reason))
    }

    async fn check_ttl(&self) -> FaultResult<()> {
        let ask = |c: Connection| async move { Ok(c.is_proxied().await?) };
        if self.request.ttl >= LEAST_BEHIND_PROXY || !self.wire.call(self.deadline, ask).await? {
            return Ok(());
        }
        let reason = "etcd's grpc-proxy renews leases by itself, too slowly for this --ttl; take 5s or more, or connect to the servers";
        Err(Fault::new(ErrorKind::Invalid, reason))
    }

    async fn join(&self) -> FaultResult<(Duration, Entered)> {
        loop {
            match self.lease_and_entries().await {
                // The lease expired between two of the steps.
                Err(fault) if fault.code == LEASE_GONE => {}
                joined => return joined,
            }
        }
    }

    async fn lease_and_entries(&self) -> FaultResult<(Duration, Entered)> {
        let ttl = match self.grant().await? {
            Some(ttl) => ttl,
            None => self.keep().await?,
        };
        Ok((ttl, self.make().await?))
    }

    /// Adds to a `fault` about missing rights the keys that this user needs, which are more than for `etcdctl lock`.
    fn explain(&self, fault: Fault) -> Fault {
        if fault.code != NOT_PERMITTED {
            return fault;
        }
        let each = self.queues.iter().flat_map(|queue| [queue.entries().0, queue.beside().0]);
        let keys = each.chain([self.layout.notes()]).map(|keys| format!("{keys:?}"));
        let remedy = format!("grant readwrite with --prefix on {}", keys.collect::<Vec<_>>().join(", "));
        Fault::new(ErrorKind::Denied, cause::no_right(&fault.reason.to_string(), &remedy))
    }

    /// Requests the lease; `None` if it exists from an earlier attempt.
    async fn grant(&self) -> FaultResult<Option<Duration>> {
        let seconds = self.request.ttl.as_secs() + u64::from(self.request.ttl.subsec_nanos() > 0);
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        let granted = self.wire.call(self.deadline, |mut c| async move {
            c.client.lease_grant(seconds, Some(LeaseGrantOptions::new().with_id(self.lease))).await
        });
        match granted.await {
            Ok(answer) => Ok(Some(length(answer.ttl())?)),
            Err(fault) if fault.code == LEASE_EXISTS => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Renews the lease of an earlier attempt, and returns its length.
    async fn keep(&self) -> FaultResult<Duration> {
        // In parallel, since a slow cluster was given the time for one answer.
        let kept = self.wire.call(self.deadline, |mut c| async move {
            let mut other = c.client.clone();
            let kept = c.client.lease_keep_alive(self.lease);
            let (_, length) = tokio::try_join!(kept, other.lease_time_to_live(self.lease, None))?;
            Ok(length)
        });
        length(kept.await?.granted_ttl())
    }

    async fn make(&self) -> FaultResult<Entered> {
        self.read(&self.wire.txn(self.entries(), self.deadline).await?)
    }

    /// Returns the transaction that creates the entries. It requires that none exists, that all others are of the same
    /// kind, and that the claim was not removed already. A request that was given up in flight may arrive late.
    fn entries(&self) -> Txn {
        let (mode, lease) = (self.request.mode, self.lease);
        let record = self.stored.to_text();
        let label = self.request.holder.label.clone().unwrap_or_default();
        let note = self.layout.note(lease);
        let mut compares = vec![look::stands(note.clone(), 0)];
        let (mut make, mut read) = (Vec::new(), Vec::new());
        if let Some(first) = self.queues.first() {
            compares.push(look::stands(first.entry(mode, lease), 0));
        }
        for queue in &self.queues {
            compares.extend(queue.other_kinds(mode).into_iter().map(look::empty));
            make.push(look::put(queue.entry(mode, lease), label.clone(), lease));
            make.push(look::put(queue.record(mode, lease), record.clone(), lease));
            make.extend(look::reads(queue, mode, None));
            read.push(TxnOp::get(queue.entry(mode, lease), None));
            let others = queue.other_kinds(mode).into_iter();
            read.extend(others.map(|span| look::range(span, GetOptions::new().with_limit(1))));
        }
        read.push(TxnOp::get(note, None));
        Txn::new().when(compares).and_then(make).or_else(read)
    }

    fn read(&self, answer: &TxnResponse) -> FaultResult<Entered> {
        let mode = self.request.mode;
        let mut answers = Answers::of(answer);
        let revision = answer.header().map_or(0, ResponseHeader::revision);
        if answer.succeeded() {
            let seen = self.queues.iter().map(|_| answers.seen(mode, revision));
            return Ok(Entered::New(revision, seen.collect::<FaultResult<_>>()?));
        }
        for queue in &self.queues {
            if let Some(own) = answers.read()?.kvs().first() {
                return Ok(Entered::Before(own.create_revision()));
            }
            for _ in queue.other_kinds(mode) {
                if let Some(other) = answers.read()?.take_kvs().into_iter().next() {
                    return Ok(Entered::Mismatch(queue.name.clone(), Box::new(other)));
                }
            }
        }
        if answers.read()?.kvs().is_empty() {
            return Err(fault::corrupt("nothing is there that keeps the claim out"));
        }
        Ok(Entered::KeptOut(revision))
    }

    /// Revokes the lease, and returns the error about a claim of another kind, with a record that perhaps only a newer
    /// dlock can read.
    async fn mismatch(&self, name: &LockName, other: &KeyValue) -> Fault {
        // If this fails, the lease, which has no keys, expires.
        let _ = revoke(self.wire, self.lease, self.deadline).await;
        let stored = Stored::parse(other.value());
        let who = stored.as_ref().map_or_else(
            || format!("key {}", String::from_utf8_lossy(other.key())),
            |stored| stored.record.holder.to_string(),
        );
        let used = Use::from(stored.and_then(|stored| stored.record.mode()));
        let reason = mismatch(Some(name), Some(&who), used, self.request.mode);
        Fault::new(ErrorKind::Mismatch, reason)
    }

    fn core(self, ttl: Duration, created: i64, begun: Moment) -> Core {
        Core {
            wire: Arc::clone(self.wire),
            layout: self.layout.clone(),
            queues: self.queues,
            mode: self.request.mode,
            lease: self.lease,
            ttl,
            created,
            publisher: Publisher::new(Clock::Boot, begun),
            proved_at: Mutex::new(0),
            acquired_ms: Mutex::new(None),
            slots: Mutex::default(),
            look: Notify::new(),
            kept: Mutex::new(None),
        }
    }
}

fn length(seconds: i64) -> FaultResult<Duration> {
    u64::try_from(seconds)
        .ok()
        .filter(|s| *s > 0)
        .map(Duration::from_secs)
        .ok_or_else(|| fault::corrupt("a lease without a length"))
}

/// Supersedes older waiters that allow it. Returns whether there were any.
async fn supersede(core: &Core, request: &Request, deadline: Moment) -> FaultResult<bool> {
    let mut any = false;
    for at in &core.queues {
        let older: Vec<_> = queue::read(&core.wire, at, deadline).await?.members;
        let older = older.into_iter().filter(|m| m.created < core.created && m.lease != core.lease);
        for member in older {
            let Some(id) = member.stored.as_ref().filter(|s| s.record.supersede).and_then(|s| s.record.id())
            else {
                continue;
            };
            let note = Note::Superseded(request.holder.clone());
            let taken = evict::take_out(&core.wire, &core.layout, at, id, true, &note, deadline).await?;
            any |= taken == Taken::Out;
        }
    }
    Ok(any)
}
