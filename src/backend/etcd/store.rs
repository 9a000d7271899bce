//! The operations of the queues. Joining is here in full: first the lease, then the entries, which need it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{GetOptions, LeaseGrantOptions, Txn};

use super::cluster::Cluster;
use super::commit::Committer;
use super::config::EtcdConfig;
use super::examine;
use super::fault::{LEASE_EXISTS, LEASE_GONE, NAME};
use super::follow::{self, LEAST_BEHIND_PROXY, Streams};
use super::keys::{Arrived, note, stored, wall_clock};
use super::queue::{self, Claimed, MOST_OPERATIONS, put, stands};
use crate::backend::record::Record;
use crate::backend::{Capabilities, Examination, ServiceClient, success};
use crate::clock::{self, Clock};
use crate::lock::{ClaimId, ErrorKind, LockName, Mode, Moment, Request};
use crate::net::fault::{Fault, FaultResult};
use crate::net::rank::Rank;
use crate::queue::store::{Answer, Extent, Key, Note, Own, Queue, Seen, Step, Store, Watched};
use crate::sync::locked;

/// The number of entries with a displayed ttl; each costs a request.
const TIMED: usize = 32;

/// The queues in one etcd cluster. It connects with the first request, and needs the tokio runtime of that request for
/// its whole life.
#[derive(Debug)]
pub(super) struct EtcdStore {
    cluster: Cluster,
    /// The streams of each claim of this client.
    claims: Mutex<HashMap<ClaimId, Arc<Streams>>>,
}

impl EtcdStore {
    /// Creates a client that has not connected yet.
    pub(super) fn open(config: &EtcdConfig) -> Self {
        Self { cluster: Cluster::new(config), claims: Mutex::default() }
    }

    fn streams(&self, id: ClaimId) -> Arc<Streams> {
        Arc::clone(locked(&self.claims).entry(id).or_default())
    }

    /// Grants the lease, or renews that of an earlier attempt. Returns its length.
    async fn lease(&self, lease: i64, ttl: Duration, deadline: Moment) -> FaultResult<Duration> {
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        let granted = self.cluster.call(deadline, |c| async move {
            let options = LeaseGrantOptions::new().with_id(lease);
            c.client.clone().lease_grant(seconds, Some(options)).await
        });
        let length = match granted.await {
            Err(fault) if fault.code == LEASE_EXISTS => {
                let kept = self.cluster.call(deadline, |c| async move {
                    let mut client = c.client.clone();
                    client.lease_keep_alive(lease).await?;
                    client.lease_time_to_live(lease, None).await
                });
                kept.await?.granted_ttl()
            }
            granted => granted?.ttl(),
        };
        let length = u64::try_from(length).ok().filter(|seconds| *seconds > 0);
        length.map(Duration::from_secs).ok_or_else(|| Fault::nonsense("a lease without a length"))
    }
}

/// Returns the transaction that creates the entries. It requires that none exists, and that the claim was not removed
/// already: a request that was given up in flight may arrive late.
fn entries(claimed: &Claimed, request: &Request) -> Txn {
    let (mode, lease) = (claimed.mode, claimed.lease);
    let label = request.holder.label.clone().unwrap_or_default();
    let record = stored(&Arrived { record: Record::of(request, request.ttl), since_ms: wall_clock() });
    let mut compares = vec![stands(claimed.note.as_str(), 0)];
    compares.extend(claimed.queues.first().map(|first| stands(first.entry(mode, lease), 0)));
    let mut then = Vec::new();
    for queue in &claimed.queues {
        then.push(put(queue.entry(mode, lease), label.as_str(), lease));
        then.push(put(queue.record(mode, lease), record.as_str(), lease));
    }
    then.extend(claimed.reads());
    Txn::new().when(compares).and_then(then).or_else(claimed.reads())
}

impl ServiceClient for EtcdStore {
    fn capabilities(&self) -> Capabilities {
        let abandoned_bound = Duration::from_secs(2);
        Capabilities { look_while_running: false, abandoned_bound, ..Capabilities::of(NAME) }
    }

    fn identity(&self) -> String {
        self.cluster.config().identity()
    }

    fn place(&self) -> String {
        self.cluster.config().servers()
    }

    fn connects_as(&self, rank: Rank) {
        self.cluster.link.connects_as(rank);
    }

    fn has_connected(&self) -> bool {
        self.cluster.link.has_connected()
    }
}

#[async_trait]
impl Store for EtcdStore {
    /// Claims ahead may have held in between, by later revisions than that of the arrival.
    fn is_past_arrival(&self, own: &Own, answer: &Answer) -> bool {
        own.keys.iter().any(|key| key.order != answer.seen)
    }

    /// The token of a claim that waited is the revision of its hold, because other clients publish later revisions than
    /// those of their keys.
    fn hold_is_a_step(&self, mode: Mode, waited: bool) -> bool {
        waited || matches!(mode, Mode::Slots(_))
    }

    /// The own claim and the hold of a removed one are compared, too.
    fn most_conditions(&self) -> usize {
        MOST_OPERATIONS - 2
    }

    async fn append(&self, request: &Request, deadline: Moment) -> FaultResult<(Own, Answer)> {
        let Request { id, names, mode, ttl, .. } = request;
        let begun = clock::now();
        if *ttl < LEAST_BEHIND_PROXY
            && self.cluster.call(deadline, |c| async move { Ok(c.is_proxied().await?) }).await?
        {
            let reason = "etcd's grpc-proxy renews leases by itself, too slowly for this --ttl; take 5s or more, or connect to the servers";
            return Err(Fault::new(ErrorKind::Invalid, reason));
        }
        let claimed = Claimed::new(&self.cluster.layout, *id, names, *mode);
        let (ttl, answer) = loop {
            let joined = async {
                let ttl = self.lease(claimed.lease, *ttl, deadline).await?;
                Ok::<_, Fault>((ttl, self.cluster.txn(entries(&claimed, request), deadline).await?))
            };
            match joined.await {
                // The lease expired between two of the steps.
                Err(fault) if fault.code == LEASE_GONE => {}
                joined => break joined?,
            }
        };
        let answer = claimed.answer(&answer, begun)?;
        let keys = answer.queues.iter().map(|queue| {
            let own = queue.items.iter().find(|item| item.id == *id).map(|item| item.key.clone());
            // A claim that was removed before its entries arrived has none, and is found gone.
            own.unwrap_or_else(|| Key { order: answer.seen, text: String::new() })
        });
        let keys = keys.collect();
        Ok((Own { id: *id, names: names.clone(), mode: *mode, ttl, keys }, answer))
    }

    async fn read(&self, names: &[LockName], extent: Extent<'_>, deadline: Moment) -> FaultResult<Answer> {
        let own = match extent {
            Extent::Needed(own) => own,
            Extent::Whole => return queue::read(&self.cluster, names, 0, deadline).await,
            Extent::Shown => return queue::read(&self.cluster, names, TIMED, deadline).await,
        };
        let (claimed, sent) = (Claimed::of(&self.cluster.layout, own), clock::now());
        let answer = self.cluster.txn(Txn::new().and_then(claimed.reads()), deadline).await?;
        claimed.answer(&answer, sent)
    }

    async fn commit(
        &self,
        own: Option<&Own>,
        when: &[(LockName, Key)],
        steps: &[Step],
        deadline: Moment,
    ) -> FaultResult<(bool, Answer)> {
        let own = own.map(|own| Claimed::of(&self.cluster.layout, own));
        Committer { cluster: &self.cluster, own, when, deadline }.commit(steps).await
    }

    async fn renew(&self, own: &Own, _: bool, deadline: Moment) -> FaultResult<Option<(Moment, Answer)>> {
        let (claimed, streams) = (Claimed::of(&self.cluster.layout, own), self.streams(own.id));
        follow::renew(&self.cluster, &claimed, &streams, deadline).await
    }

    async fn changed(&self, watched: Watched<'_>, seen: Seen, until: Moment) -> FaultResult<()> {
        let streams = match watched {
            Watched::Claim { own, .. } => self.streams(own.id),
            Watched::Queue(_) => Arc::default(),
        };
        Clock::Boot.by(until, follow::changed(&self.cluster, watched, &streams, seen)).await;
        Ok(())
    }

    async fn why_gone(&self, own: &Own, _: bool, deadline: Moment) -> FaultResult<Option<Note>> {
        let key = self.cluster.layout.note(self.cluster.layout.lease_of(own.id));
        let answer = self.cluster.get(key, GetOptions::new(), deadline).await?;
        Ok(answer.kvs().first().and_then(|kv| note(kv.value())))
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> FaultResult<Vec<Queue>> {
        let names = queue::names(&self.cluster, prefix, deadline).await?;
        Ok(queue::read(&self.cluster, &names, TIMED, deadline).await?.queues)
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Duration>> {
        let key = self.cluster.layout.queue(name).done();
        let answer = self.cluster.get(key, GetOptions::new(), deadline).await?;
        let acquired: Option<u64> =
            answer.kvs().first().and_then(|kv| kv.value_str().ok()).and_then(|text| text.parse().ok());
        let now = Duration::from_millis(wall_clock());
        Ok(acquired.and_then(|at| success::age(now, Duration::from_millis(at))))
    }

    fn abandon(&self, id: ClaimId) {
        locked(&self.claims).remove(&id);
    }

    async fn examine(&self, deadline: Moment) -> FaultResult<Examination> {
        examine::examine(&self.cluster, deadline).await
    }
}
