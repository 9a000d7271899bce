//! The queues as other clients see them.

use dlock::lock::{Entry, LockName, LockStatus, Moment, Request};

use super::Mutation;
use super::queues::Queues;

impl Queues {
    /// Returns the holders and waiters of one queue, in order.
    pub(super) fn inspect(&mut self, name: &LockName, now: Moment) -> LockStatus {
        let status = self.status(name, now);
        if self.has(Mutation::InspectPurges) {
            self.entries.retain(|e| e.hold.is_some());
        }
        status
    }

    /// Returns the queues in use whose names start with `prefix`, by name.
    pub(super) fn list(&self, prefix: &str, now: Moment) -> Vec<LockStatus> {
        let mut names: Vec<&LockName> = self.entries.iter().flat_map(|e| &e.request.names).collect();
        if !self.has(Mutation::ListUnsorted) {
            names.sort();
        }
        names.dedup();
        names.retain(|name| name.as_str().starts_with(prefix));
        names.into_iter().map(|name| self.status(name, now)).collect()
    }

    /// Does the same as [`Queues::inspect`], without its mutation.
    pub(super) fn status(&self, name: &LockName, now: Moment) -> LockStatus {
        let with_clock = |i: usize| {
            let ttl = Some(self.entries[i].expires.since(now));
            Entry { ttl, ..self.entry_without_clock(i, name) }
        };
        let (holders, waiters): (Vec<usize>, _) =
            self.queue(name).into_iter().partition(|i| self.entries[*i].hold.is_some());
        LockStatus {
            name: name.clone(),
            holders: holders.into_iter().map(with_clock).collect(),
            waiters: waiters.into_iter().map(with_clock).collect(),
        }
    }

    /// Returns an entry of the queue of `name` without its remaining TTL, which changes all the time.
    pub(super) fn entry_without_clock(&self, at: usize, name: &LockName) -> Entry {
        let entry = &self.entries[at];
        let given = self.granted(at, name);
        let Request { holder, names, ancestors, .. } = &entry.request;
        let shown = if self.has(Mutation::AncestorsUnshown) { &[][..] } else { ancestors };
        let inherited = ancestors.iter().flat_map(|ancestor| &ancestor.names);
        let related = if self.has(Mutation::RelatedUnshown) {
            Vec::new()
        } else {
            names.iter().chain(inherited).cloned().collect()
        };
        Entry {
            claim: Some(entry.request.id),
            mode: Some(entry.request.mode),
            slot: given.and_then(|g| g.slot),
            token: given.map(|g| g.token),
            host: Some(holder.host.clone()),
            pid: Some(holder.pid),
            born: holder.born,
            user: Some(holder.user.clone()),
            command: Some(holder.command.clone()),
            label: holder.label.clone(),
            key: None,
            since: Some(entry.hold.as_ref().map_or(entry.arrived, |hold| hold.since)),
            ttl: None,
            ahead: entry.hold.is_none().then(|| self.ahead(at).0),
            foreign: false,
            replace: holder.replace,
            verb: holder.verb,
            ancestors: shown.iter().map(|ancestor| ancestor.claim).collect(),
            related,
        }
    }
}
