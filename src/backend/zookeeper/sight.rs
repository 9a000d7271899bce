//! What stands in the line of a name.

use zookeeper_client::{Client, Stat};

use super::line::{Line, Place};
use super::note::{self, Note};
use super::wire::{Outcome, children, data_of};
use crate::lock::{Entry, LockName, LockStatus, Mode, queue};

/// The folders of Curator's semaphore below the path of a lock.
const TICKETS: &str = "locks";
const LEASES: &str = "leases";

/// Where those who wait for a slot stand.
pub(super) fn tickets(line: &str) -> String {
    format!("{line}/{TICKETS}")
}

/// Where those who have one stand.
pub(super) fn leases(line: &str) -> String {
    format!("{line}/{LEASES}")
}

/// The line of one name, as the nodes' names tell it.
#[derive(Clone, Debug, Default)]
pub(super) struct Sight {
    /// Exclusive and shared claims.
    pub(super) line: Line,
    /// Who waits for a slot.
    pub(super) tickets: Line,
    /// Who has one.
    pub(super) leases: Line,
}

/// An entry, where its nodes are, and what its record says.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) place: Place,
    /// The path of the folder that its nodes are in.
    pub(super) folder: String,
    /// Whether it is a lease: a hold of a slot.
    pub(super) lease: bool,
    pub(super) note: Option<Note>,
    pub(super) stat: Stat,
}

impl Seen {
    pub(super) fn record_path(&self) -> String {
        format!("{}/{}", self.folder, self.place.record().name)
    }

    /// Its mode. Who has or wants a slot and says not of how many is a foreign client.
    pub(super) fn mode(&self, of_slots: Option<Mode>) -> Mode {
        let said = self.note.as_ref().and_then(|n| n.record.mode());
        said.or(of_slots).unwrap_or_else(|| self.place.mode())
    }

    fn entry(&self) -> Entry {
        let mode = self.note.as_ref().map_or_else(
            || if self.in_semaphore() { None } else { Some(self.place.mode()) },
            |n| n.record.mode(),
        );
        Entry { mode, ..note::entry(self.note.as_ref(), &self.stat) }
    }

    fn in_semaphore(&self) -> bool {
        self.folder.ends_with(&format!("/{TICKETS}")) || self.folder.ends_with(&format!("/{LEASES}"))
    }

    /// Who it belongs to, for a sentence.
    pub(super) fn owner(&self) -> String {
        self.note.as_ref().map_or_else(
            || format!("a foreign client (node {})", self.place.record().name),
            |n| n.record.holder.to_string(),
        )
    }
}

impl Sight {
    /// Reads all folders of a line in one exchange. `fresh` has the server catch up with the others first.
    pub(super) async fn read(client: &Client, path: &str, fresh: bool) -> Outcome<Self> {
        let (under, waiting, holding) = (path.to_owned(), tickets(path), leases(path));
        let sync = fresh.then(|| client.sync(path));
        let asked = (children(client, &under), children(client, &waiting), children(client, &holding));
        if let Some(sync) = sync {
            match sync.await {
                Ok(()) | Err(zookeeper_client::Error::NoNode) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let (line, tickets, leases) = (asked.0.await?, asked.1.await?, asked.2.await?);
        Ok(Self { line: Line::of(&line), tickets: Line::of(&tickets), leases: Line::of(&leases) })
    }

    /// As [`Sight::read`] of an exclusive or shared line whose children are known.
    pub(super) async fn complete(client: &Client, path: &str, listed: &[String]) -> Outcome<Self> {
        let mut sight = Self { line: Line::of(listed), ..Self::default() };
        if listed.iter().any(|name| name == TICKETS || name == LEASES) {
            let (waiting, holding) = (tickets(path), leases(path));
            let asked = (children(client, &waiting), children(client, &holding));
            sight.tickets = Line::of(&asked.0.await?);
            sight.leases = Line::of(&asked.1.await?);
        }
        Ok(sight)
    }

    /// Every entry with its record, holders of slots first; what has gone meanwhile is left out.
    pub(super) async fn entries(&self, client: &Client, path: &str) -> Outcome<Vec<Seen>> {
        let parts = [
            (&self.line, path.to_owned(), false),
            (&self.leases, leases(path), true),
            (&self.tickets, tickets(path), false),
        ];
        let mut places = Vec::new();
        for (line, folder, lease) in parts {
            places.extend(line.places.iter().map(|place| (place.clone(), folder.clone(), lease)));
        }
        let paths: Vec<String> =
            places.iter().map(|(place, folder, _)| format!("{folder}/{}", place.record().name)).collect();
        let data = data_of(client, &paths).await?;
        let seen = places.into_iter().zip(data).filter_map(|((place, folder, lease), data)| {
            let (data, stat) = data?;
            Some(Seen { place, folder, lease, note: Note::parse(&data), stat })
        });
        Ok(seen.collect())
    }
}

/// The modes of a line's entries, in their order.
pub(super) fn modes(entries: &[Seen]) -> Vec<Mode> {
    let of_slots = entries
        .iter()
        .filter_map(|seen| seen.note.as_ref()?.record.mode())
        .find(|mode| matches!(mode, Mode::Slots(_)));
    entries.iter().map(|seen| seen.mode(of_slots.filter(|_| seen.in_semaphore()))).collect()
}

/// What others are shown of the line of `name`.
pub(super) fn status(name: &LockName, entries: &[Seen]) -> LockStatus {
    let held = queue::held(&modes(entries));
    let mut status = LockStatus { name: name.clone(), holders: Vec::new(), waiters: Vec::new() };
    for (index, seen) in entries.iter().enumerate() {
        // A slot is taken by a lease, whatever the order of arrival; nothing else says so.
        let holds = if seen.in_semaphore() { seen.lease } else { index < held };
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
