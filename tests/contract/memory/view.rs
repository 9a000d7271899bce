//! The queues as clients see them.

use dlock::backend::record::Record;
use dlock::lock::{LockName, Mode, Moment};
use dlock::queue::store::{About, Answer, Item, Key, Note, Own, Queue};

use super::Mutation;
use super::queues::{Entry, Queues};

impl Queues {
    /// Returns the queues of `names`, to the client of `own`.
    pub(super) fn answer(&self, own: Option<&Own>, names: &[LockName], sent: Moment, now: Moment) -> Answer {
        let queues = names.iter().map(|name| self.whole(name, own, now)).collect();
        let asked = own.and_then(|own| self.entries[self.position(own.id)?].asked.clone());
        Answer { queues, note: asked.map(Note::Asked), sent, seen: self.version }
    }

    /// Returns the queues in use whose names start with `prefix`, by name.
    pub(super) fn list(&self, prefix: &str, now: Moment) -> Vec<Queue> {
        let mut names: Vec<&LockName> = self.entries.iter().flat_map(|e| &e.request.names).collect();
        if !self.has(Mutation::ListUnsorted) {
            names.sort();
        }
        names.dedup();
        names.retain(|name| name.as_str().starts_with(prefix));
        names.into_iter().map(|name| self.whole(name, None, now)).collect()
    }

    fn whole(&self, name: &LockName, own: Option<&Own>, now: Moment) -> Queue {
        let mut queue = self.queue(name);
        if let Some(own) = own {
            self.hide(&mut queue, own, name);
        }
        let all = queue.into_iter().map(|i| &self.entries[i]);
        let items = all.enumerate().map(|(at, entry)| self.item(at, entry, name, own, now)).collect();
        Queue { name: name.clone(), items }
    }

    /// Hides entries ahead of the own one, which then seems to hold.
    fn hide(&self, queue: &mut Vec<usize>, own: &Own, name: &LockName) {
        let Some(me) = self.position(own.id) else { return };
        let at = queue.iter().position(|i| *i == me);
        let request = |i: usize| &self.entries[i].request;
        let drops_first = match self.mutation {
            Some(Mutation::SlotsAdmitOneTooMany) => matches!(own.mode, Mode::Slots(_)) && at > Some(0),
            Some(Mutation::TellsHoldEarly) => own.mode == Mode::Exclusive && at == Some(1),
            _ => false,
        };
        if drops_first {
            queue.remove(0);
        }
        match self.mutation {
            Some(Mutation::TellsHoldOnFirstName) if *name != own.names[0] => queue.retain(|i| *i == me),
            Some(Mutation::SharedPassesExclusive)
                if own.mode == Mode::Shared && request(queue[0]).mode == Mode::Shared =>
            {
                queue.retain(|i| request(*i).mode == Mode::Shared);
            }
            _ => {}
        }
    }

    fn item(&self, at: usize, entry: &Entry, name: &LockName, own: Option<&Own>, now: Moment) -> Item {
        let request = &entry.request;
        let index = request.names.iter().position(|n| self.same(n, name)).unwrap_or(0);
        let record = Record::of(request, request.ttl);
        let mut about = About::of(&record, name, Some(entry.since));
        about.held_since = entry.held_since;
        about.supersede &= !self.has(Mutation::SupersedeIgnored);
        if self.has(Mutation::AncestorsUnshown) {
            about.entry.ancestors.clear();
        }
        let mixes = own.filter(|_| self.has(Mutation::MixesKinds));
        Item {
            at,
            key: Key { order: entry.order, text: request.id.to_string() },
            id: request.id,
            foreign: false,
            mode: Some(mixes.map_or(request.mode, |own| own.mode)),
            slot: entry.slots[index],
            token: Some(entry.tokens[index]),
            left: Some(entry.expires.since(now)),
            about: Some(Box::new(about)),
        }
    }
}
