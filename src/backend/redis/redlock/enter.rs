//! Entering the queues of all nodes.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Mutex as Gate, Notify};

use super::claim::RedlockClaim;
use super::client::RedlockBackend;
use super::core::{Aim, Core, Inner};
use super::node_claim::{NodeClaim, Phase};
use super::script::ENTER;
use super::{deadlock, majority};
use crate::backend::claim_state::Publisher;
use crate::backend::deadlock::refuse_cycle;
use crate::backend::fault::{Fault, FaultResult, Retry};
use crate::backend::mixing::mismatch;
use crate::backend::record::Record;
use crate::backend::redis::fault::NAME;
use crate::backend::redis::keys::LockKeys;
use crate::backend::redis::queues::keys_of;
use crate::backend::redis::redlock::former::newest;
use crate::lock::{ErrorKind, Moment, Request};

/// How long claims that came at the same moment may take to settle which of them goes first, before the answer is
/// that it has to wait.
const CONTEST: Duration = Duration::from_millis(250);
/// How long before the deadline of all the nodes have to answer.
const EARLIER: Duration = Duration::from_millis(25);

/// Enters the queues of all names of `request` at all nodes, each in one step.
pub(super) async fn enter(
    backend: &RedlockBackend,
    request: &Request,
    deadline: Moment,
) -> FaultResult<RedlockClaim> {
    let names = keys_of(&backend.naming, &request.names)?;
    if names.is_empty() {
        return Err(Fault::new(ErrorKind::Invalid, "a claim needs a name"));
    }
    let nested = (!request.ancestors.is_empty()).then(|| backend.naming.nested());
    if let Some(index) = &nested {
        deadlock::announce(&backend.nodes, index, request, deadline).await?;
    }
    let core = Arc::new(core(backend, request, names));
    core.nodes.claims.fetch_add(1, Ordering::Relaxed);
    let claim = RedlockClaim::new(Arc::clone(&core), nested.clone());
    if let Err(fault) = join(&core, request, deadline).await {
        // Whatever the answers were, and where there was none: nothing is to stay. Nobody who waits for an answer by
        // a deadline waits for that.
        core.publisher.begin_leaving();
        let soon = core.clock.now() + core.straggle();
        let transient = fault.kind.is_transient();
        let aim = if transient { Aim::Withdraw } else { Aim::Leave };
        let withdrawal = tokio::spawn({
            let core = Arc::clone(&core);
            async move { withdraw(&core, aim, soon).await }
        });
        if !transient {
            tokio::select! {
                // A task that panicked has said so.
                _ = withdrawal => {}
                () = core.clock.sleep_until(deadline) => {}
            }
        }
        return Err(fault);
    }
    claim.reconcile();
    if core.inner().grant.is_none() {
        contest(&core, deadline).await;
    }
    if let Some(index) = nested.filter(|_| core.publisher.waits())
        && let Err(fault) = deadlock::search(backend, &index, request, deadline).await.and_then(refuse_cycle)
    {
        if !fault.kind.is_transient() {
            core.publisher.begin_leaving();
            withdraw(&core, Aim::Leave, deadline).await;
            deadlock::forget(&backend.nodes, &index, request.id, deadline).await?;
        }
        return Err(fault);
    }
    Ok(claim)
}

fn core(backend: &RedlockBackend, request: &Request, names: Vec<LockKeys>) -> Core {
    let clock = backend.clock;
    let ttl = request.ttl.min(backend.nodes.max_ttl);
    let inner = Inner {
        node_claims: backend.nodes.services.iter().map(|_| NodeClaim::new(names.len())).collect(),
        score: None,
        grant: None,
    };
    Core {
        attempt: backend.nodes.attempts.fetch_add(1, Ordering::Relaxed),
        nodes: Arc::clone(&backend.nodes),
        clock,
        id: request.id,
        names,
        mode: request.mode,
        ttl,
        record: Record::of(request, ttl).to_text(),
        newcomer: [serde_json::to_string(&request.holder).unwrap_or_default(), newest(request).to_owned()],
        inner: Mutex::new(inner),
        publisher: Publisher::new(NAME, request.names.first().cloned(), clock, clock.now()),
        stir: Notify::new(),
        heard: Notify::new(),
        acting: Gate::new(()),
    }
}

/// Enters and takes the claim's place; an error leaves what was entered.
async fn join(core: &Arc<Core>, request: &Request, deadline: Moment) -> FaultResult<()> {
    let more = core.entering("");
    let step = core.step(&ENTER, core.next_token(), &more);
    let won = |core: &Core| {
        let inner = core.inner();
        let alive = majority::alive(&inner.node_claims, None, core.ttl, core.clock.now());
        alive >= majority::of(inner.node_claims.len())
    };
    // Before whoever gives up at the deadline does so without an answer.
    let asked = deadline - (deadline.since(core.clock.now()) / 20).min(EARLIER);
    core.round(Aim::Life, asked, |_, _| Some(step.clone()), won).await;
    verdict(core, request)?;
    core.act(deadline).await;
    if core.inner().grant.is_none() {
        {
            let mut inner = core.inner();
            inner.score = place(&inner.node_claims, core.nodes.majority());
        }
        core.act(deadline).await;
    }
    core.tidy();
    Ok(())
}

/// When a majority knew of the claim: its place among all. Of whoever comes after a majority has heard it, at least so many
/// nodes say later.
fn place(node_claims: &[NodeClaim], majority: usize) -> Option<u64> {
    let entered = node_claims.iter().filter(|node_claim| node_claim.phase == Phase::In);
    let mut scores: Vec<u64> =
        entered.filter_map(|node_claim| node_claim.rows.iter().filter_map(|row| row.score).max()).collect();
    scores.sort_unstable();
    scores.get(majority - 1).or(scores.last()).copied()
}

/// What the answers to entering mean together.
fn verdict(core: &Core, request: &Request) -> FaultResult<()> {
    let faults = core.faults();
    let inner = core.inner();
    let now = core.clock.now();
    let majority = core.nodes.majority();
    for (at, node_claim) in inner.node_claims.iter().enumerate() {
        let same = |(_, other): &(usize, &NodeClaim)| node_claim.run.is_some() && other.run == node_claim.run;
        if let Some((other, _)) = inner.node_claims.iter().enumerate().skip(at + 1).find(same) {
            let [one, two] = [at, other].map(|at| core.nodes.services[at].config.identity());
            let reason = format!("{one} and {two} are the same server; give each server once");
            return Err(Fault::new(ErrorKind::Invalid, reason));
        }
    }
    let mismatches: Vec<_> =
        inner.node_claims.iter().filter_map(|node_claim| node_claim.mismatch.as_ref()).collect();
    let entered = inner.node_claims.iter().filter(|node_claim| node_claim.phase != Phase::Unknown).count();
    if let Some(other) =
        mismatches.first().filter(|_| entered < majority && mismatches.len() + entered >= majority)
    {
        let name = other.at.and_then(|at| request.names.get(at));
        let reason = mismatch(name, other.who.as_deref(), other.mode.into(), request.mode);
        return Err(Fault::new(ErrorKind::Mismatch, reason));
    }
    if let Some(at) = inner.node_claims.iter().position(|node_claim| {
        node_claim.fault.as_ref().is_some_and(|fault| fault.retry == Retry::OtherServer)
    }) {
        let reason = format!(
            "{} is a replica: it follows its master and decides nothing; name independent masters only",
            core.nodes.services[at].config.identity()
        );
        return Err(Fault::new(ErrorKind::Invalid, reason));
    }
    let unfit = |fault: &&Fault| {
        matches!(fault.kind, ErrorKind::Denied | ErrorKind::Invalid | ErrorKind::Unsupported)
    };
    // Like one that is down, a node that is not set up right stops nobody while a majority is there.
    if let Some(fault) = faults.iter().find(unfit).filter(|_| entered < majority) {
        return Err(fault.clone());
    }
    if entered < majority {
        let too_few = core.nodes.too_few(entered, &faults);
        let may_hold = entered + unanswered(core, &inner.node_claims) >= majority;
        return Err(if may_hold { too_few.helped_by(Retry::OtherConnection) } else { too_few });
    }
    let awake =
        |node_claim: &&NodeClaim| node_claim.phase != Phase::Unknown && now >= node_claim.abstains_until;
    let able = inner.node_claims.iter().filter(awake).count();
    if able < majority {
        let mut waits: Vec<Moment> =
            inner.node_claims.iter().map(|node_claim| node_claim.abstains_until).collect();
        waits.sort_unstable();
        let left = waits[majority - 1].since(now);
        let reason = format!(
            "{able} of {} nodes vote: one that was restarted within --max-ttl ({} s) does not, in case it forgot a \
             lock; there is a majority again in {} s",
            inner.node_claims.len(),
            core.nodes.max_ttl.as_secs(),
            left.as_secs() + 1
        );
        return Err(Fault::unavailable(reason));
    }
    Ok(())
}

/// How many nodes may have let it in without being heard.
fn unanswered(core: &Core, node_claims: &[NodeClaim]) -> usize {
    let unanswered = node_claims.iter().zip(&core.nodes.services).filter(|(node_claim, node)| {
        let refused = node_claim.fault.as_ref().is_some_and(|fault| !fault.is_spent());
        node_claim.phase == Phase::Unknown && node.has_connected() && !refused
    });
    unanswered.count()
}

/// Waits until it is clear who goes first, if several came at the same moment.
async fn contest(core: &Arc<Core>, deadline: Moment) {
    let until = deadline.min(core.clock.now() + CONTEST);
    loop {
        let heard = core.heard.notified();
        if !core.publisher.waits()
            || majority::decided(&core.inner().node_claims, core.names.len(), core.mode)
        {
            return;
        }
        tokio::select! {
            () = core.clock.sleep_until(until) => return,
            () = heard => {}
        }
    }
}

/// Takes the claim out at all nodes, whatever they have answered.
pub(super) async fn withdraw(core: &Arc<Core>, aim: Aim, deadline: Moment) {
    let step = core.leaving(aim, false);
    core.round(aim, deadline, |_, _| Some(step.clone()), |_| false).await;
}
