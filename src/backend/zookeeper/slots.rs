//! The slot of a claim at the front of its queue.
//!
//! The slot is in the claim's record. Slots are taken in the order of the queue: a claim waits until those ahead of it
//! have theirs, and takes the lowest free number. So no two live claims have the same slot, and the tokens of each
//! slot's holders increase, because they are those of the entries. A claim of several names takes the slot of each name
//! as soon as that queue admits it. Otherwise it would block claims behind it although a slot is free.

use std::time::Duration;

use zookeeper_client::{Client, Error as ZkError, EventType};

use super::note::Note;
use super::position::{Hint, Turn, Wait, stand_in};
use super::queue::QueueNodes;
use super::shared::{Own, Shared};
use crate::lock::ErrorKind;
use crate::net::fault::{Fault, FaultResult};

/// The time for the claims ahead to take their slots, at most, and as a part of the ttl. They need an exchange or two,
/// so a claim that asks only once does not count as waiting meanwhile.
const PATIENCE: (Duration, u32) = (Duration::from_millis(500), 12);

/// The result of an attempt.
enum Attempt {
    Taken(u32),
    /// The claim ahead with this record has no slot yet.
    Late(String),
    Gone,
}

/// Takes a slot on each name with a queue that admits the claim. Returns the position afterwards.
pub(super) async fn take(
    shared: &Shared,
    client: &Client,
    queues: &[QueueNodes],
    slots: u32,
) -> FaultResult<Turn> {
    let patience = PATIENCE.0.min(shared.request.ttl / PATIENCE.1);
    let given_up_at = shared.ensemble.clock.now() + patience;
    loop {
        let (mut wait, mut late) = (Wait::default(), None);
        for (own, queue) in shared.own().iter().zip(queues).filter(|(own, _)| own.slot.is_none()) {
            match stand_in(own, queue) {
                Turn::Free => match take_one(client, own, queue, slots).await? {
                    Attempt::Taken(number) => shared.set_slot(&own.queue, number),
                    Attempt::Late(record) => late = Some(record),
                    Attempt::Gone => return Ok(Turn::Gone),
                },
                Turn::Blocked(more) => wait.add(more),
                Turn::Gone => return Ok(Turn::Gone),
            }
        }
        match late {
            None if wait.hints.is_empty() => return Ok(Turn::Free),
            None => return Ok(Turn::Blocked(wait)),
            Some(record) if wait.hints.is_empty() && shared.ensemble.clock.now() < given_up_at => {
                tokio::select! {
                    come = slot_or_end(client, &record) => come?,
                    () = shared.ensemble.clock.sleep_until(given_up_at) => {}
                }
            }
            Some(record) => {
                wait.add(Wait { ahead: 1, hints: vec![Hint::Slot(record)], first: None });
                return Ok(Turn::Blocked(wait));
            }
        }
    }
}

/// Takes a slot for `own`, which its queue admits.
async fn take_one(client: &Client, own: &Own, queue: &QueueNodes, slots: u32) -> FaultResult<Attempt> {
    let index = queue.position(own.record()).unwrap_or_default();
    loop {
        let ahead: Vec<String> = queue.entries[..index]
            .iter()
            .map(|entry| format!("{}/{}", own.queue, entry.record().name))
            .collect();
        let asked: Vec<_> = ahead.iter().chain([&own.nodes[0]]).map(|path| client.get_data(path)).collect();
        let mut found = Vec::with_capacity(asked.len());
        for answer in asked {
            found.push(match answer.await {
                Ok((data, stat)) => Some((Note::parse(&data), stat.version)),
                Err(ZkError::NoNode) => None,
                Err(error) => return Err(error.into()),
            });
        }
        // A note that cannot be parsed was overwritten by another program, which ends the claim.
        let Some((Some(note), version)) = found.pop().flatten() else { return Ok(Attempt::Gone) };
        if let Some(number) = note.slot {
            // Taken by an earlier attempt with a lost answer.
            return Ok(Attempt::Taken(number));
        }
        let mut taken = Vec::with_capacity(index);
        for (path, note) in ahead.iter().zip(found).rev().filter_map(|(path, one)| Some((path, one?.0))) {
            match note.and_then(|note| note.slot) {
                Some(number) => taken.push(number),
                None => return Ok(Attempt::Late(path.clone())),
            }
        }
        let number = (1..=slots).find(|number| !taken.contains(number));
        let Some(number) = number else {
            return Err(Fault::new(ErrorKind::Corrupt, "more entries have slots than there are"));
        };
        let note = Note { slot: Some(number), ..note };
        match client.set_data(&own.nodes[0], &note.to_bytes(), Some(version)).await {
            Ok(_) => return Ok(Attempt::Taken(number)),
            Err(ZkError::NoNode) => return Ok(Attempt::Gone),
            Err(ZkError::BadVersion) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Completes when the claim with the record at `path` has its slot or is gone.
pub(super) async fn slot_or_end(client: &Client, path: &str) -> FaultResult<()> {
    loop {
        match client.get_and_watch_data(path).await {
            Ok((data, ..)) if Note::parse(&data).is_some_and(|note| note.slot.is_some()) => return Ok(()),
            Ok((.., watcher)) => {
                if watcher.changed().await.event_type != EventType::NodeDataChanged {
                    return Ok(());
                }
            }
            Err(ZkError::NoNode) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}
