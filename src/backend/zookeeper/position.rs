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

/// How a claim stands in all its queues.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Position {
    /// Nothing is ahead that must end first.
    Free,
    /// An own node is not there any more.
    Gone,
    /// Something is.
    Blocked {
        /// How many entries are ahead of it in any queue.
        ahead: u32,
        /// What may change that.
        hint: Hint,
        /// The record of the first in the queue that is waited for.
        first: Option<String>,
    },
}

impl Position {
    pub(super) fn is_free(&self) -> bool {
        *self == Self::Free
    }
}

/// How a claim stands in one queue.
struct QueuePosition {
    ahead: u32,
    /// What it waits for, and the record of the first in the queue.
    blocked: Option<(Hint, Option<String>)>,
}

/// How `own` stands in its queue; `None` if it does not stand there any more.
fn stand_in(own: &Own, queue: &Queue) -> Option<QueuePosition> {
    let path = |name: &str| format!("{}/{name}", own.queue);
    let index = queue.position(own.record())?;
    let modes = queue.modes();
    let ahead = u32::try_from(index).unwrap_or(u32::MAX);
    if index < queue::held(&modes) {
        return Some(QueuePosition { ahead, blocked: None });
    }
    let first = queue.entries.first().map(|place| path(&place.record().name));
    // The nearest of those that must end: with slots, the one right before.
    let blocker = queue.blocker(index)?;
    let hint = match modes[index] {
        Mode::Slots(slots) if ahead == slots.get() => Hint::Slot(own.clone(), slots.get()),
        Mode::Slots(_) => Hint::Turn(path(&blocker.record().name)),
        _ => Hint::Node(path(&blocker.watched().name)),
    };
    Some(QueuePosition { ahead, blocked: Some((hint, first)) })
}

/// How the claim stands, given what stands in its queues.
pub(super) fn stand(shared: &Shared, snapshots: &[Snapshot]) -> Position {
    let mut all = 0;
    let mut blocked = None;
    for (own, snapshot) in shared.own().iter().zip(snapshots) {
        match stand_in(own, &snapshot.queue) {
            None => return Position::Gone,
            Some(stand) => {
                all += stand.ahead;
                blocked = blocked.or(stand.blocked);
            }
        }
    }
    match blocked {
        None => Position::Free,
        Some((hint, first)) => Position::Blocked { ahead: all, hint, first },
    }
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
