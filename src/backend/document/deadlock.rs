//! What the search for a wait that would never end reads here: waiting claims of nested runs are listed in an item of their
//! own, numbered in the order in which they were listed.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::Side;
use super::arrive::Own;
use super::change::LockItem;
use super::client::Queues;
use crate::backend::deadlock::{self, Queued};
use crate::lock::{ClaimId, ErrorKind, LockName, Moment, Request};
use crate::net::fault::{Fault, FaultResult};

/// The list.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
struct Listed {
    next: u64,
    claims: BTreeMap<String, Nested>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Nested {
    number: u64,
    names: Vec<String>,
}

/// Changes the list; `change` says whether it is to be written.
async fn alter(
    queues: &Queues,
    deadline: Moment,
    mut change: impl FnMut(&mut Listed) -> bool,
) -> FaultResult<()> {
    loop {
        let item = queues.store.read_side(Side::Nested, deadline).await?;
        let (mut listed, version) = match &item {
            None => (Listed::default(), None),
            Some(item) => (parse(&item.bytes)?, Some(&item.version)),
        };
        if !change(&mut listed) {
            return Ok(());
        }
        let bytes = serde_json::to_vec(&listed).unwrap_or_default();
        if bytes.len() > queues.store.room() / 16 * 15 {
            let why = "there is no room for another nested run in the list of those that wait";
            return Err(Fault::new(ErrorKind::Full, why));
        }
        if queues.store.swap_side(Side::Nested, version, &bytes, deadline).await? {
            return Ok(());
        }
        if queues.clock.now() >= deadline {
            let why = "others changed the list of nested runs again and again until the deadline";
            return Err(Fault::unavailable(why));
        }
    }
}

fn parse(bytes: &[u8]) -> FaultResult<Listed> {
    let broken = |error| {
        Fault::new(ErrorKind::Corrupt, format!("the list of nested runs that wait cannot be read ({error})"))
    };
    serde_json::from_slice(bytes).map_err(broken)
}

/// Lists the claim `own`.
pub(super) async fn announce(queues: &Queues, own: &Own, deadline: Moment) -> FaultResult<()> {
    let names = vec![own.name.to_string()];
    let announce = |listed: &mut Listed| {
        let nested = Nested { number: listed.next, names: names.clone() };
        listed.next += 1;
        listed.claims.insert(own.request.id.to_string(), nested);
        true
    };
    alter(queues, deadline, announce).await
}

/// Takes a claim off the list.
pub(super) async fn forget(queues: &Queues, id: ClaimId, deadline: Moment) -> FaultResult<()> {
    alter(queues, deadline, |listed| listed.claims.remove(&id.to_string()).is_some()).await
}

/// The sentence about the cycle of waits that `request`, which waits and is listed, closes.
pub(super) async fn search(
    queues: &Queues,
    request: &Request,
    deadline: Moment,
) -> FaultResult<Option<String>> {
    deadlock::search(&Reading { queues, deadline, numbers: Mutex::default() }, request).await
}

struct Reading<'a> {
    queues: &'a Queues,
    deadline: Moment,
    /// Of the claims that are listed.
    numbers: Mutex<BTreeMap<ClaimId, u64>>,
}

impl Reading<'_> {
    /// A claim that is not listed comes before all: it can be part of a cycle only ahead of one that is.
    fn place(&self, id: ClaimId) -> Option<u64> {
        self.numbers.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get(&id).copied()
    }
}

#[async_trait]
impl deadlock::Queues for Reading<'_> {
    type Order = Option<u64>;
    type Fault = Fault;

    async fn nested(&self) -> FaultResult<BTreeMap<ClaimId, Vec<LockName>>> {
        let item = self.queues.store.read_side(Side::Nested, self.deadline).await?;
        let listed = item.map_or_else(|| Ok(Listed::default()), |item| parse(&item.bytes))?;
        let mut names = BTreeMap::new();
        let mut numbers = self.numbers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for (id, nested) in listed.claims {
            let Ok(id) = id.parse() else { continue };
            numbers.insert(id, nested.number);
            names.insert(id, nested.names.into_iter().filter_map(|name| LockName::new(name).ok()).collect());
        }
        Ok(names)
    }

    async fn read(&self, names: &[LockName]) -> FaultResult<Vec<Vec<Queued<Option<u64>>>>> {
        let mut queues = Vec::with_capacity(names.len());
        for name in names {
            let mut queue = Vec::new();
            if let LockItem::Queue(known) = self.queues.look(name, self.deadline).await? {
                let entries = known.document.claims.iter().filter_map(|place| {
                    let id = place.id()?;
                    Some(Queued::of(&place.about, id, self.place(id), name))
                });
                queue.extend(entries);
            }
            queues.push(queue);
        }
        Ok(queues)
    }

    async fn forget(&self, id: ClaimId) -> FaultResult<()> {
        forget(self.queues, id, self.deadline).await
    }
}
