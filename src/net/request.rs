//! Sends one request with a deadline.
//!
//! It uses the open connection, or opens one ([`Link`]). It retries with growing pauses if another connection, another
//! server or time may help, which the [`Fault`] tells ([`Retry`]). If no server answers, the error is the cause. How
//! long it retries is the caller's [`Patience`].

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::cause;
use super::fault::{Fault, FaultResult, Retry};
use super::link::{Dial, Link};
use super::rank::Rank;
use crate::lock::{ErrorKind, Moment};

/// The time for one server of several before the next one is tried.
const ONE_OF_SEVERAL: Duration = Duration::from_millis(1500);
/// How often that time may double while no server answers in time: a whole cluster may be slow.
const MOST_DOUBLINGS: u32 = 4;
/// A server that had less time than this does not show how long answers take.
const TELLING: Duration = Duration::from_millis(250);
/// The first and the longest pause between two rounds over all servers.
const BETWEEN_ROUNDS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// The longest pause of a holder after a server did not serve it.
const FOR_ROOM: Duration = Duration::from_millis(100);
/// The first and the longest pause before a request is sent again that the server undid in favour of another one.
const BEFORE_AGAIN: (Duration, Duration) = (Duration::from_millis(3), Duration::from_millis(50));

/// How long a request is retried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// Each server is tried once, and a broken connection is replaced once. An unreachable service is an error at once.
    Once,
    /// Until the deadline, unless no server ever answered and none is present.
    Present,
    /// Until the deadline.
    Deadline,
}

/// Returns the node for the next attempt.
type Node<'a, D> = dyn Fn() -> <D as Dial>::Node + Send + Sync + 'a;
/// Sends a request over a connection.
type Request<'a, D> = dyn FnMut(Arc<<D as Dial>::Connection>) -> Sent<'a> + Send + 'a;
/// A request that was sent; it stores its answer.
type Sent<'a> = Pin<Box<dyn Future<Output = FaultResult<()>> + Send + 'a>>;

/// The progress of a request.
struct Progress<D: Dial> {
    /// The connection over which it is sent.
    current: Option<Arc<D::Connection>>,
    /// The last fault.
    last: Option<Fault>,
    /// The server in use.
    place: String,
    /// When the last attempt sent the request.
    sent: Moment,
}

impl<D: Dial> Progress<D> {
    /// Records the fault of a server. A refusal takes precedence over an unreachable server, but only within one round.
    fn note(&mut self, fault: &Fault, is_new_round: bool) {
        let told = self.last.as_ref().is_some_and(|last| last.kind != ErrorKind::Unavailable);
        if is_new_round || !told {
            self.last = Some(fault.clone());
        }
    }
}

/// Why one attempt failed.
struct Failure {
    fault: Fault,
    /// Whether a connection existed.
    connected: bool,
    /// Whether the server sent neither an answer nor an error in its time.
    silent: bool,
}

/// The failures of one request.
#[derive(Default)]
struct Failures {
    /// The number of attempts without a connection.
    unreached: usize,
    /// The number of connections that broke.
    broken: usize,
    /// The number of servers in a row that refused this client. Time does not change a refusal.
    refusals: usize,
    /// Whether a server was silent.
    silent: bool,
}

impl Failures {
    fn count(&self) -> usize {
        self.unreached + self.broken
    }

    fn add(&mut self, failure: &Failure) {
        *(if failure.connected { &mut self.broken } else { &mut self.unreached }) += 1;
        self.refusals = if failure.fault.kind.is_transient() { 0 } else { self.refusals + 1 };
        self.silent |= failure.silent;
    }
}

impl<D: Dial> Link<D> {
    /// Sends `request` over the connection for the node that `node` returns, and waits for the answer until `deadline`.
    /// The request may be executed repeatedly, and also after an error, so it must be idempotent.
    ///
    /// Errors: the server's, or the cause if no server answers. Dropping the future does not unsend requests.
    pub async fn call<T, R>(
        &self,
        deadline: Moment,
        patience: Patience,
        node: impl Fn() -> D::Node + Send + Sync,
        mut request: impl FnMut(Arc<D::Connection>) -> R + Send,
    ) -> FaultResult<T>
    where
        T: Send,
        R: Future<Output = FaultResult<T>> + Send,
    {
        let answer = Mutex::new(None);
        // Without the types of the request and its answer, all requests to a service share one compiled loop.
        let mut request = |connection| -> Sent<'_> {
            let asked = request(connection);
            Box::pin(async {
                let found = asked.await?;
                *answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
                Ok(())
            })
        };
        let answered: Sent<'_> = Box::pin(self.execute(deadline, patience, &node, &mut request));
        answered.await?;
        let answer = answer.into_inner().unwrap_or_else(PoisonError::into_inner);
        answer.ok_or_else(|| Fault::spent("the answer was not stored"))
    }

    /// Executes [`Link::call`], whose `request` stores the answer.
    async fn execute(
        &self,
        deadline: Moment,
        patience: Patience,
        node: &Node<'_, D>,
        request: &mut Request<'_, D>,
    ) -> FaultResult<()> {
        let begun = self.clock.now();
        let mut progress = Progress { current: None, last: None, place: String::new(), sent: self.begun };
        let work = self.attempts(deadline, patience, node, request, &mut progress);
        let gives_up = patience != Patience::Deadline;
        let found =
            match cause::by(self.clock, deadline, gives_up, work, || self.why_late(node(), deadline)).await {
                Ok(answer) => return answer.map_err(|fault| self.lasting(fault)),
                Err(found) => found.or(progress.last),
            };
        // An answer after a look refutes what that guessed.
        let found = found.filter(|found| !self.answered() || !cause::is_guess(&found.reason));
        let is_brief = progress.current.is_none() && self.clock.now().since(begun) < TELLING;
        let found = found.or_else(|| is_brief.then(|| self.refusal(&node())).flatten());
        let silent = match progress.current {
            Some(connection) => {
                // The cause of the delay may not affect another connection.
                self.leave_unanswered(&connection);
                cause::no_answer(&self.dial.peer(&connection), self.clock.now().since(progress.sent))
            }
            None => match self.login() {
                // A login in progress is more precise than a probe that found only silence.
                Some(length) if found.as_ref().is_none_or(|found| cause::is_silence(&found.reason)) => {
                    return Err(Fault::spent(cause::no_login(&progress.place, length)));
                }
                _ => cause::silent(&progress.place),
            },
        };
        Err(self.lasting(found.unwrap_or_else(|| Fault::spent(silent))))
    }

    fn answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// Adds since when no server has answered, if none ever did.
    fn lasting(&self, fault: Fault) -> Fault {
        Fault { reason: cause::lasting(fault.reason, self.clock.now().since(self.begun)), ..fault }
    }

    /// Returns why a service does not answer, if no server of it ever did.
    async fn why_silent(&self, node: &D::Node) -> Option<Fault> {
        if self.answered() { None } else { self.look(node).await }
    }

    /// Returns why a request is not answered for long.
    async fn why_late(&self, node: D::Node, deadline: Moment) -> Option<Fault> {
        if let Some(found) = self.why_silent(&node).await {
            return Some(found);
        }
        // Late, because one more connection for every slow request would be too many.
        self.clock.sleep_until(deadline - cause::BEFORE).await;
        self.held_up(&node).await
    }

    /// Attempts a request until it succeeds or `patience` ends; [`Link::call`] adds the deadline.
    async fn attempts(
        &self,
        deadline: Moment,
        patience: Patience,
        node: &Node<'_, D>,
        request: &mut Request<'_, D>,
        progress: &mut Progress<D>,
    ) -> FaultResult<()> {
        let (mut between_rounds, mut before_again) = (BETWEEN_ROUNDS, BEFORE_AGAIN);
        let mut failures = Failures::default();
        loop {
            let node = node();
            let count = self.dial.servers(&node).max(1);
            let given = self.time_for_one(count, count - failures.count() % count, deadline);
            let half = self.half_way(deadline, patience);
            let failure = match self.attempt(&node, given, half, request, progress).await {
                Ok(()) => return Ok(()),
                Err(failure) => failure,
            };
            let fault = failure.fault.clone();
            match fault.retry {
                Retry::OtherNode => continue,
                Retry::Again => {
                    progress.last = Some(fault);
                    self.pause(&mut before_again).await;
                    continue;
                }
                // The fault comes from a server that is usable, or would be with more time.
                _ if failure.connected && !fault.is_spent() => {
                    if patience == Patience::Once || !fault.kind.is_transient() {
                        return Err(fault);
                    }
                    progress.last = Some(fault);
                    self.pause(&mut between_rounds).await;
                    continue;
                }
                _ => {}
            }
            let patience = self.patience_after(&fault, patience, &mut between_rounds);
            progress.note(&fault, failures.count().is_multiple_of(count));
            failures.add(&failure);
            let ends = failures.refusals >= count
                || patience == Patience::Once && (failures.unreached >= count || failures.broken > 1);
            let is_first_round = failures.count() == count && !failures.silent;
            if (ends || is_first_round)
                && matches!(fault.kind, ErrorKind::Unavailable | ErrorKind::Corrupt)
                && let Some(found) = self.why_silent(&node).await
            {
                let is_nowhere = found.is_spent() && patience == Patience::Present;
                if ends || is_nowhere || !found.is_transient() {
                    return Err(found);
                }
                progress.last = Some(found);
            }
            if ends {
                return Err(progress.last.take().unwrap_or(fault));
            }
            if patience != Patience::Once && failures.count().is_multiple_of(count) {
                self.pause(&mut between_rounds).await;
            }
        }
    }

    /// Returns the patience after `fault`, and shortens the pauses of a holder: it must not queue for room behind
    /// waiters for its lock.
    fn patience_after(
        &self,
        fault: &Fault,
        patience: Patience,
        pauses: &mut (Duration, Duration),
    ) -> Patience {
        if !fault.is_transient() || self.rank() != Rank::Holds {
            return patience;
        }
        *pauses = (pauses.0.min(FOR_ROOM), FOR_ROOM);
        if fault.kind == ErrorKind::Full { Patience::Deadline } else { patience }
    }

    /// Sends `request` once over the connection for `node`. Without an answer by `half`, it is also sent over a new
    /// connection.
    async fn attempt(
        &self,
        node: &D::Node,
        given: Option<Duration>,
        half: Option<Moment>,
        request: &mut Request<'_, D>,
        progress: &mut Progress<D>,
    ) -> Result<(), Failure> {
        self.turn_comes(node).await;
        let begun = self.clock.now();
        let turn = self.turn.load(Ordering::Relaxed);
        progress.current = None;
        progress.place = self.place(node);
        let until = given.map_or(Moment::NEVER, |given| begun + given);
        let opened = self.opened();
        let connection = match self.clock.by(until, self.connection(node)).await {
            Some(Ok(connection)) => connection,
            Some(Err(fault)) => {
                self.pass_over(turn);
                return Err(Failure { fault, connected: false, silent: false });
            }
            None => return Err(self.late(given, self.pass_over(turn), &progress.place, false)),
        };
        progress.current = Some(Arc::clone(&connection));
        progress.sent = self.clock.now();
        let until = if D::ANSWERS_SOON { until } else { Moment::NEVER };
        let is_new = self.opened() > opened;
        let half = half.filter(|_| !is_new).unwrap_or(Moment::NEVER);
        match self.clock.by(until, self.asked(node, &connection, half, request)).await {
            Some(Ok(())) => {
                self.answered.store(true, Ordering::Relaxed);
                *self.found() = None;
                if self.clock.now().since(begun) <= ONE_OF_SEVERAL {
                    self.slow.store(0, Ordering::Relaxed);
                }
                Ok(())
            }
            Some(Err(fault)) => {
                if fault.is_spent() {
                    self.give_up(&connection);
                } else {
                    self.answered.store(true, Ordering::Relaxed);
                }
                let fault = fault.at(&self.dial.peer(&connection));
                Err(Failure { fault, connected: true, silent: false })
            }
            None => {
                let is_news = self.leave_unanswered(&connection);
                Err(self.late(given, is_news, &self.dial.peer(&connection), true))
            }
        }
    }

    /// Returns until when to rely on the open connection alone. Only requests with [`Patience::Deadline`], such as
    /// removals, have this limit.
    fn half_way(&self, deadline: Moment, patience: Patience) -> Option<Moment> {
        (patience == Patience::Deadline).then(|| deadline - deadline.since(self.clock.now()) / 2)
    }

    /// Sends `request` over `connection` and returns the answer. A firewall may have forgotten the connection: if there
    /// is no answer by `half`, the request is also sent over a new one, and the first answer counts.
    async fn asked(
        &self,
        node: &D::Node,
        connection: &Arc<D::Connection>,
        half: Moment,
        request: &mut Request<'_, D>,
    ) -> FaultResult<()> {
        let mut asked = request(Arc::clone(connection));
        if let Some(answer) = self.clock.by(half, &mut asked).await {
            return answer;
        }
        self.leave_unanswered(connection);
        let beside = async { request(self.connection(node).await?).await };
        tokio::select! {
            biased;
            answer = asked => answer,
            answer = beside => answer,
        }
    }

    /// Returns the time limit for one of `count` servers; `None` for a single server. It is the usual time, or an equal
    /// share of the remaining time if that is less. It doubles for each whole round without an answer. `left` is the
    /// number of servers not yet tried in this round.
    fn time_for_one(&self, count: usize, left: usize, deadline: Moment) -> Option<Duration> {
        let as_factor = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).max(1);
        let remaining = deadline.since(self.clock.now());
        let rounds = self.slow.load(Ordering::Relaxed) / as_factor(count);
        let usual = ONE_OF_SEVERAL.min(remaining / as_factor(left));
        (count > 1).then(|| (usual * 2_u32.pow(rounds.min(MOST_DOUBLINGS))).min(remaining))
    }

    /// Returns the failure of a server that has not answered in its `given` time. It counts as slow if `is_news`.
    fn late(&self, given: Option<Duration>, is_news: bool, place: &str, connected: bool) -> Failure {
        if is_news && given.is_some_and(|given| given >= TELLING) {
            self.slow.fetch_add(1, Ordering::Relaxed);
        }
        Failure { fault: Fault::spent(cause::silent(&place)), connected, silent: true }
    }

    /// Waits for the first of the two lengths, and doubles it, up to the second.
    async fn pause(&self, (next, longest): &mut (Duration, Duration)) {
        self.clock.sleep_until(self.clock.now() + *next).await;
        *next = (*next * 2).min(*longest);
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
