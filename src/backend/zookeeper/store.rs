//! The operations of the queues.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use zookeeper_client::{Client, SessionState};

use super::append::{append, check};
use super::config::ZkConfig;
use super::ensemble::{Ensemble, Session};
use super::fault::{NAME, is_lost};
use super::life::{Life, RENEWALS, RETRY};
use super::{commit, examine, view, watch};
use crate::backend::{Capabilities, Examination, ServiceClient};
use crate::clock::Clock;
use crate::lock::{ClaimId, LockName, Moment, Request};
use crate::net::fault::FaultResult;
use crate::net::rank::Rank;
use crate::queue::store::{Answer, Extent, Key, Note, Own, Queue, Seen, Step, Store, Watched};
use crate::sync::locked;

/// The length of a session that reads or writes for no claim. It has no nodes, so nothing depends on it.
const LOOKING: Duration = Duration::from_secs(10);

/// The queues in one ensemble. It connects with the first request.
#[derive(Debug)]
pub(super) struct ZkStore {
    ensemble: Arc<Ensemble>,
    looking: Mutex<Option<Session>>,
    lives: Mutex<HashMap<ClaimId, Arc<Life>>>,
}

impl ZkStore {
    pub(super) fn open(config: &ZkConfig, clock: Clock) -> Self {
        let ensemble = Arc::new(Ensemble::new(config.clone(), clock));
        Self { ensemble, looking: Mutex::default(), lives: Mutex::default() }
    }

    fn life(&self, id: ClaimId) -> Option<Arc<Life>> {
        locked(&self.lives).get(&id).cloned()
    }

    /// Returns the session without nodes. Without a connection it is replaced, because a server that has lost its data
    /// never accepts it again.
    async fn looking(&self, deadline: Moment) -> FaultResult<Session> {
        let known = locked(&self.looking).clone();
        if let Some(session) = known.filter(|known| known.client.state() == SessionState::SyncConnected) {
            return Ok(session);
        }
        let session = self.ensemble.session(LOOKING, deadline).await?;
        *locked(&self.looking) = Some(session.clone());
        Ok(session)
    }

    /// Makes a request over the session of a claim, or over one without nodes; again over another one after a connection
    /// broke.
    async fn ask<T, F>(&self, deadline: Moment, request: impl Fn(Client) -> F + Send) -> FaultResult<T>
    where
        F: Future<Output = FaultResult<T>> + Send,
    {
        loop {
            let of_claim = locked(&self.lives).values().find_map(|life| life.up());
            let session = match of_claim {
                Some(session) => session,
                None => self.looking(deadline).await?,
            };
            match self.ensemble.by(deadline, request(session.client)).await {
                Err(fault) if is_lost(&fault) => tokio::time::sleep(RETRY).await,
                done => return done,
            }
        }
    }

    async fn made(
        &self,
        own: Option<&Own>,
        when: &[(LockName, Key)],
        steps: &[Step],
        deadline: Moment,
    ) -> FaultResult<bool> {
        if let [Step::Remove { id, note: None, .. }, further @ ..] = steps
            && let Some(life) = self.life(*id)
        {
            return self.ensemble.by(deadline, commit::leave(&life, further)).await.map(|()| true);
        }
        let life = own.and_then(|own| self.life(own.id));
        if let ([Step::Hold { slots, .. }], Some(own), Some(life)) = (steps, own, &life) {
            let held = life.ask(|client| async move { commit::hold(life, &client, own, slots).await });
            return Ok(self.ensemble.by(deadline, held).await?.unwrap_or(false));
        }
        let [step, ..] = steps else { return Ok(true) };
        let when: Vec<_> = when.iter().cloned().chain(own.into_iter().flat_map(Own::entries)).collect();
        let (ensemble, when, life) = (&*self.ensemble, &when, life.as_deref());
        loop {
            let commit = |client| async move { commit::commit(ensemble, &client, life, when, step).await };
            let done = self.ask(deadline, commit).await?;
            // A withdrawal has no condition. It was refused because a node has gone meanwhile.
            if done || !matches!(step, Step::Remove { note: None, .. }) {
                return Ok(done);
            }
        }
    }
}

impl ServiceClient for ZkStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            renewals_per_ttl: RENEWALS,
            look_while_running: false,
            // Two ticks of a server with the usual configuration.
            abandoned_bound: Duration::from_secs(4),
            ..Capabilities::of(NAME)
        }
    }

    /// A session needs a process.
    fn is_detachable(&self) -> bool {
        false
    }

    fn identity(&self) -> String {
        self.ensemble.config.identity()
    }

    fn connects_as(&self, rank: Rank) {
        *locked(&self.ensemble.rank) = rank;
    }

    fn has_connected(&self) -> bool {
        locked(&self.looking).is_some() || !locked(&self.lives).is_empty()
    }
}

#[async_trait]
impl Store for ZkStore {
    fn ttl(&self, own: &Own) -> Duration {
        self.life(own.id).map_or(own.ttl, |life| life.proofs().ttl)
    }

    async fn append(&self, request: &Request, deadline: Moment) -> FaultResult<(Own, Answer)> {
        let ensemble = &self.ensemble;
        if let Some(life) = self.life(request.id) {
            if let Some(own) = life.own.get().filter(|_| !life.is_closed()) {
                return Ok((own.clone(), ensemble.by(deadline, view::read(&life, own, None)).await?));
            }
            ensemble.clock.by(deadline, life.end()).await;
        }
        check(&ensemble.config, request)?;
        let life = Life::begin(ensemble, request, deadline).await?;
        locked(&self.lives).insert(request.id, Arc::clone(&life));
        let entered = ensemble.by(deadline, append(&life)).await;
        if entered.is_err() {
            // After a refusal the caller may rely on the claim having no entry.
            ensemble.clock.by(deadline, life.end()).await;
        }
        entered
    }

    async fn read(&self, names: &[LockName], extent: Extent<'_>, deadline: Moment) -> FaultResult<Answer> {
        if let Extent::Needed(own) = extent
            && let Some(life) = self.life(own.id)
        {
            return self.ensemble.by(deadline, view::read(&life, own, None)).await;
        }
        let ensemble = &*self.ensemble;
        self.ask(deadline, |client| async move { view::read_whole(ensemble, &client, names).await }).await
    }

    async fn commit(
        &self,
        own: Option<&Own>,
        when: &[(LockName, Key)],
        steps: &[Step],
        deadline: Moment,
    ) -> FaultResult<(bool, Answer)> {
        let sent = self.ensemble.clock.now();
        let made = self.made(own, when, steps, deadline).await;
        if let [Step::Remove { id, note: None, .. }, ..] = steps {
            // Also after a timeout, because the pings of the session would keep the claim alive.
            self.abandon(*id);
        }
        let made = made?;
        Ok(match (steps, own) {
            ([Step::Hold { .. }], Some(own)) => {
                (made, self.read(&own.names, Extent::Needed(own), deadline).await?)
            }
            _ => (made, Answer { queues: Vec::new(), note: None, sent, seen: 0 }),
        })
    }

    async fn renew(&self, own: &Own, _: bool, deadline: Moment) -> FaultResult<Option<(Moment, Answer)>> {
        let Some(life) = self.life(own.id) else { return Ok(None) };
        let begun = self.ensemble.clock.now();
        if !self.ensemble.by(deadline, life.keep()).await? {
            return Ok(None);
        }
        let since = life.proofs().counts_from();
        Ok(Some((since, life.bare_answer(begun))))
    }

    async fn changed(&self, watched: Watched<'_>, seen: Seen, until: Moment) -> FaultResult<()> {
        let changed = async {
            match watched {
                Watched::Claim { own, on } => match self.life(own.id) {
                    Some(life) => watch::claim(&life, own, on, seen).await,
                    None => Ok(()),
                },
                Watched::Queue(name) => {
                    let session = self.looking(until).await?;
                    watch::queue(&self.ensemble.config, &session.client, name, seen).await
                }
            }
        };
        match self.ensemble.clock.by(until, changed).await {
            // The next read finds out why.
            Some(Err(fault)) if !is_lost(&fault) => Err(self.ensemble.explain(fault)),
            _ => Ok(()),
        }
    }

    async fn why_gone(&self, own: &Own, held: bool, deadline: Moment) -> FaultResult<Option<Note>> {
        let Some(life) = self.life(own.id) else { return Ok(None) };
        // The claim that superseded it, if that one is still in the queue.
        let newer = |answer: Answer| {
            answer.queues.iter().zip(&own.keys).find_map(|(queue, key)| {
                let later = queue.items.iter().rev().filter(|item| item.key.order > key.order);
                let newer = later.filter_map(|item| item.about.as_ref()).find(|about| about.supersede)?;
                Some(Note::Superseded(newer.entry.owner()))
            })
        };
        let known = life.note().filter(|note| matches!(note, Note::Forgotten(_)));
        let reason = if known.is_some() || held || !life.request.supersede {
            Ok(known)
        } else {
            self.read(&own.names, Extent::Whole, deadline).await.map(newer)
        };
        life.close();
        reason
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> FaultResult<Vec<Queue>> {
        let ensemble = &*self.ensemble;
        self.ask(deadline, |client| async move { view::list(ensemble, &client, prefix).await }).await
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Duration>> {
        let (ensemble, queue) = (&*self.ensemble, &*self.ensemble.config.queue(name)?);
        self.ask(deadline, |client| async move { commit::last_success(ensemble, &client, queue).await }).await
    }

    /// Closes the session.
    fn abandon(&self, id: ClaimId) {
        if let Some(life) = locked(&self.lives).remove(&id) {
            life.close();
        }
    }

    async fn examine(&self, deadline: Moment) -> FaultResult<Examination> {
        let ensemble = &*self.ensemble;
        self.ask(deadline, |client| async move { examine::examine(ensemble, &client).await }).await
    }
}
