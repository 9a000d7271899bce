//! The steps of claims: renewals, holds, ends and changes. The last successful run, by the server's clock.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use zookeeper_client::{Client, CreateMode, Error as ZkError, MultiWriteError, MultiWriter};

use super::config::{slot, success};
use super::ensemble::Ensemble;
use super::fault::NO_RIGHT;
use super::life::Life;
use super::queue::Note;
use super::view;
use crate::backend;
use crate::lock::{ErrorKind, LockName, Mode, Moment};
use crate::net::fault::{Fault, FaultResult};
use crate::queue::store::{Change, Key, Own, Queue, Step};

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
        let mut step = client.new_multi_writer();
        for path in self.nodes() {
            step.add_check_version(&path, -1)?;
        }
        let lives = is_done(step).await?;
        if lives {
            self.proofs().add(begun);
        }
        Ok(lives)
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
            });
            // The task is aborted when its connection breaks.
            async { answered.await.unwrap_or_else(|_| Err(ZkError::ConnectionLoss.into())) }
        });
        // If the session was closed meanwhile, the life has the reason.
        Ok(kept.await?.unwrap_or(false))
    }
}

/// Reads the record at `path`, and its version; `None` if the node does not exist, or is not one that this user's dlock wrote.
async fn note_at(client: &Client, path: &str) -> FaultResult<Option<(Note, i32)>> {
    let found = view::data_of(client, path).await?;
    Ok(found.and_then(|(data, stat)| Some((Note::parse(&data)?, stat.version))))
}

/// Takes `slots` in one step, each by its node and in the record, where other clients find it. Returns whether it did.
pub(super) async fn hold(
    life: &Life,
    client: &Client,
    own: &Own,
    slots: &[Option<u32>],
) -> FaultResult<bool> {
    let config = &life.ensemble.config;
    let slotted = CreateMode::Ephemeral.with_acls(life.ensemble.acls());
    let mut step = client.new_multi_writer();
    for ((name, key), number) in own.entries().zip(slots) {
        let path = config.nodes(&name, &key)?.swap_remove(0);
        let (Some(number), Some((note, version))) = (*number, note_at(client, &path).await?) else {
            return Ok(false);
        };
        let note = Note { slot: Some(number), waited_ms: life.waited_ms(Duration::ZERO), ..note };
        step.add_set_data(&path, &note.to_bytes(), Some(version))?;
        step.add_create(&slot(&config.queue(&name)?, number), b"", &slotted)?;
    }
    is_done(step).await
}

/// Leaves by closing the session, after a success once that is recorded.
pub(super) async fn leave(life: &Life, further: &[Step]) -> FaultResult<()> {
    let recorded = match further {
        [Step::Success { held_for }] => {
            let since = life.ensemble.clock.now() - *held_for;
            let over = || Fault::unavailable("the session was over before the success was recorded");
            match life.ask(|client| async move { record(life, &client, since).await }).await {
                // The record is another user's. The claim leaves without it.
                Err(fault) if fault.code == NO_RIGHT => Ok(()),
                recorded => recorded.and_then(|recorded| recorded.ok_or_else(over)),
            }
        }
        _ => Ok(()),
    };
    // Closing a session needs a connection.
    drop(life.client().await);
    life.end().await;
    recorded
}

/// Removes the nodes of a claim and records the success of its run, which acquired at `since`, in one step and one
/// write of the server's log.
async fn record(life: &Life, client: &Client, since: Moment) -> FaultResult<()> {
    let (nodes, queues) = (life.nodes(), life.queues());
    let options = CreateMode::Persistent.with_acls(life.ensemble.acls());
    let token = life.own.get().and_then(|own| own.keys.first()).map_or(0, |key| key.order);
    // No other claim can have acquired later than an exclusive one, so that one replaces what is there unread.
    let mut is_read = life.request.mode != Mode::Exclusive;
    loop {
        // The server dates the write. The length of the hold before it is the same on every clock.
        let text = format!("{} {token}", life.ensemble.clock.now().since(since).as_millis());
        let mut step = client.new_multi_writer();
        for node in &nodes {
            step.add_delete(node, None)?;
        }
        for path in queues.iter().map(|queue| success(queue)) {
            let found = if is_read { Some(view::data_of(client, &path).await?) } else { None };
            match found {
                None => step.add_set_data(&path, text.as_bytes(), None)?,
                Some(None) => step.add_create(&path, text.as_bytes(), &options)?,
                // Of a claim that arrived later, and so acquired later.
                Some(Some((data, _))) if parsed(&data).is_some_and(|(_, other)| other > token) => {}
                Some(Some((_, stat))) => step.add_set_data(&path, text.as_bytes(), Some(stat.version))?,
            }
        }
        if is_done(step).await? {
            return Ok(());
        }
        // An earlier step with a lost answer may have removed the nodes.
        let Some(node) = nodes.first() else { return Ok(()) };
        if client.check_stat(node).await?.is_none() {
            return Ok(());
        }
        // It is the first success, or another client wrote first.
        is_read = true;
    }
}

/// Parses a success: how long the hold had lasted when it was written, and its token.
fn parsed(data: &[u8]) -> Option<(Duration, u64)> {
    let (lasted, token) = std::str::from_utf8(data).ok()?.split_once(' ')?;
    Some((Duration::from_millis(lasted.parse().ok()?), token.parse().ok()?))
}

/// Returns how long ago the last successful run under `queue` acquired. The server's present time is that of a node
/// created for this purpose.
pub(super) async fn last_success(
    ensemble: &Ensemble,
    client: &Client,
    queue: &str,
) -> FaultResult<Option<Duration>> {
    client.sync("/").await?;
    let path = success(queue);
    let Some((data, stat)) = view::data_of(client, &path).await? else { return Ok(None) };
    let Some((lasted, _)) = parsed(&data) else { return Ok(None) };
    let stem = format!("{path}-now-");
    let options = CreateMode::EphemeralSequential.with_acls(ensemble.acls());
    let (now, sequence) = client.create(&stem, b"", &options).await?;
    // If this fails, the node ends with the session.
    drop(client.delete(&format!("{stem}{sequence}"), None));
    let time = |millis| Duration::from_millis(u64::try_from(millis).unwrap_or_default());
    let age = backend::success::age(time(now.ctime), time(stat.mtime));
    Ok(age.map(|age| age.saturating_add(lasted)))
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
    while let Some((mut note, version)) = note_at(client, path).await? {
        match change {
            Change::Asked(by) => note.asked_by = Some(by.clone()),
            Change::Label(text) => note.record.holder.label = Some(text.clone()),
            Change::HeldFor(length) => note.waited_ms = life.and_then(|life| life.waited_ms(*length)),
        }
        match client.set_data(path, &note.to_bytes(), Some(version)).await {
            Ok(_) => return Ok(true),
            Err(ZkError::NoNode | ZkError::BadVersion) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}
