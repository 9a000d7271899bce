//! How a claim stands in its queues, and what it waits for.

use zookeeper_client::Client;

use super::fault::FaultResult;
use super::queue::Queue;
use super::shared::{Own, Shared};
use super::snapshot::Snapshot;
use super::wire::children;
use crate::lock::{ClaimId, Mode, queue};

/// What to wait for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Hint {
    /// The end of this node.
    Node(String),
    /// The waiter whose record this is has got its slot, or gone: whoever is behind it is first then.
    Turn(String),
    /// One of so many claims that hold slots, all that are ahead of this one, has gone.
    Slot(Own, u32),
    /// All claims ahead of this one have their slots.
    Ahead(Own),
    /// Fewer than so many leases in this folder.
    Room(String, usize),
}

/// What keeps a claim from holding; without hints nothing does.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Wait {
    /// How many entries are ahead of it, in the queue where most are.
    pub(super) ahead: u32,
    /// What may change that: each of these.
    pub(super) hints: Vec<Hint>,
    /// The record of the first in the queue that is waited for.
    pub(super) first: Option<String>,
}

impl Wait {
    /// Waits for `more` as well, in another queue.
    pub(super) fn add(&mut self, more: Self) {
        self.ahead = self.ahead.max(more.ahead);
        self.hints.extend(more.hints);
        self.first = self.first.take().or(more.first);
    }
}

/// How a claim stands in its queues, or in one of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Position {
    /// Nothing is ahead that must end first.
    Free,
    /// Something is, but one of its queues admits it to a slot that it has not taken.
    Partly,
    /// An own node is not there any more.
    Gone,
    /// Something is.
    Blocked(Wait),
}

impl Position {
    pub(super) fn is_free(&self) -> bool {
        *self == Self::Free
    }
}

/// How `own` stands in its queue.
pub(super) fn stand_in(own: &Own, queue: &Queue) -> Position {
    let path = |name: &str| format!("{}/{name}", own.queue);
    let Some(index) = queue.position(own.record()) else { return Position::Gone };
    let modes = queue.modes();
    if index < queue::held(&modes) {
        return Position::Free;
    }
    // The nearest of those that must end: with slots, the one right before.
    let Some(blocker) = queue.blocker(index) else { return Position::Gone };
    let ahead = u32::try_from(index).unwrap_or(u32::MAX);
    let hint = match modes[index] {
        Mode::Slots(slots) if ahead == slots.get() => Hint::Slot(own.clone(), slots.get()),
        Mode::Slots(_) => Hint::Turn(path(&blocker.record().name)),
        _ => Hint::Node(path(&blocker.watched().name)),
    };
    let first = queue.entries.first().map(|place| path(&place.record().name));
    Position::Blocked(Wait { ahead, hints: vec![hint], first })
}

/// How the claim stands, given what stands in its queues.
pub(super) fn stand(shared: &Shared, snapshots: &[Snapshot]) -> Position {
    let slots = matches!(shared.request.mode, Mode::Slots(_));
    let mut wait = Wait::default();
    let mut lacks_slot = false;
    for (own, snapshot) in shared.own().iter().zip(snapshots) {
        match stand_in(own, &snapshot.queue) {
            Position::Gone => return Position::Gone,
            Position::Free | Position::Partly => lacks_slot |= slots && own.slot.is_none(),
            Position::Blocked(more) => wait.add(more),
        }
    }
    if wait.hints.is_empty() {
        return Position::Free;
    }
    if lacks_slot {
        return Position::Partly;
    }
    if !slots {
        // Nothing can be done before all have come about: each in its turn.
        wait.hints.truncate(1);
    }
    Position::Blocked(wait)
}

/// The queue in `names`, without what an earlier attempt of the same claim left in it: that is removed.
pub(super) fn queue_of(client: &Client, id: ClaimId, own: &Own, names: &[String]) -> Queue {
    let mut queue = Queue::of(names);
    for node in queue.take_older_selves(id, own.record()) {
        // Should it fail, the next look removes it, or the end of the session does.
        drop(client.delete(&format!("{}/{}", own.queue, node.name), None));
    }
    queue
}

/// Reads the queues and says how the claim stands in them.
pub(super) async fn look(shared: &Shared, client: &Client) -> FaultResult<Position> {
    let own = shared.own();
    let mut snapshots = Vec::with_capacity(own.len());
    let listed: Vec<_> = own.iter().map(|own| children(client, &own.queue)).collect();
    for (own, listed) in own.iter().zip(listed) {
        let queue = queue_of(client, shared.request.id, own, &listed.await?);
        snapshots.push(Snapshot { queue, ..Snapshot::default() });
    }
    Ok(stand(shared, &snapshots))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::FencingToken;

    fn own(queue: &str, record: &str) -> Own {
        let nodes = vec![format!("{queue}/{record}"), format!("{queue}/other half")];
        let token = FencingToken::new(7).expect("positive");
        Own { name: "x".parse().expect("valid"), queue: queue.to_owned(), nodes, token, slot: None }
    }

    fn blocked(ahead: u32, hint: Hint, first: Option<&str>) -> Wait {
        Wait { ahead, hints: vec![hint], first: first.map(str::to_owned) }
    }

    #[test]
    fn the_first_behind_the_slots_waits_for_any_and_each_other_for_the_one_before_it() {
        let names: Vec<String> = (0..4).map(|n| format!("_c_{n:032}-slots2-lock-000000000{n}")).collect();
        let queue = Queue::of(&names);
        let stand = |n: usize| stand_in(&own("/q", &names[n]), &queue);
        let path = |n: usize| format!("/q/{}", names[n]);
        assert_eq!([stand(0), stand(1)], [Position::Free, Position::Free]);
        let third = Hint::Slot(own("/q", &names[2]), 2);
        assert_eq!(stand(2), Position::Blocked(blocked(2, third, Some(&path(0)))));
        let fourth = Hint::Turn(path(2));
        assert_eq!(stand(3), Position::Blocked(blocked(3, fourth, Some(&path(0)))));
        assert_eq!(stand_in(&own("/q", "gone"), &queue), Position::Gone);
    }

    #[test]
    fn waits_in_several_queues_are_one() {
        let (turn, room) = (Hint::Turn("/x/a".to_owned()), Hint::Room("/y/leases".to_owned(), 2));
        let mut wait = Wait::default();
        wait.add(blocked(1, room.clone(), None));
        wait.add(blocked(4, turn.clone(), Some("/x/b")));
        wait.add(Wait { ahead: 1, hints: Vec::new(), first: Some("/z/c".to_owned()) });
        assert_eq!(wait, Wait { ahead: 4, hints: vec![room, turn], first: Some("/x/b".to_owned()) });
    }
}
