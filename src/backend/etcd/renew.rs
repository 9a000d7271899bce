//! Proving that a claim lives.
//!
//! A keep-alive is answered by whoever believes to be the leader, without asking the others; a leader that was
//! cut off goes on answering while the others let the lease run out. So a linearizable read of the own entry
//! follows, and both must be answered in the same term, which has one leader: then the leader that heard the
//! keep-alive still was the leader afterwards. By which members does not matter, and is not dlock's choice behind a
//! balancer. A transaction without an operation would be answered from the member's own data, so it has one.

use std::time::Duration;

use etcd_client::{ResponseHeader, Txn, TxnOp, TxnResponse};

use super::core::{Core, lock};
use super::evict::act;
use super::fault::{Fault, FaultResult};
use super::keep_alive::{keep_and_check, term};
use super::keys::{Layout, Queue};
use super::look::{self, Answers, Seen};
use super::queue;
use super::wire::{Connection, Wire};
use crate::clock::{self, Clock};
use crate::lock::{ClaimId, Moment};

/// Between two attempts of which a new leader came between the parts.
const PAUSE: Duration = Duration::from_millis(20);

impl Core {
    /// As [`crate::backend::Claim::renew`].
    pub(super) async fn renew(&self, deadline: Moment) -> FaultResult<Moment> {
        let begun = clock::now();
        while !self.publisher.is_over() {
            let txn = self.check();
            let answer = self.wire.call(deadline, |c| self.keep_and_check(c, txn.clone())).await;
            let (kept, answer) = match answer {
                // A new leader may not have come to it yet: the entry goes with the lease, and whether that stands is certain.
                Err(Fault::LeaseNotFound) if self.still_stands(deadline).await?.is_some() => {
                    Clock::Boot.sleep_until(deadline.min(clock::now() + PAUSE)).await;
                    continue;
                }
                Err(Fault::LeaseNotFound) => {
                    self.conclude().await;
                    break;
                }
                other => other?,
            };
            if !answer.succeeded() {
                self.conclude().await;
                break;
            }
            // A new leader may not have heard the keep-alive.
            if kept.is_some() && term(answer.header()) == kept {
                self.confirmed(begun, &answer)?;
                break;
            }
            Clock::Boot.sleep_until(deadline.min(clock::now() + PAUSE)).await;
        }
        Ok(self.publisher.proof())
    }

    /// A waiter also asks for its place.
    fn check(&self) -> Txn {
        let mut operations = Vec::new();
        if self.is_held() {
            operations.push(TxnOp::get(self.entry(&self.queues[0]), None));
        } else {
            let rich = look::has_room(self.queues.len());
            for queue in &self.queues {
                operations.extend(look::reads(queue, self.mode, Some(self.created), rich));
            }
        }
        Txn::new().when(self.all_stand()).and_then(operations)
    }

    async fn keep_and_check(
        &self,
        c: Connection,
        txn: Txn,
    ) -> Result<(Option<u64>, TxnResponse), etcd_client::Error> {
        let kept = lock(&self.kept).take();
        let (kept, by, answer) = keep_and_check(c, self.lease, kept, txn).await?;
        *lock(&self.kept) = Some(kept);
        Ok((by, answer))
    }

    fn confirmed(&self, begun: Moment, answer: &TxnResponse) -> FaultResult<()> {
        self.publisher.prove(begun);
        let mut answers = Answers::of(answer);
        let rich = look::has_room(self.queues.len());
        // The hold may have been proved meanwhile; then the answer may be to either question.
        if self.is_held() {
            return Ok(());
        }
        let seen = self.queues.iter().map(|_| answers.seen(self.mode, self.created, rich));
        let seen: Vec<Seen> = seen.collect::<FaultResult<_>>()?;
        let targets = self.targets(&seen);
        if targets.is_empty() {
            self.look.notify_one();
        } else {
            let revision = answer.header().map_or(0, ResponseHeader::revision);
            self.publish_waiting(&seen, &targets, revision);
        }
        Ok(())
    }
}

/// As [`crate::backend::Backend::renew`], in `queue` of the claim `id`.
pub(super) async fn renew_alone(
    wire: &Wire,
    layout: &Layout,
    queue: &Queue,
    id: ClaimId,
    deadline: Moment,
) -> FaultResult<bool> {
    let snapshot = queue::read(wire, queue, deadline).await?;
    let Some(member) = snapshot.position(id).map(|at| &snapshot.members[at]) else { return Ok(false) };
    let holders = snapshot.status(&queue.name).holders;
    if !holders.iter().any(|entry| entry.claim == Some(id)) {
        return Ok(false);
    }
    let names = member.stored.as_ref().map(|stored| stored.record.names(&queue.name)).unwrap_or_default();
    let entries = names.iter().map(|name| layout.queue(name).entry(member.mode, member.lease));
    let stand: Vec<_> = entries.map(|entry| look::stands(entry, member.created)).collect();
    let txn = Txn::new().when(stand).and_then([TxnOp::get(member.key.clone(), None)]);
    while clock::now() < deadline {
        let answer = wire.call(deadline, |c| keep_and_check(c, member.lease, None, txn.clone())).await;
        let (_, kept, answer) = match answer {
            // As above: what is certain is whether the entries stand.
            Err(Fault::LeaseNotFound) if act(wire, txn.clone(), deadline).await? => {
                Clock::Boot.sleep_until(deadline.min(clock::now() + PAUSE)).await;
                continue;
            }
            Err(Fault::LeaseNotFound) => return Ok(false),
            other => other?,
        };
        if !answer.succeeded() {
            return Ok(false);
        }
        if kept.is_some() && term(answer.header()) == kept {
            return Ok(true);
        }
        Clock::Boot.sleep_until(deadline.min(clock::now() + PAUSE)).await;
    }
    Err(Fault::late())
}
