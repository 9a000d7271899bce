//! What stands in the queue of a name.

use zookeeper_client::{Client, Stat};

use super::fault::FaultResult;
use super::node::is_own_ticket;
use super::note::{self, Note};
use super::queue::{Queue, QueueEntry};
use super::wire::{children, data_of};
use crate::backend::foreign;
use crate::lock::{ClaimId, Entry, LockName, LockStatus, Mode, queue};

/// What the number of a slot follows in the name of its node.
pub(super) const SLOT: &str = "dlock-slot-";
/// The folders of Curator's semaphore below the path of a lock.
const TICKETS: &str = "locks";
const LEASES: &str = "leases";

/// Where those stand who wait for a lease of Curator's semaphore.
pub(super) fn tickets(queue: &str) -> String {
    format!("{queue}/{TICKETS}")
}

/// Where those stand who have one, and the slots of dlock's claims.
pub(super) fn leases(queue: &str) -> String {
    format!("{queue}/{LEASES}")
}

/// The path of the node for slot `number` of the queue at `queue`.
pub(super) fn slot_path(queue: &str, number: u32) -> String {
    format!("{}/{SLOT}{number}", leases(queue))
}

/// The queue of one name, as the nodes' names tell it.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    /// All claims of dlock, and foreign mutexes and read/write locks.
    pub(super) queue: Queue,
    /// Who waits for a lease of Curator's semaphore.
    pub(super) tickets: Queue,
    /// Which foreign clients have one.
    pub(super) leases: Queue,
}

/// What the folder of an entry's nodes is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Folder {
    /// The queue of dlock's claims and of foreign mutexes and read/write locks.
    Queue,
    /// Those who hold a foreign semaphore.
    Leases,
    /// Those who wait for one.
    Tickets,
}

/// An entry, where its nodes are, and what its record says.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) place: QueueEntry,
    /// The path of the folder that its nodes are in.
    pub(super) folder: String,
    /// What that folder is for.
    pub(super) kind: Folder,
    pub(super) note: Option<Note>,
    pub(super) stat: Stat,
}

impl Seen {
    pub(super) fn record_path(&self) -> String {
        format!("{}/{}", self.folder, self.place.record().name)
    }

    /// Its mode. A foreign client of a semaphore does not say of how many slots.
    pub(super) fn mode(&self, of_slots: Option<Mode>) -> Mode {
        of_slots.filter(|_| self.in_semaphore()).unwrap_or_else(|| self.place.mode())
    }

    fn entry(&self) -> Entry {
        let mode = if self.in_semaphore() { None } else { Some(self.place.mode()) };
        let entry = note::entry(&self.record_path(), self.note.as_ref(), &self.stat);
        Entry { mode, claim: self.foreign_identity().or(entry.claim), ..entry }
    }

    /// What the entry is shown as if a foreign client made it: no other node is created by that transaction.
    pub(super) fn foreign_identity(&self) -> Option<ClaimId> {
        let named = || foreign::identity([self.record_path().as_bytes(), &self.stat.czxid.to_be_bytes()]);
        self.note.is_none().then(named)
    }

    /// Whether it is a foreign client's entry in a semaphore.
    pub(super) fn in_semaphore(&self) -> bool {
        self.kind != Folder::Queue
    }

    /// Who it belongs to, for a sentence.
    pub(super) fn owner(&self) -> String {
        self.note.as_ref().map_or_else(
            || foreign::owner(&note::called(&self.record_path())),
            |n| n.record.holder.to_string(),
        )
    }
}

impl Snapshot {
    /// Reads all folders of a queue in one exchange. `fresh` has the server catch up with the others first.
    pub(super) async fn read(client: &Client, path: &str, fresh: bool) -> FaultResult<Self> {
        let (under, waiting, holding) = (path.to_owned(), tickets(path), leases(path));
        let sync = fresh.then(|| client.sync(path));
        let asked = (children(client, &under), children(client, &waiting), children(client, &holding));
        if let Some(sync) = sync {
            match sync.await {
                Ok(()) | Err(zookeeper_client::Error::NoNode) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let (queue, tickets, leases) = (asked.0.await?, asked.1.await?, asked.2.await?);
        Ok(Self { queue: Queue::of(&queue), tickets: Queue::of(&tickets), leases: Queue::of(&leases) })
    }

    /// As [`Snapshot::read`] of an exclusive or shared queue whose children are known.
    pub(super) async fn complete(client: &Client, path: &str, listed: &[String]) -> FaultResult<Self> {
        let mut snapshot = Self { queue: Queue::of(listed), ..Self::default() };
        if listed.iter().any(|name| name == TICKETS || name == LEASES) {
            let (waiting, holding) = (tickets(path), leases(path));
            let asked = (children(client, &waiting), children(client, &holding));
            snapshot.tickets = Queue::of(&asked.0.await?);
            snapshot.leases = Queue::of(&asked.1.await?);
        }
        Ok(snapshot)
    }

    /// The foreign clients that wait for a lease of a semaphore.
    pub(super) fn foreign_tickets(&self) -> impl Iterator<Item = &QueueEntry> {
        self.tickets.entries.iter().filter(|place| !is_own_ticket(&place.record().name))
    }

    /// Every entry with its record: foreign leases, the queue, foreign clients that wait for a lease. What has gone
    /// meanwhile is left out.
    pub(super) async fn entries(&self, client: &Client, path: &str) -> FaultResult<Vec<Seen>> {
        let mut places = Vec::new();
        places.extend(self.leases.entries.iter().map(|place| (place.clone(), leases(path), Folder::Leases)));
        places.extend(self.queue.entries.iter().map(|place| (place.clone(), path.to_owned(), Folder::Queue)));
        places.extend(self.foreign_tickets().map(|place| (place.clone(), tickets(path), Folder::Tickets)));
        let paths: Vec<String> =
            places.iter().map(|(place, folder, _)| format!("{folder}/{}", place.record().name)).collect();
        let data = data_of(client, &paths).await?;
        let seen = places.into_iter().zip(data).filter_map(|((place, folder, kind), data)| {
            let (data, stat) = data?;
            Some(Seen { place, folder, kind, note: Note::parse(&data), stat })
        });
        Ok(seen.collect())
    }
}

/// The modes of a queue's entries, in their order.
pub(super) fn modes(entries: &[Seen]) -> Vec<Mode> {
    let of_slots = entries.iter().map(|seen| seen.place.mode()).find(|mode| matches!(mode, Mode::Slots(_)));
    entries.iter().map(|seen| seen.mode(of_slots)).collect()
}

/// What others are shown of the queue of `name`.
pub(super) fn status(name: &LockName, entries: &[Seen]) -> LockStatus {
    let queue: Vec<Mode> =
        entries.iter().filter(|seen| !seen.in_semaphore()).map(|s| s.place.mode()).collect();
    let mut admitted = queue::held(&queue);
    let mut status = LockStatus::empty(name);
    for (index, seen) in entries.iter().enumerate() {
        let holds = if seen.in_semaphore() {
            seen.kind == Folder::Leases
        } else {
            let is_admitted = admitted > 0;
            admitted = admitted.saturating_sub(1);
            // With foreign clients about, being admitted is not enough.
            is_admitted && seen.note.as_ref().is_none_or(|note| !note.semaphore || note.slot.is_some())
        };
        let entry = seen.entry();
        if holds {
            status.holders.push(entry);
        } else {
            let ahead = u32::try_from(index).ok();
            status.waiters.push(Entry { ahead, token: None, slot: None, ..entry });
        }
    }
    status
}
