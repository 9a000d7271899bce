//! The nodes, and one question to all of them.

use std::future::Future;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::Value;
use tokio::task::JoinSet;

use super::config::RedlockConfig;
use crate::backend::redis::client::Client;
use crate::backend::redis::connection::Connection;
use crate::backend::redis::examine::properties;
use crate::backend::redis::fault;
use crate::backend::redis::script::Call;
use crate::clock::Clock;
use crate::lock::{ErrorKind, Moment, Reason};
use crate::net::fault::{Fault, FaultResult};
use crate::net::request::Patience;

/// How long a node may hold up an answer that the others have given.
pub(super) const STRAGGLE: Duration = Duration::from_millis(250);

/// The nodes of one client.
#[derive(Debug)]
pub(super) struct Nodes {
    pub(super) all: Vec<Arc<Node>>,
    pub(super) clock: Clock,
    /// For how long a restarted node abstains; no ttl is longer.
    pub(super) max_ttl: Duration,
    /// How many attempts this client has made.
    pub(super) attempts: AtomicUsize,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) service: Client,
    /// What it said of itself over which connection.
    server: Mutex<Option<(u64, ServerFacts)>>,
}

/// What a node said of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ServerFacts {
    /// Which server it is, since its last start.
    pub(super) run: String,
    /// From when its word counts: before, it may have forgotten what it gave before it was restarted.
    pub(super) votes_from: Moment,
}

/// What a node answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) replies: Vec<Value>,
    pub(super) server: ServerFacts,
    pub(super) connection: Arc<Connection>,
    /// How often it had told of a change over that connection before it was asked.
    pub(super) notified: u64,
}

/// What each node answered; nothing yet, or what went wrong.
pub(super) type Answers<T> = Vec<Option<FaultResult<T>>>;

/// What was known when the steps were sent, and what went before them.
#[derive(Clone, Default)]
struct Sent {
    server: Option<ServerFacts>,
    listens: bool,
    notified: u64,
}

impl Nodes {
    /// Connections of their own to all nodes.
    pub(super) fn of(config: &RedlockConfig, clock: Clock) -> Arc<Self> {
        let node =
            |config: &_| Node { service: Client::new(Clone::clone(config), clock), server: Mutex::default() };
        let all = config.nodes.iter().map(|config| Arc::new(node(config))).collect();
        Arc::new(Self { all, clock, max_ttl: config.max_ttl, attempts: AtomicUsize::new(0) })
    }

    /// How many are a majority.
    pub(super) fn majority(&self) -> usize {
        self.all.len() / 2 + 1
    }

    /// What `ask` learns of each node. Waits for all; once the answers are `enough`, at most for `straggle`. What is still under way
    /// then goes on.
    pub(super) async fn each<T, F>(
        &self,
        straggle: Duration,
        deadline: Moment,
        ask: impl Fn(usize, Arc<Node>) -> F,
        enough: impl Fn(&Answers<T>) -> bool,
    ) -> Answers<T>
    where
        T: Send + 'static,
        F: Future<Output = FaultResult<T>> + Send + 'static,
    {
        let mut under_way = JoinSet::new();
        for (at, node) in self.all.iter().enumerate() {
            let asked = ask(at, Arc::clone(node));
            under_way.spawn(async move { (at, asked.await) });
        }
        let mut found: Answers<T> = self.all.iter().map(|_| None).collect();
        let mut until = deadline + Duration::from_millis(5);
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
                if straggle.is_zero() {
                    break;
                }
                until = until.min(self.clock.now() + straggle);
            }
        }
        under_way.detach_all();
        found
    }

    /// What each node answers to `steps`.
    pub(super) async fn answers(
        &self,
        straggle: Duration,
        deadline: Moment,
        steps: Vec<Call>,
    ) -> Answers<Answer> {
        let max_ttl = self.max_ttl;
        let ask = |_, node: Arc<Node>| {
            let steps = steps.clone();
            async move { node.ask(false, max_ttl, deadline, || steps.clone()).await }
        };
        self.each(straggle, deadline, ask, |found| answered(found) >= self.majority()).await
    }

    /// The replies of a majority at least, `None` of a node that gave none. Too few are an error.
    pub(super) async fn replies(
        &self,
        deadline: Moment,
        steps: Vec<Call>,
    ) -> FaultResult<Vec<Option<Vec<Value>>>> {
        let answers = self.answers(STRAGGLE, deadline, steps).await;
        self.refuse_too_few(&answers)?;
        Ok(answers.into_iter().map(|answer| Some(answer?.ok()?.replies)).collect())
    }

    /// How many keys of a claim the nodes have changed, each; otherwise as [`Nodes::replies`].
    pub(super) async fn changed(&self, deadline: Moment, step: Call) -> FaultResult<Vec<bool>> {
        let all = self.replies(deadline, vec![step]).await?;
        all.into_iter().flatten().map(|replies| Ok(count(&replies, 0)? > 0)).collect()
    }

    pub(super) fn refuse_too_few<T>(&self, answers: &Answers<T>) -> FaultResult<()> {
        let answered = answered(answers);
        if answered >= self.majority() { Ok(()) } else { Err(self.too_few(answered, answers)) }
    }

    /// Whether a claim holds of which `done` nodes say that they `did` what a holder may ask for, and `without` that they know
    /// nothing of it.
    ///
    /// Errors: it depends on nodes that say neither.
    pub(super) fn verdict(&self, done: usize, without: usize, did: &str) -> FaultResult<bool> {
        let all = self.all.len();
        if done >= self.majority() {
            return Ok(true);
        }
        // Even if all the others have it, they are too few.
        if all - without < self.majority() {
            return Ok(false);
        }
        let reason = format!(
            "{done} of {all} nodes have {did} and {without} know nothing of it, so it may hold or not"
        );
        Err(Fault::unavailable(reason))
    }

    /// What it means that no more than `usable` nodes could be used.
    pub(super) fn too_few<T>(&self, usable: usize, answers: &Answers<T>) -> Fault {
        let faults: Vec<&Fault> =
            answers.iter().flatten().filter_map(|answer| answer.as_ref().err()).collect();
        let all = self.all.len();
        let reasons: Vec<Reason> = faults.iter().map(|fault| fault.reason.clone()).collect();
        let reason = if reasons.is_empty() {
            format!("{usable} of {all} nodes confirm it").into()
        } else {
            Reason::within(&reasons, |reasons| format!("{usable} of {all} nodes can be used ({reasons})"))
        };
        // What no waiting helps against is said as what it is.
        let any = |kind| faults.iter().any(|fault| fault.kind == kind);
        let all_corrupt = !faults.is_empty() && faults.iter().all(|fault| fault.kind == ErrorKind::Corrupt);
        let kind =
            [ErrorKind::Denied, ErrorKind::Invalid, ErrorKind::Unsupported].into_iter().find(|k| any(*k));
        let kind = kind.or(all_corrupt.then_some(ErrorKind::Corrupt));
        // With room for this client they would be enough.
        let full = faults.iter().filter(|fault| fault.kind == ErrorKind::Full).count();
        let kind = kind.or((full > 0 && usable + full >= self.majority()).then_some(ErrorKind::Full));
        Fault::new(kind.unwrap_or(ErrorKind::Unavailable), reason)
    }
}

/// How many have answered.
pub(super) fn answered<T>(answers: &Answers<T>) -> usize {
    answers.iter().flatten().filter(|answer| answer.is_ok()).count()
}

/// The `n`th reply as a number.
pub(super) fn count(replies: &[Value], n: usize) -> FaultResult<i64> {
    match replies.get(n) {
        Some(Value::Int(number)) => Ok(*number),
        Some(Value::ServerError(error)) => Err(fault::of(error)),
        _ => Err(fault::nonsense("not a number")),
    }
}

impl Node {
    /// What it answers to `steps`, which are made when they are sent; if somebody `listens`, it tells from then on of the next change
    /// of each key that is read. An error among the replies is an error.
    pub(super) async fn ask(
        &self,
        listens: bool,
        max_ttl: Duration,
        deadline: Moment,
        steps: impl Fn() -> Vec<Call> + Send + Sync,
    ) -> FaultResult<Answer> {
        let sent = Mutex::new(Sent::default());
        let make = |connection: &Connection| {
            let now = Sent {
                server: self.server_over(connection),
                listens: listens && connection.can_notify.get().is_none(),
                notified: connection.notified_count(),
            };
            let mut all = Vec::new();
            if now.server.is_none() {
                all.push(Call::command(["INFO", "server"]));
            }
            if now.listens {
                all.extend([Call::command(["HELLO", "3"]), Call::command(["CLIENT", "TRACKING", "ON"])]);
            }
            *sent.lock().unwrap_or_else(PoisonError::into_inner) = now;
            all.extend(steps());
            all
        };
        let answer = self.service.call(None, deadline, Patience::Once, make).await?;
        let sent = sent.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (connection, mut replies) = (answer.connection, answer.replies.into_iter());
        let server = if let Some(server) = sent.server {
            server
        } else {
            let said = replies.next().ok_or_else(|| fault::nonsense("no reply"))?;
            let server = self.introduced(&said, max_ttl)?;
            let known = Some((connection.number(), server.clone()));
            *self.server.lock().unwrap_or_else(PoisonError::into_inner) = known;
            server
        };
        if sent.listens {
            // A user without the right to it is told nothing, and looks from time to time.
            let (hello, tracking) = (replies.next(), replies.next());
            connection.answered(hello.as_ref(), tracking.as_ref());
        }
        let replies: Vec<Value> = replies.collect();
        if let Some(Value::ServerError(error)) =
            replies.iter().find(|reply| matches!(reply, Value::ServerError(_)))
        {
            return Err(fault::of(error).at(&connection.peer()));
        }
        Ok(Answer { replies, server, connection, notified: sent.notified })
    }

    fn server_over(&self, connection: &Connection) -> Option<ServerFacts> {
        let known = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().filter(|(over, _)| *over == connection.number()).map(|(_, server)| server.clone())
    }

    fn introduced(&self, reply: &Value, max_ttl: Duration) -> FaultResult<ServerFacts> {
        if let Value::ServerError(error) = reply {
            return Err(fault::of(error));
        }
        let info = properties(reply);
        let lacking = |name: &str| fault::nonsense(format!("INFO without {name}"));
        let run = info.text("run_id").ok_or_else(|| lacking("run_id"))?;
        let uptime = info.number("uptime_in_seconds").ok_or_else(|| lacking("uptime_in_seconds"))?;
        // It is the difference of two whole seconds.
        let short = max_ttl.saturating_sub(Duration::from_secs(uptime.saturating_sub(1)));
        let now = self.service.clock.now();
        let votes_from = if short.is_zero() { Moment::from_nanos(0) } else { now + short };
        Ok(ServerFacts { run: run.to_owned(), votes_from })
    }
}
