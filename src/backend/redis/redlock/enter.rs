//! Entering the lines of all nodes.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Mutex as Gate, Notify};

use super::claim::RedlockClaim;
use super::core::{Aim, Core, Inner};
use super::leg::{Leg, Phase};
use super::script::{ENTER, LEAVE};
use super::{RedlockBackend, deadlock, tally};
use crate::backend::claim_state::Publisher;
use crate::backend::record::Record;
use crate::backend::redis::fault::{Fault, NAME, Outcome};
use crate::backend::redis::keys::LockKeys;
use crate::backend::redis::wire::keys_of;
use crate::lock::{ErrorKind, Moment, Request};

/// How long claims that came at the same moment may take to settle which of them goes first, before the answer is
/// that it has to wait.
const CONTEST: Duration = Duration::from_millis(250);
/// How long before the deadline of all the nodes have to answer.
const EARLIER: Duration = Duration::from_millis(25);

/// Enters the lines of all names of `request` at all nodes, each in one step.
pub(super) async fn enter(
    backend: &RedlockBackend,
    request: &Request,
    deadline: Moment,
) -> Outcome<RedlockClaim> {
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
        let transient = fault.kind == ErrorKind::Unavailable;
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
    claim.tend();
    if core.inner().grant.is_none() {
        contest(&core, deadline).await;
    }
    if let Some(index) = nested.filter(|_| core.publisher.waits())
        && let Some(cycle) = deadlock::search(backend, &index, request, deadline).await?
    {
        core.publisher.begin_leaving();
        withdraw(&core, Aim::Leave, deadline).await;
        deadlock::forget(&backend.nodes, &index, request.id, deadline).await?;
        return Err(Fault::new(ErrorKind::Deadlock, format!("it would never end: {cycle}")));
    }
    Ok(claim)
}

fn core(backend: &RedlockBackend, request: &Request, names: Vec<LockKeys>) -> Core {
    let clock = backend.clock;
    let ttl = request.ttl.min(backend.nodes.max_ttl);
    let inner = Inner {
        legs: backend.nodes.services.iter().map(|_| Leg::new(names.len())).collect(),
        score: None,
        grant: None,
    };
    Core {
        nodes: Arc::clone(&backend.nodes),
        clock,
        id: request.id,
        names,
        mode: request.mode,
        ttl,
        record: Record::of(request, ttl).to_text(),
        newcomer: [
            serde_json::to_string(&request.holder).unwrap_or_default(),
            if request.supersede { "1" } else { "0" }.to_owned(),
        ],
        inner: Mutex::new(inner),
        publisher: Publisher::new(NAME, request.names.first().cloned(), clock, clock.now()),
        stir: Notify::new(),
        heard: Notify::new(),
        acting: Gate::new(()),
    }
}

/// Enters and takes the claim's place; an error leaves what was entered.
async fn join(core: &Arc<Core>, request: &Request, deadline: Moment) -> Outcome<()> {
    let more = core.entering("");
    let step = core.step(&ENTER, core.next_token(), &more);
    let won = |core: &Core| {
        let inner = core.inner();
        let alive = tally::alive(&inner.legs, None, core.ttl, core.clock.now());
        alive >= tally::majority(inner.legs.len())
    };
    // Before whoever gives up at the deadline does so without an answer.
    let asked = deadline - (deadline.since(core.clock.now()) / 20).min(EARLIER);
    core.round(Aim::Life, asked, |_, _| Some(step.clone()), won).await;
    verdict(core, request)?;
    core.act(deadline).await;
    if core.inner().grant.is_none() {
        {
            let mut inner = core.inner();
            inner.score = place(&inner.legs, core.nodes.majority());
        }
        core.act(deadline).await;
    }
    core.tidy();
    Ok(())
}

/// When a majority knew of the claim: its place among all. Of whoever comes after a majority has heard it, at least so many
/// nodes say later.
fn place(legs: &[Leg], majority: usize) -> Option<u64> {
    let entered = legs.iter().filter(|leg| leg.phase == Phase::In);
    let mut scores: Vec<u64> =
        entered.filter_map(|leg| leg.rows.iter().filter_map(|row| row.score).max()).collect();
    scores.sort_unstable();
    scores.get(majority - 1).or(scores.last()).copied()
}

/// What the answers to entering mean together.
fn verdict(core: &Core, request: &Request) -> Outcome<()> {
    let faults = core.faults();
    let inner = core.inner();
    let now = core.clock.now();
    let majority = core.nodes.majority();
    for (at, leg) in inner.legs.iter().enumerate() {
        let same = |(_, other): &(usize, &Leg)| leg.run.is_some() && other.run == leg.run;
        if let Some((other, _)) = inner.legs.iter().enumerate().skip(at + 1).find(same) {
            let [one, two] = [at, other].map(|at| core.nodes.services[at].config.identity());
            let reason = format!("{one} and {two} are the same server; give each server once");
            return Err(Fault::new(ErrorKind::Invalid, reason));
        }
    }
    let mismatches: Vec<_> = inner.legs.iter().filter_map(|leg| leg.mismatch.as_ref()).collect();
    let entered = inner.legs.iter().filter(|leg| leg.phase != Phase::Unknown).count();
    if let Some((mode, who)) =
        mismatches.first().filter(|_| entered < majority && mismatches.len() + entered >= majority)
    {
        let reason =
            format!("{who} uses it as {mode}, which does not mix with {}; use the same kind", request.mode);
        return Err(Fault::new(ErrorKind::Mismatch, reason));
    }
    if let Some(at) = inner.legs.iter().position(|leg| leg.fault.as_ref().is_some_and(Fault::is_of_a_replica))
    {
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
        return Err(core.nodes.too_few(entered, &faults));
    }
    let awake = |leg: &&Leg| leg.phase != Phase::Unknown && now >= leg.abstains_until;
    let able = inner.legs.iter().filter(awake).count();
    if able < majority {
        let mut waits: Vec<Moment> = inner.legs.iter().map(|leg| leg.abstains_until).collect();
        waits.sort_unstable();
        let left = waits[majority - 1].since(now);
        let reason = format!(
            "{able} of {} nodes have a say: one that was restarted within --max-ttl ({} s) has none, in case it \
             forgot a lock; the next majority is there in {} s",
            inner.legs.len(),
            core.nodes.max_ttl.as_secs(),
            left.as_secs() + 1
        );
        return Err(Fault::new(ErrorKind::Unavailable, reason));
    }
    Ok(())
}

/// Waits until it is clear who goes first, if several came at the same moment.
async fn contest(core: &Arc<Core>, deadline: Moment) {
    let until = deadline.min(core.clock.now() + CONTEST);
    loop {
        let heard = core.heard.notified();
        if !core.publisher.waits() || tally::decided(&core.inner().legs, core.names.len(), core.mode) {
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
    let step = core.step(&LEAVE, core.next_token(), &["0".to_owned(), "0".to_owned()]);
    core.round(aim, deadline, |_, _| Some(step.clone()), |_| false).await;
}
