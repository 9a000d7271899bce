//! The nodes, and requests to all of them.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use redis::Value;
use tokio::task::JoinSet;

use super::config::RedlockConfig;
use crate::backend::redis::client::Client;
use crate::backend::redis::connection::Heard;
use crate::backend::redis::examine::properties;
use crate::backend::redis::fault;
use crate::backend::redis::rows::integer;
use crate::backend::redis::script::Call;
use crate::backend::redis::watch::TRACKING;
use crate::clock::Clock;
use crate::lock::{ErrorKind, Moment, Reason};
use crate::net::fault::{Fault, FaultResult, Retry};
use crate::net::request::Patience;

/// How long nodes may delay an answer that a majority has given.
const STRAGGLE: Duration = Duration::from_millis(250);

/// The nodes of one client.
#[derive(Debug)]
pub(super) struct Nodes {
    pub(super) all: Vec<Arc<Client>>,
    pub(super) clock: Clock,
    /// How long a restarted node does not vote; no ttl is longer.
    pub(super) max_ttl: Duration,
    /// The number of attempts by this client.
    pub(super) attempts: AtomicU64,
}

/// How to ask a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    pub(super) deadline: Moment,
    /// When to proceed with the answers received so far.
    pub(super) give_up_at: Moment,
    /// Whether the nodes are to report later changes of the keys that are read.
    pub(super) listens: bool,
    pub(super) patience: Patience,
}

impl Question {
    pub(super) fn by(deadline: Moment) -> Self {
        Self { deadline, give_up_at: deadline, listens: false, patience: Patience::Once }
    }

    pub(super) fn listening(deadline: Moment) -> Self {
        Self { listens: true, ..Self::by(deadline) }
    }
}

/// The answer of a node.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) replies: Vec<Value>,
    /// The identity of the server process.
    run: String,
    /// From when it votes: before, it may have lost a hold that it granted before a restart.
    votes_from: Moment,
    /// Where it reports changes after this answer, if it does.
    pub(super) heard: Option<Heard>,
}

impl Answer {
    /// Returns the `n`th reply as a number.
    pub(super) fn number(&self, n: usize) -> Option<i64> {
        self.replies.get(n).and_then(integer)
    }
}

/// The answer of each node; `None` if it is missing, or a fault.
pub(super) type Answers<T = Answer> = Vec<Option<FaultResult<T>>>;

/// Returns the received answers.
pub(super) fn answered<T>(answers: &Answers<T>) -> impl Iterator<Item = &T> {
    answers.iter().flatten().flatten()
}

impl Nodes {
    pub(super) fn of(config: RedlockConfig, clock: Clock) -> Arc<Self> {
        let all = config.nodes.into_iter().map(|node| Arc::new(Client::new(node, clock))).collect();
        Arc::new(Self { all, clock, max_ttl: config.max_ttl, attempts: AtomicU64::new(1) })
    }

    /// Returns the least number of nodes that is a majority.
    pub(super) fn majority(&self) -> usize {
        self.all.len() / 2 + 1
    }

    /// Executes `ask` for each node until all have answered; once a majority has, waits only [`STRAGGLE`] longer. The
    /// other requests continue.
    pub(super) async fn each<T, F>(&self, give_up_at: Moment, ask: impl Fn(Arc<Client>) -> F) -> Answers<T>
    where
        T: Send + 'static,
        F: Future<Output = FaultResult<T>> + Send + 'static,
    {
        let mut under_way = JoinSet::new();
        for (at, node) in self.all.iter().enumerate() {
            let asked = ask(Arc::clone(node));
            under_way.spawn(async move { (at, asked.await) });
        }
        let mut found: Answers<T> = self.all.iter().map(|_| None).collect();
        // The nodes' own errors at the deadline are more precise.
        let mut until = give_up_at + Duration::from_millis(5);
        loop {
            tokio::select! {
                biased;
                ended = under_way.join_next() => match ended {
                    None => break,
                    Some(Ok((at, answer))) => found[at] = Some(answer),
                    Some(Err(_)) => {}
                },
                () = self.clock.sleep_until(until) => break,
            }
            if answered(&found).count() >= self.majority() {
                until = until.min(self.clock.now() + STRAGGLE);
            }
        }
        under_way.detach_all();
        found
    }

    /// Sends `steps` to the nodes.
    pub(super) async fn ask(&self, question: Question, steps: Vec<Call>) -> Answers {
        let (max_ttl, steps) = (self.max_ttl, Arc::new(steps));
        let ask = |node: Arc<Client>| {
            let steps = Arc::clone(&steps);
            async move { ask(&node, max_ttl, question, &steps).await }
        };
        self.each(question.give_up_at, ask).await
    }

    /// Sends `steps` to the nodes, and returns the answers of at least a majority. Too few are an error.
    pub(super) async fn majority_of(&self, question: Question, steps: Vec<Call>) -> FaultResult<Answers> {
        let answers = self.ask(question, steps).await;
        self.refuse_too_few(answered(&answers).count(), &answers)?;
        Ok(answers)
    }

    /// Returns the answers of the nodes that vote.
    pub(super) fn votes<'a>(&self, found: &'a Answers) -> impl Iterator<Item = &'a Answer> {
        let now = self.clock.now();
        answered(found).filter(move |answer| answer.votes_from <= now)
    }

    /// Errors: only `usable` nodes could be used, fewer than a majority.
    pub(super) fn refuse_too_few<T>(&self, usable: usize, found: &Answers<T>) -> FaultResult<()> {
        let all = self.all.len();
        if usable >= self.majority() {
            return Ok(());
        }
        let faults: Vec<&Fault> = found.iter().flatten().filter_map(|answer| answer.as_ref().err()).collect();
        let reasons: Vec<Reason> = faults.iter().map(|fault| fault.reason.clone()).collect();
        let reason = if reasons.is_empty() {
            format!("{usable} of {all} nodes confirm it").into()
        } else {
            Reason::within(&reasons, |reasons| format!("{usable} of {all} nodes can be used ({reasons})"))
        };
        // Kinds that time does not change take precedence.
        let kinds = || faults.iter().map(|fault| fault.kind);
        let lasting = kinds().find(|kind| !kind.is_transient());
        let full = kinds().find(|kind| *kind == ErrorKind::Full);
        let kind = lasting.or(full).unwrap_or(ErrorKind::Unavailable);
        // Silent nodes may have executed the request.
        let is_silent = |(answer, node): (&Option<FaultResult<T>>, &Arc<Client>)| {
            let asked = answer.as_ref().is_none_or(|answer| answer.as_ref().is_err_and(Fault::is_spent));
            asked && node.link.has_connected()
        };
        let is_open = found.iter().zip(&self.all).any(is_silent);
        let retry = if is_open { Retry::OtherConnection } else { Retry::Nothing };
        Err(Fault::new(kind, reason).helped_by(retry))
    }

    /// Errors: an address is not that of an independent master.
    pub(super) fn refuse_unfit(&self, found: &Answers) -> FaultResult<()> {
        let mut runs: BTreeMap<&str, String> = BTreeMap::new();
        for (answer, node) in found.iter().zip(&self.all) {
            let place = node.config.identity();
            let reason = match answer {
                Some(Ok(answer)) => match runs.insert(&answer.run, place.clone()) {
                    Some(other) => format!("{other} and {place} are the same server; give each server once"),
                    None => continue,
                },
                Some(Err(fault)) if fault.retry == Retry::OtherServer => format!(
                    "{place} is a replica: it follows its master and decides nothing; name independent masters only"
                ),
                _ => continue,
            };
            return Err(Fault::new(ErrorKind::Invalid, reason));
        }
        Ok(())
    }

    /// Errors: so few nodes vote that they and the silent ones together are not a majority.
    pub(super) fn refuse_few_votes(&self, found: &Answers) -> FaultResult<()> {
        let mut from: Vec<Moment> = answered(found).map(|answer| answer.votes_from).collect();
        from.sort_unstable();
        let (able, majority) = (self.votes(found).count(), self.majority());
        let silent = found.iter().filter(|answer| answer.is_none()).count();
        let Some(again) = from.get(majority - 1).filter(|_| able + silent < majority) else { return Ok(()) };
        let reason = format!(
            "{able} of {} nodes vote: one that was restarted within --max-ttl ({} s) does not, in case it forgot a \
             lock; there is a majority again in {} s",
            self.all.len(),
            self.max_ttl.as_secs(),
            again.since(self.clock.now()).as_secs() + 1
        );
        Err(Fault::unavailable(reason))
    }
}

/// Sends `steps` to `node`. An error reply is an error.
async fn ask(node: &Client, max_ttl: Duration, question: Question, steps: &[Call]) -> FaultResult<Answer> {
    let all: Vec<Call> = steps.iter().cloned().chain([Call::command(["INFO", "server"])]).collect();
    let Question { deadline, patience, .. } = question;
    if question.listens {
        node.listen(None, deadline, TRACKING).await?;
    }
    let answer = node.call(None, deadline, patience, &all).await?;
    let mut replies = answer.replies;
    let info = properties(&replies.pop().unwrap_or(Value::Nil));
    let lacking = |name: &str| fault::nonsense(format!("INFO without {name}"));
    let run = info.text("run_id").ok_or_else(|| lacking("run_id"))?.to_owned();
    let uptime = info.number("uptime_in_seconds").ok_or_else(|| lacking("uptime_in_seconds"))?;
    // The uptime is the difference of two whole seconds, so it may be one too high.
    let short = max_ttl.saturating_sub(Duration::from_secs(uptime.saturating_sub(1)));
    let votes_from = if short.is_zero() { Moment::from_nanos(0) } else { node.clock.now() + short };
    Ok(Answer { replies, run, votes_from, heard: answer.heard })
}
