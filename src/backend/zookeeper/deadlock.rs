//! What the search for a wait that would never end reads here: all queues.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};
use zookeeper_client::Client;

use super::ensemble::Ensemble;
use super::list::{self, NamedQueue};
use super::note::token;
use super::shared::Own;
use super::snapshot::Seen;
use crate::backend::deadlock::{self, Queued};
use crate::backend::record::Record;
use crate::lock::deadlock::Member;
use crate::lock::{ClaimId, ErrorKind, Request};
use crate::net::fault::{Fault, FaultResult};

/// Refuses `request`, whose entries are `own`, if its wait closes a cycle of waits. Only claims that came
/// before it count, so that of two which close a cycle together the later one is told.
pub(super) async fn search(
    ensemble: &Ensemble,
    client: &Client,
    request: &Request,
    own: &[Own],
) -> FaultResult<()> {
    let Some(last) = own.iter().map(|own| own.token).max() else { return Ok(()) };
    let mut queues = BTreeMap::new();
    for NamedQueue { name, entries } in list::queues(ensemble, client, "").await? {
        let earlier: Vec<Seen> =
            entries.into_iter().filter(|seen| token(&seen.stat).is_some_and(|token| token <= last)).collect();
        queues.insert(name, earlier.iter().map(queued).collect());
    }
    match deadlock::cycle(&queues, request.id) {
        None => Ok(()),
        Some(steps) => Err(Fault::new(ErrorKind::Deadlock, steps)),
    }
}

/// An entry that came no later.
fn queued(seen: &Seen) -> Queued<()> {
    let record = seen.note.as_ref().map(|note| &note.record);
    let id = record.and_then(Record::id).unwrap_or_else(|| stand_in(seen));
    let ancestors = record.map_or_else(Vec::new, Record::ancestors);
    let member = Some(Member { id, mode: seen.entry.mode(), owner: seen.owner(), ancestors });
    Queued { id, place: (), names: Vec::new(), member }
}

/// An identity for an entry whose maker gave it none that dlock knows.
fn stand_in(seen: &Seen) -> ClaimId {
    let digest = Sha256::digest(seen.record_path());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    ClaimId::from_bytes(bytes)
}
