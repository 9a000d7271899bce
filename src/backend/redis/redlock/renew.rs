//! Renewing a claim by its id: a lease that no process looks after.

use std::time::Duration;

use super::client::RedlockBackend;
use super::core::{on_queues, proposal};
use super::fan_out::{self, STRAGGLE};
use super::inspect;
use super::reply::{Position, Reply};
use super::script::RENEW;
use crate::backend::fault::FaultResult;
use crate::backend::redis::fault;
use crate::backend::redis::queues::keys_of;
use crate::backend::redis::script::millis;
use crate::lock::{ClaimId, LockName, Moment};

/// As [`crate::backend::Backend::renew`]: it holds if a majority renewed it, with one slot for each name, whose word counts. It
/// is made anew nowhere, so what a node has lost of it stays lost, and a minority that has it prolongs nothing.
pub(super) async fn renew(
    backend: &RedlockBackend,
    name: &LockName,
    id: ClaimId,
    deadline: Moment,
) -> FaultResult<bool> {
    let nodes = &backend.nodes;
    let queue = inspect::queue(nodes, &backend.naming, name, deadline).await?;
    let holds = queue.status(name).holders.iter().any(|holder| holder.claim == Some(id));
    let Some(found) = queue.entries.iter().find(|found| found.id == id).filter(|_| holds) else {
        return Ok(false);
    };
    let names = found.record.names(name);
    let keys = keys_of(&backend.naming, &names)?;
    let ttl = millis(Duration::from_millis(found.record.ttl_ms));
    let step = on_queues(&RENEW, &keys, id, proposal(), &[ttl]);
    let parse = |reply| match Reply::parse(&reply, &keys)? {
        Reply::Position(position) => Ok(position),
        Reply::Mismatch(_) | Reply::Number(_) => Err(fault::nonsense("no answer to a renewal")),
    };
    let answers = fan_out::from_all(nodes, STRAGGLE, deadline, step, parse).await?;
    let positions: Vec<&Position> = answers.iter().flatten().collect();
    let (most, without) = majority(&positions, nodes.max_ttl);
    nodes.verdict(most, without, "renewed it")
}

/// Of the nodes that are old enough to have a say: how many gave the claim the same slots, and how many have not given it
/// everything. A younger one may have forgotten what it gave.
fn majority(positions: &[&Position], max_ttl: Duration) -> (usize, usize) {
    let given = |position: &Position| -> Option<Vec<Option<u32>>> {
        let slots = position.rows.iter().map(|row| row.granted().map(|granted| granted.slot));
        slots.collect::<Option<_>>().filter(|_| position.found)
    };
    let old = positions.iter().filter(|position| position.uptime >= max_ttl);
    let given: Vec<_> = old.map(|position| given(position)).collect();
    let same = |one: &Vec<Option<u32>>| given.iter().flatten().filter(|other| *other == one).count();
    let most = given.iter().flatten().map(same).max().unwrap_or(0);
    (most, given.iter().filter(|given| given.is_none()).count())
}

#[cfg(test)]
mod tests {
    use super::super::reply::Row;
    use super::*;
    use crate::backend::redis::redlock::row;
    use crate::lock::{FencingToken, Granted};

    /// What a node of that age answers that gave `slots`; `None` if it has nothing of the claim.
    fn position(slots: Option<&[Option<u32>]>, uptime: u64) -> Position {
        let row = |slot: &Option<u32>| {
            let granted = FencingToken::new(7).map(|token| Granted { token, slot: *slot });
            let base = row::Row { granted, ..row::Row::default() };
            Row { base, score: Some(0), fence: 7, ..Row::default() }
        };
        let rows = slots.unwrap_or_default().iter().map(row).collect();
        let uptime = Duration::from_secs(uptime);
        Position { found: slots.is_some(), rows, uptime, run: String::new() }
    }

    #[test]
    fn the_same_from_nodes_with_a_say_counts() {
        let of = |all: &[Position]| majority(&all.iter().collect::<Vec<_>>(), Duration::from_secs(10));
        let has = |slot, age| position(Some(&[slot]), age);
        assert_eq!(of(&[has(None, 60), has(None, 60), position(None, 60)]), (2, 1));
        assert_eq!(of(&[has(None, 60), has(None, 9), position(None, 9)]), (1, 0), "a young one has no say");
        assert_eq!(of(&[has(Some(1), 60), has(Some(2), 60), has(Some(2), 60)]), (2, 0));
        let mut part = position(Some(&[None, None]), 60);
        part.rows[1].base.granted = None;
        assert_eq!(of(&[part]), (0, 1), "it has one of the names only");
        assert_eq!(of(&[]), (0, 0));
    }
}
