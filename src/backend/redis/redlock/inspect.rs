//! Who holds, as the nodes say together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::keys::{ABOUT, Keys};
use super::nodes::{Node, Nodes, STRAGGLE, answered};
use crate::backend::record::{Record, granted, instant, with_details};
use crate::backend::redis::dial::{text, value_of};
use crate::backend::redis::fault;
use crate::backend::redis::keys::Naming;
use crate::backend::redis::queues::{QUEUES_AT_ONCE, scan};
use crate::backend::redis::row::{foreign_entry, integer, life};
use crate::lock::{ClaimId, Entry, LockName, LockStatus, Moment};
use crate::net::fault::FaultResult;

/// Those who hold each of the locks with these keys: what not even all the nodes that have not answered could make a majority is
/// not shown.
async fn of_all(nodes: &Arc<Nodes>, keys: &[Keys], deadline: Moment) -> FaultResult<Vec<Vec<Entry>>> {
    let steps = keys.iter().map(Keys::inspect).collect();
    let replies = nodes.replies(deadline, steps).await?;
    let holders = |(n, keys): (usize, &Keys)| {
        let of_this = replies.iter().flatten().filter_map(|replies| replies.get(n));
        let said = of_this.map(|reply| read(reply, &keys.lock)).collect::<FaultResult<Vec<_>>>()?;
        Ok(merge(said, nodes))
    };
    keys.iter().enumerate().map(holders).collect()
}

pub(super) async fn status(
    nodes: &Arc<Nodes>,
    naming: &Naming,
    name: &LockName,
    deadline: Moment,
) -> FaultResult<LockStatus> {
    let holders = of_all(nodes, &[Keys::of(naming, name)?], deadline).await?.remove(0);
    Ok(LockStatus::of(name, holders, Vec::new()))
}

/// The locks that are held whose names start with `prefix`.
pub(super) async fn list(
    nodes: &Arc<Nodes>,
    naming: &Naming,
    prefix: &str,
    deadline: Moment,
) -> FaultResult<Vec<LockStatus>> {
    let ask = |_, node: Arc<Node>| {
        let naming = naming.clone();
        let name_of = |naming: &Naming, key: &str| naming.name_of_side(key, ABOUT);
        async move {
            scan(&node.service, &naming, None, &naming.sides(&format!("{ABOUT}*")), name_of, deadline).await
        }
    };
    let scans = nodes.each(STRAGGLE, deadline, ask, |found| answered(found) >= nodes.majority()).await;
    nodes.refuse_too_few(&scans)?;
    let names: BTreeSet<LockName> = scans.into_iter().flatten().flatten().flatten().collect();
    let names: Vec<LockName> = names.into_iter().filter(|name| name.as_str().starts_with(prefix)).collect();
    let mut found = Vec::new();
    for some in names.chunks(QUEUES_AT_ONCE) {
        let keys = some.iter().map(|name| Keys::of(naming, name)).collect::<FaultResult<Vec<_>>>()?;
        for (name, holders) in some.iter().zip(of_all(nodes, &keys, deadline).await?) {
            found.push(LockStatus::of(name, holders, Vec::new()));
        }
    }
    found.retain(|status| !status.is_empty());
    Ok(found)
}

/// What one node says of the holds of `lock`.
fn read(reply: &Value, lock: &str) -> FaultResult<Vec<Entry>> {
    let Value::Array(holders) = reply else { return Err(fault::nonsense("no holders")) };
    let holder = |reply: &Value| {
        let Value::Array(parts) = reply else { return Err(fault::nonsense("no holder")) };
        let at = |n: usize| parts.get(n).and_then(text);
        let value = parts.get(1).and_then(value_of).ok_or_else(|| fault::nonsense("no value"))?;
        let left = parts.get(2).and_then(life);
        let Some(record) = Record::parse(value.as_bytes()) else {
            let id = at(6).and_then(|id| id.parse().ok());
            return Ok(foreign_entry(lock, id, left));
        };
        let slot =
            parts.first().and_then(integer).and_then(|slot| slot.try_into().ok()).filter(|slot| *slot > 0);
        let since = at(3).and_then(|since| instant(&since));
        let entry = with_details(record.entry(), at(5), granted(at(4).as_deref(), None), since, left);
        Ok(Entry { slot, ..entry })
    };
    holders.iter().map(holder).collect()
}

/// What the nodes that answered say together.
fn merge(nodes_said: Vec<Vec<Entry>>, nodes: &Nodes) -> Vec<Entry> {
    let silent = nodes.all.len() - nodes_said.len();
    let mut all: BTreeMap<(Option<u32>, Option<ClaimId>), Vec<Entry>> = BTreeMap::new();
    for said in nodes_said.into_iter().flatten() {
        all.entry((said.slot, said.claim)).or_default().push(said);
    }
    let may_hold = |said: &Vec<Entry>| said.len() + silent >= nodes.majority();
    all.into_values().filter(may_hold).map(together).collect()
}

/// What most nodes say: one that was away when something was published, or that gave a token too high, says something else.
fn together(mut said: Vec<Entry>) -> Entry {
    let token = most(said.iter().map(|one| one.token));
    let label = most(said.iter().map(|one| one.label.clone()));
    let since = said.iter().filter_map(|one| one.since).min();
    let mut lives: Vec<Option<Duration>> = said.iter().map(|one| one.ttl).collect();
    lives.sort_by(|a, b| b.cmp(a));
    let ttl = lives.get(lives.len() / 2).copied().flatten();
    Entry { token, label, since, ttl, ..said.swap_remove(0) }
}

/// What is there most often.
fn most<T: Ord + Default>(all: impl Iterator<Item = T>) -> T {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    all.for_each(|one| *counts.entry(one).or_default() += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(one, _)| one).unwrap_or_default()
}
