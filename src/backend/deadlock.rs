//! Refuses waits that would never end.
//!
//! An entry waits for entries that were ahead of it when it arrived, so only an arrival closes a cycle of waits. The
//! arriving claim has ancestors, since no claim waits yet for another claim that has just arrived. Such a claim
//! searches once it waits.
//!
//! The claims that wait for a claim are its ancestors and those behind it in its queues. Entries show their ancestors
//! and the names of these. So the search reads the queues of all names that it finds, beginning with those of the claim
//! and its ancestors.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{Backend, Claim};
use crate::clock::Clock;
use crate::lock::deadlock::{Graph, Member};
use crate::lock::{ClaimState, Entry, Error, ErrorKind, LockName, LockStatus, Moment, Request, Result};

/// The time for a later claim to leave. Clocks may disagree on which claim is later, so a claim that still finds the
/// cycle closed after this time leaves itself.
const PATIENCE: Duration = Duration::from_secs(2);

/// The waiters inside other claims that a search counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Counted {
    All,
    /// Waiters that arrived no later than the claim that searches.
    Earlier,
}

/// Joins the queues with [`Backend::enter`], and refuses a wait that closes a cycle of waits. Of two claims that close
/// it together the later one is refused. `clock` is that of the deadline.
///
/// Errors: those of [`Backend::enter`]; `Deadlock`, with the entry removed, or left to its ttl if the service does not
/// answer; transient ones of the search. After a transient error the same request can be made again, and
/// [`Backend::withdraw`] removes the entry. Dropping the future may leave the entry as well.
pub async fn enter(
    backend: &dyn Backend,
    request: &Request,
    clock: Clock,
    deadline: Moment,
) -> Result<Arc<dyn Claim>> {
    let claim = backend.enter(request, deadline).await?;
    if request.ancestors.is_empty() {
        return Ok(claim);
    }
    let begun = clock.now();
    let until = begun + PATIENCE.min(request.ttl / 3).min(deadline.since(begun) / 2);
    let mut before = None;
    loop {
        match claim.changed(None).await {
            Ok(ClaimState::Waiting { .. }) => {}
            Err(error) if error.is_transient() => return Err(error),
            // The caller follows the claim and gets the same result.
            Ok(_) | Err(_) => return Ok(claim),
        }
        let queues = read(backend, request, deadline).await?;
        let own = cycle(&queues, request, Counted::Earlier);
        let is_last = own.is_some();
        let Some(found) = own.or_else(|| cycle(&queues, request, Counted::All)) else { return Ok(claim) };
        // The queues are read one after the other. A cycle that two reads show existed between them.
        if before.as_ref() == Some(&found) {
            // Final even if the leaving fails. Entering again could succeed, and a late request to leave would then end a
            // hold.
            let _ = claim.leave(false, deadline).await;
            let (name, lock) = (backend.client().capabilities().backend, request.names.first());
            return Err(Error::new(ErrorKind::Deadlock, found).during(name, "join the queue", lock));
        }
        if !is_last {
            clock.sleep_until(until).await;
        }
        before = Some(found);
    }
}

/// Reads the queues of all claims that may wait for that of `request`, and its own. A queue that this user may not
/// read, or that cannot be read at all, is left out: it may or may not belong to a cycle.
///
/// Errors: transient ones of [`Backend::inspect`].
async fn read(
    backend: &dyn Backend,
    request: &Request,
    deadline: Moment,
) -> Result<BTreeMap<LockName, LockStatus>> {
    let mut queues = BTreeMap::new();
    let inherited = request.ancestors.iter().flat_map(|ancestor| &ancestor.names);
    let mut known: BTreeSet<LockName> = request.names.iter().chain(inherited).cloned().collect();
    let mut unread: Vec<LockName> = known.iter().cloned().collect();
    while let Some(name) = unread.pop() {
        match backend.inspect(&name, deadline).await {
            Ok(queue) => {
                let found = queue.holders.iter().chain(&queue.waiters).flat_map(|entry| &entry.related);
                unread.extend(found.filter(|name| known.insert((*name).clone())).cloned());
                queues.insert(name, queue);
            }
            Err(error) if error.is_transient() => return Err(error),
            Err(_) => {}
        }
    }
    Ok(queues)
}

/// Returns the sentence about the cycle of waits that contains the claim of `request`, if there is one.
fn cycle(queues: &BTreeMap<LockName, LockStatus>, request: &Request, counted: Counted) -> Option<String> {
    let arrival = |entry: &Entry| (entry.since, entry.claim);
    let waiters = queues.values().flat_map(|queue| &queue.waiters);
    let own = waiters.filter(|waiter| waiter.claim == Some(request.id)).map(arrival).max();
    let counts = |waiter: &&Entry| {
        counted == Counted::All || waiter.ancestors.is_empty() || own.is_none_or(|own| arrival(waiter) <= own)
    };
    let mut graph = Graph::default();
    for (name, queue) in queues {
        let entries = queue.holders.iter().chain(queue.waiters.iter().filter(counts));
        let mut members: Vec<Member> = entries.filter_map(member).collect();
        // A service without a queue shows no waiters.
        if request.names.contains(name) && members.iter().all(|member| member.id != request.id) {
            members.push(Member {
                id: request.id,
                mode: request.mode,
                owner: request.holder.to_string(),
                ancestors: request.ancestors.iter().map(|ancestor| ancestor.claim).collect(),
            });
        }
        graph.add(name, members);
    }
    graph.cycle(request.id)
}

/// Returns `entry` as a node of the search; `None` if its claim or its mode is not known.
fn member(entry: &Entry) -> Option<Member> {
    let id = entry.claim?;
    let owner = match (&entry.key, &entry.host) {
        (Some(key), _) => key.clone(),
        (None, Some(_)) => entry.owner().to_string(),
        (None, None) => format!("claim {id}"),
    };
    Some(Member { id, mode: entry.mode?, owner, ancestors: entry.ancestors.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Capabilities, Evict, Examination, Observer, ServiceClient};
    use crate::lock::{Ancestor, ClaimId, Holder, Mode};
    use async_trait::async_trait;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::SystemTime;

    fn name(text: &str) -> LockName {
        text.parse().expect("valid")
    }

    fn id(n: u8) -> ClaimId {
        ClaimId::from_bytes([n; 16])
    }

    /// Returns an exclusive entry of the claim `n`, which arrived at `since` and runs inside others.
    fn entry(n: u8, since: u64, inside: &[u8]) -> Entry {
        Entry {
            claim: Some(id(n)),
            mode: Some(Mode::Exclusive),
            key: Some(n.to_string()),
            since: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(since)),
            ancestors: inside.iter().map(|n| id(*n)).collect(),
            ..Entry::default()
        }
    }

    fn request(n: u8, on: &str, inside: &[u8]) -> Request {
        Request {
            names: vec![name(on)],
            id: id(n),
            mode: Mode::Exclusive,
            ttl: Duration::from_secs(30),
            holder: Holder::default(),
            ancestors: inside.iter().map(|n| Ancestor { claim: id(*n), names: Vec::new() }).collect(),
            supersede: false,
        }
    }

    fn queues(all: Vec<(&str, Entry, Vec<Entry>)>) -> BTreeMap<LockName, LockStatus> {
        let queue = |(lock, holder, waiters): (&str, _, _)| {
            (name(lock), LockStatus::of(&name(lock), vec![holder], waiters))
        };
        all.into_iter().map(queue).collect()
    }

    /// 1 holds a, and inside it 3 waits for b, which 2 holds; inside that 4 waits for a.
    fn crossed() -> BTreeMap<LockName, LockStatus> {
        queues(vec![
            ("a", entry(1, 9, &[]), vec![entry(4, 4, &[2])]),
            ("b", entry(2, 9, &[]), vec![entry(3, 3, &[1])]),
        ])
    }

    #[test]
    fn claim_in_no_queue_counts_as_the_last_waiter() {
        let unshown = queues(vec![("a", entry(1, 9, &[]), Vec::new())]);
        assert!(cycle(&unshown, &request(2, "a", &[1]), Counted::Earlier).is_some());
        assert_eq!(cycle(&unshown, &request(2, "a", &[3]), Counted::All), None);
    }

    /// The queues that a search reads; `None` if the service is away.
    type Look = Option<BTreeMap<LockName, LockStatus>>;

    /// A service with one waiting claim. Each search reads the next of `looks`, or the last one again.
    #[derive(Debug)]
    struct Scripted {
        looks: Vec<Look>,
        looked: AtomicUsize,
        /// Whether it does not answer requests to leave.
        is_silent: bool,
        left: AtomicBool,
    }

    #[derive(Debug)]
    struct ScriptedClaim(Arc<Scripted>);

    fn away() -> Error {
        Error::unavailable("it is away")
    }

    #[async_trait]
    impl Claim for ScriptedClaim {
        fn ttl(&self) -> Option<Duration> {
            None
        }
        async fn changed(&self, _: Option<&ClaimState>) -> Result<ClaimState> {
            self.0.looked.fetch_add(1, Ordering::Relaxed);
            Ok(ClaimState::Waiting { ahead: None, holder: None })
        }
        async fn renew(&self, deadline: Moment) -> Result<Moment> {
            Ok(deadline)
        }
        async fn leave(&self, _: bool, _: Moment) -> Result<()> {
            self.0.left.store(true, Ordering::Relaxed);
            if self.0.is_silent { Err(away()) } else { Ok(()) }
        }
    }

    impl ServiceClient for Scripted {
        fn capabilities(&self) -> Capabilities {
            Capabilities {
                backend: "scripted",
                queue: true,
                leased: true,
                renewals_per_ttl: 3,
                look_while_running: false,
                abandoned_bound: Duration::ZERO,
            }
        }
        fn identity(&self) -> String {
            "scripted".into()
        }
    }

    #[async_trait]
    impl Backend for Arc<Scripted> {
        fn client(&self) -> &dyn ServiceClient {
            &**self
        }
        async fn enter(&self, _: &Request, _: Moment) -> Result<Arc<dyn Claim>> {
            Ok(Arc::new(ScriptedClaim(Arc::clone(self))))
        }
        async fn inspect(&self, name: &LockName, _: Moment) -> Result<LockStatus> {
            let last = self.looks.len() - 1;
            let look = &self.looks[last.min(self.looked.load(Ordering::Relaxed) - 1)];
            let queues = look.as_ref().ok_or_else(away)?;
            Ok(queues.get(name).cloned().unwrap_or_else(|| LockStatus::empty(name)))
        }
        async fn list(&self, _: &str, _: Moment) -> Result<Vec<LockStatus>> {
            Err(away())
        }
        async fn observe(&self, _: &LockName) -> Result<Box<dyn Observer>> {
            Err(away())
        }
        async fn evict(&self, _: &LockName, _: ClaimId, _: Evict, _: &Holder, _: Moment) -> Result<bool> {
            Err(away())
        }
        async fn evict_foreign(&self, _: &LockName, _: ClaimId, _: Moment) -> Result<bool> {
            Err(away())
        }
        async fn publish(&self, _: &LockName, _: ClaimId, _: &str, _: Moment) -> Result<bool> {
            Err(away())
        }
        async fn examine(&self, _: Moment) -> Result<Examination> {
            Err(away())
        }
        async fn last_success(&self, _: &LockName, _: Moment) -> Result<Option<Duration>> {
            Err(away())
        }
    }

    /// Returns the error of entering with `request`, whether the claim left, and how long that took.
    async fn entered(looks: Vec<Look>, request: Request) -> (Option<ErrorKind>, bool, Duration) {
        entered_at(looks, false, request).await
    }

    async fn entered_at(
        looks: Vec<Look>,
        is_silent: bool,
        request: Request,
    ) -> (Option<ErrorKind>, bool, Duration) {
        let clock = Clock::Runtime(tokio::time::Instant::now());
        let begun = clock.now();
        let (looked, left) = (AtomicUsize::default(), AtomicBool::default());
        let service = Arc::new(Scripted { looks, looked, is_silent, left });
        let ended = enter(&service, &request, clock, begun + request.ttl).await;
        (ended.err().map(|error| error.kind), service.left.load(Ordering::Relaxed), clock.now().since(begun))
    }

    /// Returns the claim 3 or 4 of [`crossed`], with the name of its ancestor.
    fn crossing(n: u8) -> Request {
        let (on, outer, held) = if n == 3 { ("b", 1, "a") } else { ("a", 2, "b") };
        let ancestors = vec![Ancestor { claim: id(outer), names: vec![name(held)] }];
        Request { ancestors, ..request(n, on, &[]) }
    }

    #[tokio::test(start_paused = true)]
    async fn earlier_claim_stays_if_the_later_one_leaves() {
        let mut left = crossed();
        left.insert(name("a"), LockStatus::of(&name("a"), vec![entry(1, 9, &[])], Vec::new()));
        let ended = entered(vec![Some(crossed()), Some(left)], crossing(3)).await;
        assert_eq!(ended, (None, false, PATIENCE));
        let ended = entered(vec![Some(crossed())], crossing(3)).await;
        assert_eq!(ended, (Some(ErrorKind::Deadlock), true, PATIENCE), "it stays");
        let brief = Request { ttl: Duration::from_secs(3), ..crossing(3) };
        let ended = entered(vec![Some(crossed())], brief).await;
        assert_eq!(ended, (Some(ErrorKind::Deadlock), true, Duration::from_secs(1)), "a short ttl");
    }

    /// The request to leave may be executed late. If the claim entered again, that would end its hold.
    #[tokio::test(start_paused = true)]
    async fn late_request_to_leave_cannot_end_a_hold() {
        let ended = entered_at(vec![Some(crossed())], true, crossing(4)).await;
        assert_eq!(ended, (Some(ErrorKind::Deadlock), true, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn cycle_seen_by_one_look_only_is_none() {
        let mut over = crossed();
        over.insert(name("b"), LockStatus::empty(&name("b")));
        let ended = entered(vec![Some(crossed()), Some(over)], crossing(4)).await;
        assert_eq!(ended, (None, false, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn transient_search_failure_is_an_error() {
        for looks in [vec![None], vec![Some(crossed()), None]] {
            let ended = entered(looks, crossing(4)).await;
            assert_eq!(ended, (Some(ErrorKind::Unavailable), false, Duration::ZERO));
        }
    }

    #[test]
    fn unreadable_entry_is_named_by_its_claim() {
        let unread = Entry { claim: Some(id(7)), mode: Some(Mode::Shared), ..Entry::default() };
        assert_eq!(member(&unread).expect("a member").owner, format!("claim {}", id(7)));
        assert_eq!(member(&Entry { mode: None, ..unread }), None);
    }
}
