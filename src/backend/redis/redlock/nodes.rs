//! The nodes, and requests to all of them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::task::JoinSet;

use super::config::RedlockConfig;
use crate::backend::redis::client::Client;
use crate::backend::redis::connection::Heard;
use crate::backend::redis::dial::parsed;
use crate::backend::redis::examine::properties;
use crate::backend::redis::fault;
use crate::backend::redis::script::Call;
use crate::clock::Clock;
use crate::lock::{ErrorKind, Moment, Reason};
use crate::net::cause;
use crate::net::fault::{Fault, FaultResult, Retry};
use crate::net::request::Patience;

/// How long the other nodes may take once a majority has decided.
const STRAGGLE: Duration = Duration::from_millis(250);

/// Requests notifications of all keys that are read, also of this client's own changes.
const TRACKING: &[&str] = &["CLIENT", "TRACKING", "ON"];

/// The nodes of one client.
#[derive(Debug)]
pub(super) struct Nodes {
    pub(super) all: Vec<Arc<Client>>,
    pub(super) clock: Clock,
    /// How long a restarted node does not vote; no ttl is longer.
    pub(super) max_ttl: Duration,
}

/// How to ask a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    pub(super) deadline: Moment,
    pub(super) patience: Patience,
    /// Whether the nodes are to report later changes of the keys that are read.
    pub(super) listens: bool,
    /// Whether the answer is a vote, which a restarted node does not have: it may have lost a hold that it granted.
    pub(super) votes: bool,
    /// Whether the nodes decide by numbers: 0 is a refusal.
    pub(super) decides: bool,
}

impl Question {
    pub(super) fn by(deadline: Moment) -> Self {
        Self { deadline, patience: Patience::Once, listens: false, votes: false, decides: false }
    }
}

/// The answer of a node.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) replies: Vec<Value>,
    /// The identity of the server process.
    run: String,
    /// Where it reports changes after this answer, if it does.
    pub(super) heard: Option<Heard>,
}

impl Answer {
    /// Returns the first reply as a number.
    pub(super) fn number(&self) -> Option<u64> {
        parsed(self.replies.first()?)
    }
}

/// The answer of each node, or why it is missing.
pub(super) type Answers<T = Answer> = Vec<FaultResult<T>>;

/// Returns the received answers.
pub(super) fn answered<T>(answers: &Answers<T>) -> impl Iterator<Item = &T> {
    answers.iter().flatten()
}

/// Returns the number of nodes with this number as their first reply.
pub(super) fn count(answers: &Answers, number: impl Fn(u64) -> bool) -> usize {
    answered(answers).filter_map(Answer::number).filter(|found| number(*found)).count()
}

impl Nodes {
    pub(super) fn of(config: RedlockConfig, clock: Clock) -> Arc<Self> {
        let all = config.nodes.into_iter().map(|node| Arc::new(Client::new(node, clock))).collect();
        Arc::new(Self { all, clock, max_ttl: config.max_ttl })
    }

    /// Returns the least number of nodes that is a majority.
    pub(super) fn majority(&self) -> usize {
        self.all.len() / 2 + 1
    }

    /// Executes `ask` for each node until all have answered. Waits only [`STRAGGLE`] longer once a majority agrees, or can
    /// no longer agree: with an answer that is no refusal. The other requests continue.
    pub(super) async fn each<T, F>(
        &self,
        deadline: Moment,
        is_refusal: impl Fn(&T) -> bool,
        ask: impl Fn(Arc<Client>) -> F,
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
        let silent = |node: &Arc<Client>| Err(Fault::spent(cause::silent(&node.config.identity())));
        let mut found: Answers<T> = self.all.iter().map(silent).collect();
        // The nodes' own errors at the deadline are more precise.
        let mut until = deadline + Duration::from_millis(5);
        while let Some(Some(Ok((at, answer)))) = self.clock.by(until, under_way.join_next()).await {
            found[at] = answer;
            let refusals = answered(&found).filter(|answer| is_refusal(answer)).count();
            let agree = answered(&found).count() - refusals;
            if agree >= self.majority() || self.all.len() - refusals < self.majority() {
                until = until.min(self.clock.now() + STRAGGLE);
            }
        }
        under_way.detach_all();
        found
    }

    /// Sends `steps` to the nodes.
    pub(super) async fn ask(&self, question: Question, steps: Vec<Call>) -> Answers {
        let steps = Arc::new(steps);
        let max_ttl = self.max_ttl;
        let ask = |node: Arc<Client>| {
            let steps = Arc::clone(&steps);
            async move { ask(&node, max_ttl, question, &steps).await }
        };
        let is_refusal = |answer: &Answer| question.decides && answer.number() == Some(0);
        self.each(question.deadline, is_refusal, ask).await
    }

    /// Sends `steps` to the nodes, and returns the answers of at least a majority. Too few are an error.
    pub(super) async fn majority_of(&self, question: Question, steps: Vec<Call>) -> FaultResult<Answers> {
        let answers = self.ask(question, steps).await;
        self.refuse_too_few(answered(&answers).count(), &answers)?;
        Ok(answers)
    }

    /// Errors: only `usable` nodes could be used, fewer than a majority.
    pub(super) fn refuse_too_few<T>(&self, usable: usize, found: &Answers<T>) -> FaultResult<()> {
        let all = self.all.len();
        if usable >= self.majority() {
            return Ok(());
        }
        let faults: Vec<&Fault> = found.iter().filter_map(|answer| answer.as_ref().err()).collect();
        let reasons: Vec<Reason> = faults.iter().map(|fault| fault.reason.clone()).collect();
        let reason = if reasons.is_empty() {
            format!("{usable} of {all} nodes confirm it").into()
        } else {
            Reason::within(&reasons, |reasons| format!("{usable} of {all} nodes vote ({reasons})"))
        };
        // Kinds that time does not change take precedence.
        let kinds = || faults.iter().map(|fault| fault.kind);
        let lasting = kinds().find(|kind| !kind.is_transient());
        let full = kinds().find(|kind| *kind == ErrorKind::Full);
        let kind = lasting.or(full).unwrap_or(ErrorKind::Unavailable);
        // Silent nodes may have executed the request.
        let is_silent = |(answer, node): (&FaultResult<T>, &Arc<Client>)| {
            answer.as_ref().is_err_and(Fault::is_spent) && node.link.has_connected()
        };
        let is_open = found.iter().zip(&self.all).any(is_silent);
        let retry = if is_open { Retry::OtherConnection } else { Retry::Nothing };
        Err(Fault::new(kind, reason).helped_by(retry))
    }

    /// Errors: an address is not that of an independent master.
    pub(super) fn refuse_unfit(&self, found: &Answers) -> FaultResult<()> {
        for (at, answer) in found.iter().enumerate() {
            let place = |at: usize| self.all[at].config.identity();
            let reason = match answer {
                Ok(answer) => {
                    let runs = |other: &Answer| other.run == answer.run;
                    let is_same = |other: &FaultResult<Answer>| other.as_ref().is_ok_and(runs);
                    let Some(other) = found[..at].iter().position(is_same) else { continue };
                    format!("{} and {} are the same server; give each server once", place(other), place(at))
                }
                Err(fault) if fault.retry == Retry::OtherServer => format!(
                    "{} is a replica: it follows its master and decides nothing; name independent masters only",
                    place(at)
                ),
                Err(_) => continue,
            };
            return Err(Fault::new(ErrorKind::Invalid, reason));
        }
        Ok(())
    }
}

/// Sends `steps` to `node`. An error reply is an error.
async fn ask(node: &Client, max_ttl: Duration, question: Question, steps: &[Call]) -> FaultResult<Answer> {
    let all: Vec<Call> = steps.iter().cloned().chain([Call::command(["INFO", "server"])]).collect();
    let Question { deadline, patience, .. } = question;
    if question.listens {
        node.listen(deadline, TRACKING).await?;
    }
    let answer = node.call(deadline, patience, &all).await?;
    let mut replies = answer.replies;
    let info = properties(&replies.pop().unwrap_or(Value::Nil));
    let (Some(run), Some(uptime)) = (info.text("run_id"), info.number("uptime_in_seconds")) else {
        return Err(fault::nonsense("INFO without run_id and uptime_in_seconds"));
    };
    // The uptime is the difference of two whole seconds, so it may be one too high.
    let short = max_ttl.saturating_sub(Duration::from_secs(uptime.saturating_sub(1)));
    if question.votes && !short.is_zero() {
        let (place, short) = (node.config.identity(), short.as_secs() + 1);
        let reason = format!("{place} abstains for {short} s after its restart, see --max-ttl");
        return Err(Fault::unavailable(reason));
    }
    Ok(Answer { replies, run: run.to_owned(), heard: answer.heard })
}
