//! The steps of claims: renewals, holds, ends and changes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use zookeeper_client::{Client, CreateMode, Error as ZkError, MultiWriteError, MultiWriter};

use super::config::slot;
use super::ensemble::Ensemble;
use super::fault::LOST;
use super::life::Life;
use super::note::Note;
use super::{success, view};
use crate::lock::{ErrorKind, LockName, Moment};
use crate::net::fault::{Fault, FaultResult};
use crate::queue::store::{Answer, Change, Key, Own, Queue, Step};

/// How often other clients may change the same node first.
const RACES: usize = 50;
/// The requested session length to learn the tick, and the time limit for that.
const SHORTEST: Duration = Duration::from_secs(1);
const PROBE: Duration = Duration::from_secs(3);

/// Commits `step`. Returns false if it was refused because a node is gone, is there or has changed.
async fn is_done(mut step: MultiWriter<'_>) -> FaultResult<bool> {
    match step.commit().await {
        Ok(_) => Ok(true),
        Err(MultiWriteError::OperationFailed {
            source: ZkError::NoNode | ZkError::BadVersion | ZkError::NodeExists,
            ..
        }) => Ok(false),
        Err(error) => Err(ZkError::from(error).into()),
    }
}

impl Life {
    /// Renews the session at `begun`, and records the result. Returns whether the claim lives.
    ///
    /// A renewal is a write that changes nothing: a quorum confirms that the nodes exist. Pings and reads prove nothing,
    /// because a follower that is cut off answers them as well. The version is not compared, since other clients may
    /// mark the node.
    pub(super) async fn renew(&self, client: &Client, begun: Moment) -> FaultResult<bool> {
        // Sent with the first renewal, so that a hold does not wait for it.
        let config = self.proofs().single.is_none().then(|| client.get_config());
        let mut step = client.new_multi_writer();
        for path in self.nodes() {
            step.add_check_version(&path, -1)?;
        }
        if !is_done(step).await? {
            return Ok(false);
        }
        if let Some(config) = config
            && let Ok((text, _)) = config.await
        {
            let text = String::from_utf8_lossy(&text);
            let servers = text.lines().filter(|line| line.starts_with("server.")).count();
            self.proofs().single = Some(servers <= 1);
        }
        self.proofs().add(begun);
        Ok(true)
    }

    /// Renews for the claim's owner. A repetition is equivalent, because the ttl counts from the first attempt. Returns
    /// whether the claim lives.
    pub(super) async fn keep(self: &Arc<Self>) -> FaultResult<bool> {
        let begun = self.ensemble.clock.now();
        let kept = self.ask(|client| {
            let (answer, answered) = oneshot::channel();
            let life = Arc::clone(self);
            // In a separate task: a caller that keeps the future without polling it must not delay the session.
            self.spawn(async move {
                let _ = answer.send(life.renew(&client, begun).await);
                drop(client);
                life.learn_tick().await;
            });
            // The task is aborted when its connection breaks.
            async { answered.await.unwrap_or_else(|_| Err(ZkError::ConnectionLoss.into())) }
        });
        let lives = kept.await?.unwrap_or(false);
        // If the session was closed meanwhile, the life has the reason.
        if lives {
            self.proofs().regranted = false;
        }
        Ok(lives)
    }

    /// Learns the servers' tick, if it matters: they grant at least two ticks, unless configured otherwise.
    async fn learn_tick(&self) {
        if !self.proofs().wants_tick() {
            return;
        }
        if let Ok(Ok(shortest)) = tokio::time::timeout(PROBE, self.ensemble.connect(SHORTEST)).await {
            self.proofs().tick = Some(shortest.session_timeout() / 2);
        }
    }
}

/// Takes `slots` in one step, each by its node and in the record, where other clients find it.
pub(super) async fn hold(life: &Life, own: &Own, slots: &[Option<u32>]) -> FaultResult<(bool, Answer)> {
    let shown = life.shown().clone();
    let sent = life.ensemble.clock.now();
    let Some(client) = life.client().await.filter(|_| shown.records.len() == slots.len()) else {
        return Ok((false, view::read(life, own).await?));
    };
    let slotted = CreateMode::Ephemeral.with_acls(life.ensemble.acls());
    let mut step = client.new_multi_writer();
    for ((path, note, version), number) in shown.records.iter().zip(slots) {
        let Some(number) = *number else { continue };
        let note = Note { slot: Some(number), waited_ms: life.waited_ms(Duration::ZERO), ..note.clone() };
        let queue = path.rsplit_once('/').map_or("", |(queue, _)| queue);
        step.add_set_data(path, &note.to_bytes(), Some(*version))?;
        step.add_create(&slot(queue, number), b"", &slotted)?;
    }
    match is_done(step).await {
        Ok(true) => {}
        // If the answer was lost, the next read shows whether it was executed.
        Err(fault) if fault.code != LOST => return Err(fault),
        _ => return Ok((false, view::read(life, own).await?)),
    }
    let mut queues = shown.queues;
    for ((queue, key), number) in queues.iter_mut().zip(&own.keys).zip(slots) {
        queue.items.iter_mut().filter(|item| item.key == *key).for_each(|item| item.slot = *number);
    }
    Ok((true, Answer { queues, note: life.note(), sent, seen: shown.seen }))
}

/// Leaves by closing the session, after a success once that is recorded.
pub(super) async fn leave(life: &Life, further: &[Step]) -> FaultResult<()> {
    let recorded = match further {
        [Step::Success { held_for }] => success::leave(life, life.ensemble.clock.now() - *held_for).await,
        _ => Ok(()),
    };
    // Closing a session needs a connection.
    drop(life.client().await);
    life.close();
    life.ended().await;
    recorded
}

/// Makes a step on entries, if those in `when` and the own one are present. `life` is that of the own claim. Returns
/// whether it was made.
pub(super) async fn commit(
    ensemble: &Ensemble,
    client: &Client,
    life: Option<&Life>,
    when: &[(LockName, Key)],
    step: &Step,
) -> FaultResult<bool> {
    let config = &ensemble.config;
    let mut removed = Vec::new();
    match step {
        Step::Remove { id, names, .. } => {
            for Queue { name, items } in view::read_whole(ensemble, client, names).await?.queues {
                for item in items.iter().filter(|item| item.id == *id && !item.foreign) {
                    removed.extend(config.nodes(&name, &item.key)?);
                    if let Some(number) = item.slot {
                        removed.push(slot(&config.queue(&name)?, number));
                    }
                }
            }
            if removed.is_empty() {
                return Ok(true);
            }
        }
        Step::RemoveForeign(name, key) => removed = config.nodes(name, key)?,
        Step::Change(name, item, change) => {
            return amend(client, &config.nodes(name, &item.key)?[0], change, life).await;
        }
        Step::Hold { .. } | Step::Success { .. } => {
            return Err(Fault::new(ErrorKind::Corrupt, "steps that do not go together"));
        }
    }
    let mut writer = client.new_multi_writer();
    for (name, key) in when {
        writer.add_check_version(&config.nodes(name, key)?[0], -1)?;
    }
    for node in removed {
        writer.add_delete(&node, None)?;
    }
    is_done(writer).await
}

/// Changes the record at `path`. `life` is that of the own claim. Returns whether there was a record.
async fn amend(client: &Client, path: &str, change: &Change, life: Option<&Life>) -> FaultResult<bool> {
    for _ in 0..RACES {
        let found = view::data_of(client, &[path.to_owned()]).await?.pop().flatten();
        let Some((data, stat)) = found else { return Ok(false) };
        let Some(mut note) = Note::parse(&data) else { return Ok(false) };
        match change {
            Change::Asked(by) => note.asked_by = Some(by.clone()),
            Change::Label(text) => note.record.holder.label = Some(text.clone()),
            Change::HeldFor(length) => note.waited_ms = life.and_then(|life| life.waited_ms(*length)),
        }
        match client.set_data(path, &note.to_bytes(), Some(stat.version)).await {
            Ok(_) => return Ok(true),
            Err(ZkError::NoNode | ZkError::BadVersion) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Fault::new(ErrorKind::Unavailable, "others change the entry all the time"))
}
