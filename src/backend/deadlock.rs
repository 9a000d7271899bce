//! The search for a wait that would never end, over what a service reads.
//!
//! Every cycle of waits goes through claims that run inside others. So the queues that matter are the own ones, those of
//! claims inside others, and those of whoever stands in them with several names. Whoever enters last sees all the
//! others; one that sees a cycle which a later claim closes leaves it to that one.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;

use super::record::Record;
use crate::lock::deadlock::{Graph, Member};
use crate::lock::{ClaimId, ErrorKind, LockName, Request};
use crate::net::fault::{Fault, FaultResult};

/// A living entry of a queue.
#[derive(Debug)]
pub struct Queued<P> {
    /// Its claim.
    pub id: ClaimId,
    /// When it arrived, comparable with the entries of other queues. What is equal counts as no later.
    pub place: P,
    /// All names of its claim, if it has several.
    pub names: Vec<LockName>,
    /// What it waits for and what waits inside it; `None` if it does not say.
    pub member: Option<Member>,
}

impl<P> Queued<P> {
    /// The entry of the claim `id` in the queue of `name`, of which `record` tells.
    pub fn of(record: &Record, id: ClaimId, place: P, name: &LockName) -> Self {
        let owner = record.holder.to_string();
        let member = |mode| Member { id, mode, owner, ancestors: record.ancestors() };
        Self { id, place, names: record.names(name), member: record.mode().map(member) }
    }
}

/// What a service reads for the search. The deadline is that of whoever made it.
#[async_trait]
pub trait Queues: Sync {
    /// The order of arrival.
    type Order: Ord + Send + Sync;
    /// Why something cannot be read.
    type Fault: Send + Sync + Clone + Into<Fault>;

    /// The claims that run inside others, with their names.
    async fn nested(&self) -> Result<BTreeMap<ClaimId, Vec<LockName>>, Self::Fault>;

    /// The queues of `names`, in their order.
    async fn read(&self, names: &[LockName]) -> Result<Vec<Vec<Queued<Self::Order>>>, Self::Fault>;

    /// Takes a claim that stands in none of its queues off those that run inside others.
    async fn forget(&self, id: ClaimId) -> Result<(), Self::Fault>;
}

/// The sentence about the cycle of waits that `request`, which waits, closes.
///
/// Of what this user may not read, or nobody can, cannot be told whether it belongs to a cycle: the search goes on without it.
///
/// Errors: those of reading that are transient. Dropping the future leaves nothing behind.
pub async fn search<Q: Queues>(service: &Q, request: &Request) -> Result<Option<String>, Q::Fault> {
    let nested = unless_refused(service.nested().await)?.unwrap_or_default();
    let mut queues: BTreeMap<LockName, Vec<Queued<Q::Order>>> = BTreeMap::new();
    let mut refused: BTreeSet<LockName> = BTreeSet::new();
    let mut unread: BTreeSet<LockName> = request.names.iter().cloned().collect();
    unread.extend(nested.values().flatten().cloned());
    while !unread.is_empty() {
        let names: Vec<LockName> = std::mem::take(&mut unread).into_iter().collect();
        let read = read_what_can_be(service, &names).await?;
        unread.extend(read.iter().flatten().flatten().flat_map(|queued| &queued.names).cloned());
        refused.extend(
            names.iter().zip(&read).filter(|(_, queue)| queue.is_none()).map(|(name, _)| name.clone()),
        );
        queues.extend(names.into_iter().zip(read).filter_map(|(name, queue)| Some((name, queue?))));
        unread.retain(|name| !queues.contains_key(name) && !refused.contains(name));
    }
    for (id, names) in &nested {
        let may_stand = |name: &LockName| {
            refused.contains(name) || queues.get(name).is_some_and(|queue| queue.iter().any(|q| q.id == *id))
        };
        if !names.iter().any(may_stand) {
            unless_refused(service.forget(*id).await)?;
        }
    }
    Ok(cycle(&queues, request.id))
}

/// The refusal that follows from what a search found.
pub fn refuse_cycle(found: Option<String>) -> FaultResult<()> {
    found.map_or(Ok(()), |cycle| Err(Fault::new(ErrorKind::Deadlock, cycle)))
}

/// The queues of `names`, in their order; `None` of one that cannot be read.
pub async fn read_what_can_be<Q: Queues>(
    service: &Q,
    names: &[LockName],
) -> Result<Vec<Option<Vec<Queued<Q::Order>>>>, Q::Fault> {
    if let Some(all) = unless_refused(service.read(names).await)? {
        return Ok(all.into_iter().map(Some).collect());
    }
    let mut each = Vec::with_capacity(names.len());
    for name in names {
        let read = unless_refused(service.read(std::slice::from_ref(name)).await)?;
        each.push(read.and_then(|queues| queues.into_iter().next()));
    }
    Ok(each)
}

/// What came out, or `None` if that was refused for good.
fn unless_refused<T, F: Clone + Into<Fault>>(answer: Result<T, F>) -> Result<Option<T>, F> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(fault) if fault.clone().into().kind.is_transient() => Err(fault),
        Err(_) => Ok(None),
    }
}

/// The sentence about the cycle of waits that the claim `id` closes among `queues`, of which each is in order. Only entries
/// that came no later count.
pub fn cycle<P: Ord>(queues: &BTreeMap<LockName, Vec<Queued<P>>>, id: ClaimId) -> Option<String> {
    // A claim that is taken in parts came when its last part did.
    let own = queues.values().flatten().filter(|queued| queued.id == id).map(|queued| &queued.place).max();
    let mut graph = Graph::default();
    for (name, queue) in queues {
        let earlier = queue.iter().filter(|queued| own.is_none_or(|own| queued.place <= *own));
        graph.add(name, earlier.filter_map(|queued| queued.member.clone()).collect());
    }
    graph.cycle(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Mode;
    use std::sync::Mutex;

    fn id(n: u8) -> ClaimId {
        ClaimId::from_bytes([n; 16])
    }

    fn name(text: &str) -> LockName {
        text.parse().expect("valid")
    }

    /// An exclusive claim: its number, place, names and what it runs inside.
    type Entry = (u8, u8, &'static [&'static str], &'static [u8]);

    struct Fake {
        queues: BTreeMap<LockName, Vec<Entry>>,
        nested: BTreeMap<ClaimId, Vec<LockName>>,
        read: Mutex<Vec<LockName>>,
        denied: Vec<LockName>,
        forgotten: Mutex<Vec<ClaimId>>,
    }

    #[async_trait]
    impl Queues for Fake {
        type Order = u8;
        type Fault = Fault;

        async fn nested(&self) -> FaultResult<BTreeMap<ClaimId, Vec<LockName>>> {
            Ok(self.nested.clone())
        }

        async fn read(&self, names: &[LockName]) -> FaultResult<Vec<Vec<Queued<u8>>>> {
            if names.iter().any(|name| self.denied.contains(name)) {
                return Err(Fault::new(ErrorKind::Denied, "no right"));
            }
            self.read.lock().expect("whole").extend_from_slice(names);
            let queued = |(n, place, names, inside): &Entry| Queued {
                id: id(*n),
                place: *place,
                names: names.iter().map(|text| name(text)).collect(),
                member: Some(Member {
                    id: id(*n),
                    mode: Mode::Exclusive,
                    owner: n.to_string(),
                    ancestors: inside.iter().map(|n| id(*n)).collect(),
                }),
            };
            let queue = |name| self.queues.get(name).into_iter().flatten().map(queued).collect();
            Ok(names.iter().map(queue).collect())
        }

        async fn forget(&self, id: ClaimId) -> FaultResult<()> {
            self.forgotten.lock().expect("whole").push(id);
            Ok(())
        }
    }

    fn request(n: u8, names: &[&str]) -> Request {
        let names = names.iter().map(|text| name(text)).collect();
        let (holder, ttl) = (crate::lock::Holder::default(), std::time::Duration::from_secs(30));
        Request {
            names,
            id: id(n),
            mode: Mode::Exclusive,
            ttl,
            holder,
            ancestors: Vec::new(),
            supersede: false,
        }
    }

    /// 1 has a, and inside it 3 waits for b; 2 has b and c, and inside it 4 waits for a. 5 is listed and gone.
    fn crossed() -> Fake {
        let both: &[&str] = &["b", "c"];
        let queues = [
            (name("a"), vec![(1, 1, &[] as &[&str], &[] as &[u8]), (4, 4, &[], &[2])]),
            (name("b"), vec![(2, 2, both, &[]), (3, 3, &[], &[1])]),
            (name("c"), vec![(2, 2, both, &[])]),
            (name("z"), vec![(9, 9, &[], &[])]),
        ];
        let nested = [(id(3), vec![name("b")]), (id(4), vec![name("a")]), (id(5), vec![name("a")])];
        let (queues, nested) = (queues.into(), nested.into());
        Fake { queues, nested, read: Mutex::default(), denied: Vec::new(), forgotten: Mutex::default() }
    }

    #[tokio::test]
    async fn the_later_of_two_finds_the_cycle_that_they_close() {
        let fake = crossed();
        let cycle = search(&fake, &request(4, &["a"])).await.expect("reads").expect("a cycle");
        assert_eq!(cycle, "4 waits for a behind 1, 1 runs 3, 3 waits for b behind 2, 2 runs 4");
        assert_eq!(
            search(&crossed(), &request(3, &["b"])).await,
            Ok(None),
            "the earlier leaves it to the later"
        );
    }

    #[tokio::test]
    async fn what_may_not_be_read_is_left_out_and_kept() {
        let mut fake = crossed();
        fake.nested.extend([(id(6), vec![name("z")]), (id(7), vec![name("y")])]);
        fake.denied = vec![name("y"), name("z")];
        let cycle = search(&fake, &request(4, &["a"])).await.expect("goes on").expect("a cycle");
        assert!(cycle.starts_with("4 waits for a behind 1"), "{cycle}");
        assert_eq!(*fake.forgotten.lock().expect("whole"), [id(5)], "of the others nothing is known");
        fake.denied = vec![name("b")];
        assert_eq!(search(&fake, &request(4, &["a"])).await, Ok(None), "cannot tell");
    }

    #[tokio::test]
    async fn what_matters_is_read_once_and_what_is_gone_is_forgotten() {
        let fake = crossed();
        search(&fake, &request(4, &["a"])).await.expect("reads");
        let read: Vec<String> = fake.read.lock().expect("whole").iter().map(ToString::to_string).collect();
        assert_eq!(read, ["a", "b", "c"]);
        assert_eq!(*fake.forgotten.lock().expect("whole"), [id(5)]);
    }
}
