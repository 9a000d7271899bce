//! The operations of the queues.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex as Turn;
use zookeeper_client::{Client, SessionState};

use super::append::{append, stems};
use super::config::ZkConfig;
use super::ensemble::{Ensemble, LOOKING};
use super::fault::{LOST, NAME};
use super::life::{Life, RENEWALS, RETRY};
use super::{commit, examine, success, view, watch};
use crate::backend::{Capabilities, Examination, ServiceClient};
use crate::clock::Clock;
use crate::lock::{ClaimId, LockName, Moment, Request};
use crate::net::fault::FaultResult;
use crate::net::rank::Rank;
use crate::queue::store::{Answer, Extent, Key, Note, Own, Queue, Seen, Step, Store, Watched};
use crate::sync::locked;

/// The queues in one ensemble. It connects with the first request.
#[derive(Debug)]
pub(super) struct ZkStore {
    ensemble: Arc<Ensemble>,
    looking: Turn<Option<Client>>,
    lives: Mutex<HashMap<ClaimId, Arc<Life>>>,
}

impl ZkStore {
    pub(super) fn open(config: &ZkConfig, clock: Clock) -> Self {
        let ensemble = Arc::new(Ensemble::new(config.clone(), clock));
        Self { ensemble, looking: Turn::default(), lives: Mutex::default() }
    }

    fn life(&self, id: ClaimId) -> Option<Arc<Life>> {
        locked(&self.lives).get(&id).cloned()
    }

    /// Returns a session for one request, which may be that of a claim.
    async fn reader(&self) -> FaultResult<Client> {
        let of_claim = locked(&self.lives).values().find_map(|life| life.up());
        if let Some(session) = of_claim { Ok(session.client) } else { self.looking().await }
    }

    /// Returns the session without nodes. Without a connection it is replaced, because a server that has lost its data
    /// never accepts it again.
    async fn looking(&self) -> FaultResult<Client> {
        let mut looking = self.looking.lock().await;
        match &*looking {
            Some(client) if client.state() == SessionState::SyncConnected => Ok(client.clone()),
            _ => Ok(looking.insert(self.ensemble.connect(LOOKING).await?).clone()),
        }
    }

    /// Makes a request, again over another session after a connection broke.
    async fn ask<T, F>(&self, request: impl Fn(Client) -> F + Send) -> FaultResult<T>
    where
        F: Future<Output = FaultResult<T>> + Send,
    {
        loop {
            match request(self.reader().await?).await {
                Err(fault) if fault.code == LOST => tokio::time::sleep(RETRY).await,
                done => return done,
            }
        }
    }

    async fn whole(&self, names: &[LockName]) -> FaultResult<Answer> {
        let ensemble = &*self.ensemble;
        self.ask(|client| async move { view::read_whole(ensemble, &client, names).await }).await
    }

    async fn enter(&self, request: &Request) -> FaultResult<(Own, Answer)> {
        if let Some(life) = self.life(request.id) {
            if let Some(own) = life.own.get().filter(|_| !life.is_closed()) {
                return Ok((own.clone(), view::read(&life, own).await?));
            }
            life.give_up().await;
        }
        let stems = stems(&self.ensemble.config, request)?;
        let life = Life::begin(&self.ensemble, request).await?;
        locked(&self.lives).insert(request.id, Arc::clone(&life));
        let entered = append(&life, &stems).await;
        if entered.is_err() {
            // After a refusal the caller may rely on the claim having no entry.
            life.give_up().await;
        }
        entered
    }

    async fn made(&self, own: Option<&Own>, when: &[(LockName, Key)], steps: &[Step]) -> FaultResult<bool> {
        if let [Step::Remove { id, found, note, .. }, further @ ..] = steps
            && let Some(life) = self.life(*id)
            && (note.is_none() || found.is_empty())
        {
            return commit::leave(&life, further).await.map(|()| true);
        }
        let [step, ..] = steps else { return Ok(true) };
        let when: Vec<_> = when.iter().cloned().chain(own.into_iter().flat_map(Own::entries)).collect();
        let life = own.and_then(|own| self.life(own.id));
        let (ensemble, when, life) = (&*self.ensemble, &when, life.as_deref());
        loop {
            let commit = |client| async move { commit::commit(ensemble, &client, life, when, step).await };
            let done = self.ask(commit).await?;
            // A withdrawal has no condition. It was refused because a node has gone meanwhile.
            if done || !matches!(step, Step::Remove { note: None, .. }) {
                return Ok(done);
            }
        }
    }

    /// Returns why a life ended, or which claim superseded its claim, if that one is still in the queue.
    async fn reason(&self, life: &Life, own: &Own, held: bool) -> FaultResult<Option<Note>> {
        let note = life.note().filter(|note| matches!(note, Note::Forgotten(_)));
        if note.is_some() || held || !life.request.supersede {
            return Ok(note);
        }
        let queues = self.whole(&own.names).await?.queues;
        let newer = queues.iter().zip(&own.keys).find_map(|(queue, key)| {
            let later = queue.items.iter().rev().filter(|item| item.key.order > key.order);
            later.filter_map(|item| item.about.as_ref()).find(|about| about.supersede)
        });
        Ok(newer.map(|about| Note::Superseded(about.entry.owner())))
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
        self.ensemble.connected.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Store for ZkStore {
    fn ttl(&self, own: &Own) -> Duration {
        self.life(own.id).map_or(own.ttl, |life| life.proofs().ttl)
    }

    async fn append(&self, request: &Request, deadline: Moment) -> FaultResult<(Own, Answer)> {
        self.ensemble.by(deadline, self.enter(request)).await
    }

    async fn read(&self, names: &[LockName], extent: Extent<'_>, deadline: Moment) -> FaultResult<Answer> {
        self.ensemble
            .by(deadline, async {
                if let Extent::Needed(own) = extent
                    && let Some(life) = self.life(own.id)
                {
                    return view::read(&life, own).await;
                }
                self.whole(names).await
            })
            .await
    }

    async fn commit(
        &self,
        own: Option<&Own>,
        when: &[(LockName, Key)],
        steps: &[Step],
        deadline: Moment,
    ) -> FaultResult<(bool, Answer)> {
        if let ([Step::Hold { slots, .. }], Some(own)) = (steps, own)
            && let Some(life) = self.life(own.id)
        {
            return self.ensemble.by(deadline, commit::hold(&life, own, slots)).await;
        }
        let sent = self.ensemble.clock.now();
        let made = self.ensemble.by(deadline, self.made(own, when, steps)).await;
        if let [Step::Remove { id, note: None, .. }, ..] = steps {
            // Also after a timeout, because the pings of the session would keep the claim alive.
            self.abandon(*id);
        }
        Ok((made?, Answer { queues: Vec::new(), note: None, sent, seen: 0 }))
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
                    watch::queue(&self.ensemble, &self.looking().await?, name, seen).await
                }
            }
        };
        tokio::select! {
            changed = changed => match changed {
                // The next read finds out why.
                Err(fault) if fault.code == LOST => Ok(()),
                changed => changed.map_err(|fault| self.ensemble.explain(fault)),
            },
            () = self.ensemble.clock.sleep_until(until) => Ok(()),
        }
    }

    async fn why_gone(&self, own: &Own, held: bool, deadline: Moment) -> FaultResult<Option<Note>> {
        let Some(life) = self.life(own.id) else { return Ok(None) };
        let reason = self.ensemble.by(deadline, self.reason(&life, own, held)).await;
        life.close();
        reason
    }

    async fn list(&self, prefix: &str, deadline: Moment) -> FaultResult<Vec<Queue>> {
        let ensemble = &*self.ensemble;
        let list = self.ask(|client| async move { view::list(ensemble, &client, prefix).await });
        ensemble.by(deadline, list).await
    }

    async fn last_success(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Duration>> {
        let (ensemble, queue) = (&*self.ensemble, &*self.ensemble.config.queue(name)?);
        let last = self.ask(|client| async move { success::last(ensemble, &client, queue).await });
        ensemble.by(deadline, last).await
    }

    /// Closes the session.
    fn abandon(&self, id: ClaimId) {
        if let Some(life) = locked(&self.lives).remove(&id) {
            life.close();
        }
    }

    async fn examine(&self, deadline: Moment) -> FaultResult<Examination> {
        let examine = async { examine::examine(&self.ensemble, &self.reader().await?).await };
        self.ensemble.by(deadline, examine).await
    }
}
