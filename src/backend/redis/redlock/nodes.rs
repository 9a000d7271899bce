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
use crate::backend::redis::connection::Connection;
use crate::backend::redis::examine::properties;
use crate::backend::redis::fault;
use crate::backend::redis::rows::integer;
use crate::backend::redis::script::Call;
use crate::backend::redis::watch::tracking;
use crate::clock::Clock;
use crate::lock::{ErrorKind, Moment, Reason};
use crate::net::fault::{Fault, FaultResult, Retry};
use crate::net::request::Patience;

/// How long a node may delay an answer that the others have given.
pub(super) const STRAGGLE: Duration = Duration::from_millis(250);

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

/// A request to all nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    pub(super) deadline: Moment,
    /// When to proceed with the answers received so far.
    pub(super) give_up_at: Moment,
    /// How long to wait for further nodes once the answers suffice.
    pub(super) straggle: Duration,
    /// Whether the nodes are to report later changes of the keys that are read.
    pub(super) listens: bool,
    /// How long each node is tried.
    pub(super) patience: Patience,
}

impl Question {
    pub(super) fn by(deadline: Moment) -> Self {
        Self { deadline, give_up_at: deadline, straggle: STRAGGLE, listens: false, patience: Patience::Once }
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
    /// The connection that reports changes, if it does, and its number of notifications at the request.
    pub(super) told: Option<(Arc<Connection>, u64)>,
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

    /// Executes `ask` for each node, and waits for all. Once the answers are `enough`, waits only `straggle` longer.
    /// Requests still in flight continue.
    pub(super) async fn each<T, F>(
        &self,
        question: Question,
        ask: impl Fn(Arc<Client>) -> F,
        enough: impl Fn(&Answers<T>) -> bool,
    ) -> Answers<T>
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
        let mut until = question.give_up_at + Duration::from_millis(5);
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
            if enough(&found) {
                if question.straggle.is_zero() {
                    break;
                }
                until = until.min(self.clock.now() + question.straggle);
            }
        }
        under_way.detach_all();
        found
    }

    /// Sends `steps`, which are built when they are sent, to the nodes, until the answers are `enough`.
    pub(super) async fn ask(
        &self,
        question: Question,
        steps: impl Fn() -> Vec<Call> + Clone + Send + Sync + 'static,
        enough: impl Fn(&Answers) -> bool,
    ) -> Answers {
        let max_ttl = self.max_ttl;
        let ask = |node: Arc<Client>| {
            let steps = steps.clone();
            async move { ask(&node, max_ttl, question, steps).await }
        };
        self.each(question, ask, enough).await
    }

    /// Sends `steps` to the nodes, and returns the answers of at least a majority. Too few are an error.
    pub(super) async fn majority_of(&self, question: Question, steps: Vec<Call>) -> FaultResult<Answers> {
        let answers = self.ask(question, move || steps.clone(), |found| self.is_enough(found)).await;
        self.refuse_too_few(answered(&answers).count(), &answers)?;
        Ok(answers)
    }

    /// Returns whether a majority has answered.
    pub(super) fn is_enough<T>(&self, found: &Answers<T>) -> bool {
        answered(found).count() >= self.majority()
    }

    /// Returns the answers of the nodes that vote.
    pub(super) fn votes<'a>(&self, found: &'a Answers) -> impl Iterator<Item = &'a Answer> {
        let now = self.clock.now();
        answered(found).filter(move |answer| answer.votes_from <= now)
    }

    /// Errors: only `usable` nodes could be used, fewer than a majority.
    pub(super) fn refuse_too_few<T>(&self, usable: usize, found: &Answers<T>) -> FaultResult<()> {
        let (all, majority) = (self.all.len(), self.majority());
        if usable >= majority {
            return Ok(());
        }
        let faults: Vec<&Fault> = found.iter().flatten().filter_map(|answer| answer.as_ref().err()).collect();
        let reasons: Vec<Reason> = faults.iter().map(|fault| fault.reason.clone()).collect();
        let reason = if reasons.is_empty() {
            format!("{usable} of {all} nodes confirm it").into()
        } else {
            Reason::within(&reasons, |reasons| format!("{usable} of {all} nodes can be used ({reasons})"))
        };
        let count = |kind| faults.iter().filter(|fault| fault.kind == kind).count();
        // Kinds of faults that time does not change take precedence.
        let never = [ErrorKind::Denied, ErrorKind::Invalid, ErrorKind::Unsupported];
        let kind = if let Some(kind) = never.into_iter().find(|kind| count(*kind) > 0) {
            kind
        } else if !faults.is_empty() && count(ErrorKind::Corrupt) == faults.len() {
            ErrorKind::Corrupt
        } else if count(ErrorKind::Full) > 0 && usable + count(ErrorKind::Full) >= majority {
            // With room for this client there would be enough.
            ErrorKind::Full
        } else {
            ErrorKind::Unavailable
        };
        let is_silent = |(answer, node): &(&Option<FaultResult<_>>, &Arc<Client>)| {
            let asked = match answer {
                None => true,
                Some(Ok(_)) => false,
                Some(Err(fault)) => fault.is_spent(),
            };
            asked && node.link.has_connected()
        };
        let silent = found.iter().zip(&self.all).filter(is_silent).count();
        // Silent nodes may have executed the request.
        let retry = if usable + silent >= majority { Retry::OtherConnection } else { Retry::Nothing };
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
async fn ask(
    node: &Client,
    max_ttl: Duration,
    question: Question,
    steps: impl Fn() -> Vec<Call> + Send + Sync,
) -> FaultResult<Answer> {
    let told = if question.listens { Some(tracking(node, None, question.deadline).await?) } else { None };
    let all = |_: &Connection| {
        let mut all = steps();
        all.push(Call::command(["INFO", "server"]));
        all
    };
    let answer = node.call(None, question.deadline, question.patience, all).await?;
    let mut replies = answer.replies;
    let is_error = |reply: &&Value| matches!(reply, Value::ServerError(_));
    if let Some(Value::ServerError(error)) = replies.iter().find(is_error) {
        return Err(fault::of(error).at(&answer.connection.peer()));
    }
    let info = properties(&replies.pop().unwrap_or(Value::Nil));
    let lacking = |name: &str| fault::nonsense(format!("INFO without {name}"));
    let run = info.text("run_id").ok_or_else(|| lacking("run_id"))?.to_owned();
    let uptime = info.number("uptime_in_seconds").ok_or_else(|| lacking("uptime_in_seconds"))?;
    // The uptime is the difference of two whole seconds, so it may be one too high.
    let short = max_ttl.saturating_sub(Duration::from_secs(uptime.saturating_sub(1)));
    let votes_from = if short.is_zero() { Moment::from_nanos(0) } else { node.clock.now() + short };
    let told = told.filter(|(connection, _)| connection.tells());
    Ok(Answer { replies, run, votes_from, told })
}
