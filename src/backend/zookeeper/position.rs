//! The position of a claim in its queues, and the events that it waits for.

use zookeeper_client::Client;

use super::queue::QueueNodes;
use super::shared::{Own, Shared};
use super::wire::children;
use crate::lock::{ClaimId, Mode, queue};
use crate::net::fault::FaultResult;

/// An event to wait for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Hint {
    /// The end of this node.
    Node(String),
    /// The claim with this record gets its slot or is gone.
    Slot(String),
}

/// The reasons why a claim waits; without hints there are none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Wait {
    /// The number of entries ahead of it, in the queue with the most.
    pub(super) ahead: u32,
    /// The events that may change that, each by itself.
    pub(super) hints: Vec<Hint>,
    /// The record of the first entry in the blocking queue.
    pub(super) first: Option<String>,
}

impl Wait {
    /// Adds the wait in another queue.
    pub(super) fn add(&mut self, more: Self) {
        self.ahead = self.ahead.max(more.ahead);
        self.hints.extend(more.hints);
        self.first = self.first.take().or(more.first);
    }
}

/// The position of a claim in its queues, or in one of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// No entry ahead must end first.
    Free,
    /// A node of the claim is gone.
    Gone,
    /// An entry ahead must end first.
    Blocked(Wait),
}

/// Returns the position of `own` in its queue.
pub(super) fn stand_in(own: &Own, queue: &QueueNodes) -> Turn {
    let Some(index) = queue.position(own.record()) else { return Turn::Gone };
    let modes = queue.modes();
    if index < queue::held(&modes) {
        return Turn::Free;
    }
    let path = |name: &str| format!("{}/{name}", own.queue);
    let ahead = &queue.entries[..index];
    let odd = ahead.iter().rev().find(|entry| entry.mode() != modes[index]);
    let hints = match (modes[index], odd) {
        // The first waiter behind the slots waits for any of the holders. Each other waiter waits for its predecessor.
        (Mode::Slots(slots), None) if u32::try_from(index) != Ok(slots.get()) => {
            ahead.last().map(|before| Hint::Slot(path(&before.record().name))).into_iter().collect()
        }
        (Mode::Slots(_), None) => ahead.iter().map(|entry| Hint::Node(path(&entry.watched().name))).collect(),
        (Mode::Slots(_), Some(other)) => vec![Hint::Node(path(&other.watched().name))],
        // The nearest entry that must end.
        _ => {
            let blocker = queue::blockers(&modes, index).last().map(|at| &ahead[*at]);
            blocker.map(|entry| Hint::Node(path(&entry.watched().name))).into_iter().collect()
        }
    };
    let first = ahead.first().map(|entry| path(&entry.record().name));
    Turn::Blocked(Wait { ahead: u32::try_from(index).unwrap_or(u32::MAX), hints, first })
}

/// Returns the position of an exclusive or shared claim, given its queues.
pub(super) fn stand(shared: &Shared, queues: &[QueueNodes]) -> Turn {
    let mut wait = Wait::default();
    for (own, queue) in shared.own().iter().zip(queues) {
        match stand_in(own, queue) {
            Turn::Gone => return Turn::Gone,
            Turn::Free => {}
            Turn::Blocked(more) => wait.add(more),
        }
    }
    if wait.hints.is_empty() {
        return Turn::Free;
    }
    // All must happen before the claim can hold, so it waits for them one by one.
    wait.hints.truncate(1);
    Turn::Blocked(wait)
}

/// Returns the queue of the nodes `names`, and removes nodes that an earlier attempt of the same claim left in it.
pub(super) fn queue_of(client: &Client, id: ClaimId, own: &Own, names: &[String]) -> QueueNodes {
    let mut queue = QueueNodes::of(names);
    for node in queue.take_older_selves(id, own.record()) {
        // If this fails, the next read removes it, or the end of the session does.
        drop(client.delete(&format!("{}/{}", own.queue, node.name), None));
    }
    queue
}

/// Reads the queues of the claim.
pub(super) async fn read(shared: &Shared, client: &Client) -> FaultResult<Vec<QueueNodes>> {
    let own = shared.own();
    let mut queues = Vec::with_capacity(own.len());
    let listed: Vec<_> = own.iter().map(|own| children(client, &own.queue)).collect();
    for (own, listed) in own.iter().zip(listed) {
        queues.push(queue_of(client, shared.request.id, own, &listed.await?));
    }
    Ok(queues)
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

    fn blocked(ahead: u32, hints: Vec<Hint>, first: &str) -> Turn {
        Turn::Blocked(Wait { ahead, hints, first: Some(first.to_owned()) })
    }

    #[test]
    fn first_waiter_watches_all_slots_and_others_their_predecessor() {
        let names: Vec<String> = (0..4).map(|n| format!("_c_{n:032}-slots2-lock-000000000{n}")).collect();
        let queue = QueueNodes::of(&names);
        let stand = |n: usize| stand_in(&own("/q", &names[n]), &queue);
        let path = |n: usize| format!("/q/{}", names[n]);
        assert_eq!([stand(0), stand(1)], [Turn::Free, Turn::Free]);
        assert_eq!(stand(2), blocked(2, vec![Hint::Node(path(0)), Hint::Node(path(1))], &path(0)));
        assert_eq!(stand(3), blocked(3, vec![Hint::Slot(path(2))], &path(0)));
        assert_eq!(stand_in(&own("/q", "gone"), &queue), Turn::Gone);
    }

    #[test]
    fn a_foreign_mutex_among_slots_is_waited_for() {
        let names = [
            format!("_c_{:032}-slots2-lock-0000000001", 1),
            "_c_foreign-lock-0000000002".to_owned(),
            format!("_c_{:032}-slots2-lock-0000000003", 3),
        ];
        let queue = QueueNodes::of(&names);
        let path = |n: usize| format!("/q/{}", names[n]);
        assert_eq!(stand_in(&own("/q", &names[0]), &queue), Turn::Free);
        let last = stand_in(&own("/q", &names[2]), &queue);
        assert_eq!(last, blocked(2, vec![Hint::Node(path(1))], &path(0)));
    }

    #[test]
    fn waits_in_several_queues_are_one() {
        let hint = |path: &str| Hint::Node(path.to_owned());
        let one = |ahead, path: &str| Wait { ahead, hints: vec![hint(path)], first: Some(path.to_owned()) };
        let mut wait = one(1, "/x/a");
        wait.add(one(4, "/y/b"));
        assert_eq!(
            wait,
            Wait { ahead: 4, hints: vec![hint("/x/a"), hint("/y/b")], first: Some("/x/a".to_owned()) }
        );
    }
}
