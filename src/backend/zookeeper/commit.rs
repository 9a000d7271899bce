//! The steps of claims.

use std::time::Duration;

use zookeeper_client::{Client, Error as ZkError, MultiWriteError, MultiWriter};

use super::ensemble::Ensemble;
use super::fault::LOST;
use super::life::Life;
use super::note::Note;
use super::paths::slot;
use super::{success, view};
use crate::lock::{ClaimId, ErrorKind, LockName, Mode};
use crate::net::fault::{Fault, FaultResult};
use crate::queue::store::{Answer, Change, Item, Key, Own, Step};

/// How often other clients may change the same node first.
const RACES: usize = 50;

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

/// Takes `slots` in one step, each by its node and in the record, where other clients find it.
pub(super) async fn hold(life: &Life, own: &Own, slots: &[Option<u32>]) -> FaultResult<(bool, Answer)> {
    let shown = life.shown().clone();
    let sent = life.ensemble.clock.now();
    let taken = life.client().await;
    let taken = match &taken {
        Some(client) if shown.records.len() == slots.len() => {
            let mut step = client.new_multi_writer();
            for ((path, note, version), number) in shown.records.iter().zip(slots) {
                let Some(number) = *number else { continue };
                let note =
                    Note { slot: Some(number), waited_ms: life.waited_ms(Duration::ZERO), ..note.clone() };
                let queue = path.rsplit_once('/').map_or("", |(queue, _)| queue);
                step.add_set_data(path, &note.to_bytes(), Some(*version))?;
                step.add_create(&slot(queue, number), b"", &life.ensemble.slot())?;
            }
            match is_done(step).await {
                // The next read shows whether it was executed.
                Err(fault) if fault.code == LOST => false,
                taken => taken?,
            }
        }
        _ => false,
    };
    if !taken {
        return Ok((false, view::read(life, own).await?));
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
        [Step::Success { held_for }] => {
            let since = life.ensemble.clock.now() - *held_for;
            let is_left = life.request.mode == Mode::Exclusive && success::leave(life, since).await;
            if is_left { Ok(()) } else { success::record(life, since).await }
        }
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
    let mut writer = client.new_multi_writer();
    for (name, key) in when {
        let record = key.text.split('/').next().unwrap_or_default();
        writer.add_check_version(&format!("{}/{record}", ensemble.queue(name)?), -1)?;
    }
    match step {
        Step::Remove { id, names, found, .. } => {
            let of = of_claim(ensemble, client, *id, names, found).await?;
            for (name, item) in &of {
                delete(ensemble, &mut writer, name, &item.key, item.slot)?;
            }
            Ok(of.is_empty() || is_done(writer).await?)
        }
        Step::RemoveForeign(name, key) => {
            delete(ensemble, &mut writer, name, key, None)?;
            is_done(writer).await
        }
        Step::Change(name, item, change) => {
            let record = item.key.text.split('/').next().unwrap_or_default();
            let waited = match (change, life) {
                (Change::HeldFor(length), Some(life)) => life.waited_ms(*length),
                _ => None,
            };
            amend(client, &format!("{}/{record}", ensemble.queue(name)?), change, waited).await
        }
        Step::Hold { .. } | Step::Success { .. } => {
            Err(Fault::new(ErrorKind::Corrupt, "steps that do not go together"))
        }
    }
}

/// Returns the entries of a claim, each with its lock: `found`, or those that are read now.
async fn of_claim(
    ensemble: &Ensemble,
    client: &Client,
    id: ClaimId,
    names: &[LockName],
    found: &[Item],
) -> FaultResult<Vec<(LockName, Item)>> {
    if found.len() == names.len() {
        return Ok(names.iter().cloned().zip(found.iter().cloned()).collect());
    }
    let queues = view::read_whole(ensemble, client, names).await?.queues.into_iter();
    let each = queues.flat_map(|queue| queue.items.into_iter().map(move |item| (queue.name.clone(), item)));
    Ok(each.filter(|(_, item)| item.id == id && !item.foreign).collect())
}

/// Adds the removal of an entry's nodes to `step`.
fn delete(
    ensemble: &Ensemble,
    step: &mut MultiWriter<'_>,
    name: &LockName,
    key: &Key,
    taken: Option<u32>,
) -> FaultResult<()> {
    let queue = ensemble.queue(name)?;
    for node in key.text.split('/') {
        step.add_delete(&format!("{queue}/{node}"), None)?;
    }
    if let Some(number) = taken {
        step.add_delete(&slot(&queue, number), None)?;
    }
    Ok(())
}

/// Changes the record at `path`. Its claim `waited` so many milliseconds until it held. Returns whether there was one.
async fn amend(client: &Client, path: &str, change: &Change, waited: Option<u64>) -> FaultResult<bool> {
    for _ in 0..RACES {
        let (data, stat) = match client.get_data(path).await {
            Ok(found) => found,
            Err(ZkError::NoNode) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let Some(mut note) = Note::parse(&data) else { return Ok(false) };
        match change {
            Change::Asked(by) => note.asked_by = Some(by.clone()),
            Change::Label(text) => note.record.holder.label = Some(text.clone()),
            Change::HeldFor(_) => note.waited_ms = waited,
        }
        match client.set_data(path, &note.to_bytes(), Some(stat.version)).await {
            Ok(_) => return Ok(true),
            Err(ZkError::NoNode) => return Ok(false),
            Err(ZkError::BadVersion) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Fault::new(ErrorKind::Unavailable, "others change the entry all the time"))
}
