//! The search for a wait that would never end.

use sha2::{Digest, Sha256};
use zookeeper_client::Client;

use super::list::{self, Found};
use super::note::token;
use super::shared::Own;
use super::sight::{Seen, modes};
use super::wire::{Door, Outcome, Trouble};
use crate::lock::deadlock::{Graph, Member};
use crate::lock::{ClaimId, ErrorKind, Mode, Request};

/// Refuses `request`, whose entries are `own`, if its wait closes a cycle of waits. Only claims that came
/// before it count, so that of two which close a cycle together the later one is told.
pub(super) async fn search(door: &Door, client: &Client, request: &Request, own: &[Own]) -> Outcome<()> {
    let Some(last) = own.iter().map(|own| own.token).max() else { return Ok(()) };
    let mut graph = Graph::default();
    for Found { name, entries } in list::lines(door, client, "").await? {
        let earlier: Vec<Seen> =
            entries.into_iter().filter(|seen| token(&seen.stat).is_some_and(|token| token <= last)).collect();
        let modes: Vec<Mode> = modes(&earlier);
        graph.add(&name, earlier.iter().zip(modes).map(|(seen, mode)| member(seen, mode)).collect());
    }
    match graph.cycle(request.id) {
        None => Ok(()),
        Some(steps) => Err(Trouble::Refusal(ErrorKind::Deadlock, format!("it would never end: {steps}"))),
    }
}

fn member(seen: &Seen, mode: Mode) -> Member {
    let record = seen.note.as_ref().map(|note| &note.record);
    Member {
        id: record.and_then(crate::backend::record::Record::id).unwrap_or_else(|| stand_in(seen)),
        mode,
        owner: seen.owner(),
        ancestors: record.map_or_else(Vec::new, crate::backend::record::Record::ancestors),
    }
}

/// An identity for an entry whose maker gave it none that dlock knows.
fn stand_in(seen: &Seen) -> ClaimId {
    let digest = Sha256::digest(seen.record_path());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    ClaimId::from_bytes(bytes)
}
