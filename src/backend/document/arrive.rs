//! Entering a queue.

use std::time::Duration;

use super::Item;
use super::change::{Known, LockItem, understand, wall_clock};
use super::client::Queues;
use super::queue::{Document, EMPTY_LIFE, Mismatch};
use super::view::Note;
use super::watch::MARGIN;
use crate::backend::record::Record;
use crate::lock::{ErrorKind, LockName, Moment, Request};
use crate::net::fault::{Fault, FaultResult};

/// How long the note on the end of a claim is kept.
pub(super) const NOTED: Duration = Duration::from_secs(120);

/// How far the store's clock may lag.
const CLOCK: Duration = Duration::from_secs(2);

/// The result of an attempt to enter.
pub(super) enum Entered {
    /// The claim was in the queue at the moment at which its replacement was sent.
    In(Option<Known>, Moment),
    /// Another program's item is in the way.
    Behind(Item),
}

/// One claim on one lock.
#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) name: LockName,
    pub(super) request: Request,
    pub(super) ttl: Duration,
}

impl Own {
    /// Errors: `Invalid` for several names, since no step changes several documents.
    pub(super) fn new(queues: &Queues, request: &Request) -> FaultResult<Self> {
        let [name] = request.names.as_slice() else {
            let why = "it cannot acquire several locks in one step; use one --name";
            return Err(Fault::new(ErrorKind::Invalid, why));
        };
        let ttl = request.ttl.min(queues.store.longest_ttl());
        Ok(Self { name: name.clone(), request: request.clone(), ttl })
    }
}

/// Tries to enter by `deadline`.
pub(super) async fn attempt(queues: &Queues, own: &Own, deadline: Moment) -> FaultResult<Entered> {
    let (store, id) = (&queues.store, own.request.id);
    let empty = Document::empty(&own.name, id).to_bytes();
    loop {
        // Every claim in the item that is read here drew its number before this one does.
        let arrival = store.arrive(&own.name, &empty, EMPTY_LIFE, deadline).await?;
        let mut known = match understand(Some(arrival.item)) {
            LockItem::Queue(known) => known,
            LockItem::Foreign(item) => return Ok(Entered::Behind(item)),
            LockItem::Nothing => continue,
        };
        let highest = known.document.highest_token();
        let number = match arrival.number {
            // The store has dropped the counter, but not the queue.
            number if number <= highest => store.number(&own.name, highest, deadline).await?,
            number => number,
        };
        let others_hold =
            known.document.claims.iter().any(|place| place.held.is_some() && place.id() != Some(id));
        let document = &mut known.document;
        // The time is read after the queue, so the noted time is not before the observation.
        if others_hold && let Ok(now) = store.time(deadline).await {
            for dead in document.observe(id, now, MARGIN + CLOCK) {
                document.remove(dead, wall_clock());
            }
        }
        let superseded =
            document.enter(&own.request, Record::of(&own.request, own.ttl), number, wall_clock());
        let superseded = superseded.map_err(|Mismatch(why)| Fault::new(ErrorKind::Mismatch, why))?;
        let (size, room) = (document.to_bytes().len(), store.room());
        if size > room / 16 * 15 {
            let waiting = document.claims.len() - 1;
            let why = format!(
                "there is no room for another claim: {waiting} claims take {size} of the {room} bytes that an item may have"
            );
            return Err(Fault::new(ErrorKind::Full, why));
        }
        for older in superseded {
            let note = Note::new("superseded", &own.request.holder).to_bytes();
            store.write_note(&own.name, older, &note, NOTED, deadline).await?;
        }
        let sent = queues.clock.now();
        let replaced = queues.put(&own.name, &known.version, &known.document, deadline).await?;
        if replaced.done {
            let after = match understand(replaced.item) {
                LockItem::Queue(after) if after.document.find(id).is_some() => Some(after),
                _ => None,
            };
            return Ok(Entered::In(after, sent));
        }
        if queues.clock.now() >= deadline {
            return Err(Fault::unavailable("others changed the queue again and again until the deadline"));
        }
    }
}
