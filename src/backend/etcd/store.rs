//! The operations of the queues.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{GetOptions, Txn};
use tokio::sync::Mutex as Turn;

use super::append::append;
use super::commit::Committer;
use super::config::EtcdConfig;
use super::examine;
use super::fault::NAME;
use super::keys::Layout;
use super::ops::MOST_OPERATIONS;
use super::renew::{Kept, renew};
use super::stored::{note, wall_clock};
use super::view::Claimed;
use super::watch::{self, Stream};
use super::whole;
use super::wire::Wire;
use crate::backend::{Capabilities, Examination, success};
use crate::clock::{self, Clock};
use crate::lock::{ClaimId, LockName, Mode, Moment, Request};
use crate::net::fault::FaultResult;
use crate::net::rank::Rank;
use crate::queue::store::{Answer, Extent, Key, Note, Own, Queue, Seen, Step, Store, Watched};
use crate::sync::locked;

/// The queues in one etcd cluster. It connects with the first request, and needs the tokio runtime of that request for
/// its whole life.
#[derive(Debug)]
pub(super) struct EtcdStore {
    wire: Wire,
    layout: Layout,
    identity: String,
    claims: Mutex<HashMap<ClaimId, Arc<Local>>>,
}

/// The streams of one claim of this client.
#[derive(Default)]
struct Local {
    /// The stream of keep-alives, between two renewals.
    kept: Mutex<Option<Kept>>,
    /// The stream of watches.
    stream: Turn<Option<Stream>>,
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").finish_non_exhaustive()
    }
}

impl EtcdStore {
    /// Creates a client that has not connected yet.
    pub(super) fn open(config: &EtcdConfig) -> Self {
        Self {
            wire: Wire::new(config),
            layout: config.layout(),
            identity: config.identity(),
            claims: Mutex::default(),
        }
    }

    fn local(&self, id: ClaimId) -> Arc<Local> {
        Arc::clone(locked(&self.claims).entry(id).or_default())
    }
}

#[async_trait]
impl Store for EtcdStore {
    fn capabilities(&self) -> Capabilities {
        let abandoned_bound = Duration::from_secs(2);
        Capabilities { look_while_running: false, abandoned_bound, ..Capabilities::of(NAME) }
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
        append(&self.wire, &self.layout, request, deadline).await
    }

    async fn read(&self, names: &[LockName], extent: Extent<'_>, deadline: Moment) -> FaultResult<Answer> {
        let Extent::Needed(own) = extent else {
            let timed = matches!(extent, Extent::Shown);
            return whole::read(&self.wire, &self.layout, names, timed, deadline).await;
        };
        let (claimed, sent) = (Claimed::of(&self.layout, own), clock::now());
        let answer = self.wire.txn(Txn::new().and_then(claimed.reads()), deadline).await?;
        claimed.answer(&answer, sent)
    }

    async fn commit(
        &self,
        own: Option<&Own>,
        when: &[(LockName, Key)],
        steps: &[Step],
        deadline: Moment,
    ) -> FaultResult<(bool, Answer)> {
        let own = own.map(|own| Claimed::of(&self.layout, own));
        Committer { wire: &self.wire, layout: &self.layout, own, when, deadline }.commit(steps).await
    }

    async fn renew(&self, own: &Own, waits: bool, deadline: Moment) -> FaultResult<Option<(Moment, Answer)>> {
        let (claimed, local) = (Claimed::of(&self.layout, own), self.local(own.id));
        renew(&self.wire, &claimed, waits, &local.kept, deadline).await
    }

    async fn changed(&self, watched: Watched<'_>, seen: Seen, until: Moment) -> FaultResult<()> {
        let spans = watch::spans(&self.layout, watched);
        let local = match watched {
            Watched::Claim { own, .. } => self.local(own.id),
            Watched::Queue(_) => Arc::default(),
        };
        let mut stream = local.stream.lock().await;
        Clock::Boot.by(until, watch::changed(&self.wire, &mut stream, &spans, seen)).await;
        Ok(())
    }

    async fn why_gone(&self, own: &Own, _: bool, deadline: Moment) -> FaultResult<Option<Note>> {
        let key = self.layout.note(self.layout.lease_of(own.id));
        let answer = self.wire.get(key, GetOptions::new(), deadline).await?;
        Ok(answer.kvs().first().and_then(|kv| note(kv.value())))
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> FaultResult<Vec<Queue>> {
        let names = whole::names(&self.wire, &self.layout, prefix, deadline).await?;
        Ok(whole::read(&self.wire, &self.layout, &names, true, deadline).await?.queues)
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Duration>> {
        let key = self.layout.queue(name).done();
        let answer = self.wire.get(key, GetOptions::new(), deadline).await?;
        let acquired: Option<u64> =
            answer.kvs().first().and_then(|kv| kv.value_str().ok()).and_then(|text| text.parse().ok());
        let now = Duration::from_millis(wall_clock());
        Ok(acquired.and_then(|at| success::age(now, Duration::from_millis(at))))
    }

    fn abandon(&self, id: ClaimId) {
        locked(&self.claims).remove(&id);
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn place(&self) -> String {
        self.wire.place()
    }

    fn connects_as(&self, rank: Rank) {
        self.wire.link.connects_as(rank);
    }

    fn has_connected(&self) -> bool {
        self.wire.link.has_connected()
    }

    async fn examine(&self, deadline: Moment) -> FaultResult<Examination> {
        examine::examine(&self.wire, &self.layout, deadline).await
    }
}
