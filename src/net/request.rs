//! Sends one request with a deadline.
//!
//! It uses the open connection, or opens one ([`Link`]). It retries with growing pauses if another connection, another
//! server or time may help, which the [`Fault`] tells ([`Retry`]). If no server answers, the error is the cause. How
//! long it retries is the caller's [`Patience`].

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::cause;
use super::fault::{Fault, FaultResult, Retry};
use super::link::{Dial, Link};
use crate::lock::{ErrorKind, Moment};
use crate::sync::locked;

/// The time for one server of several before the next one is tried.
const ONE_OF_SEVERAL: Duration = Duration::from_millis(1500);
/// How often that time may double while no server answers in time: a whole cluster may be slow.
const MOST_DOUBLINGS: u32 = 4;
/// The first pause between two rounds over all servers.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(20);
/// The first and the longest pause before a request is sent again because the server asked for that.
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
    /// The number of attempts without a connection.
    unreached: usize,
    /// The number of connections that broke.
    broken: usize,
    /// The number of servers in a row that refused this client. Time does not change a refusal.
    refusals: usize,
}

impl<D: Dial> Progress<D> {
    fn failures(&self) -> usize {
        self.unreached + self.broken
    }

    /// Records the fault of one of `count` servers. A refusal takes precedence over an unreachable server, but only
    /// within one round.
    fn note(&mut self, fault: &Fault, count: usize) {
        let told = self.last.as_ref().is_some_and(|last| last.kind != ErrorKind::Unavailable);
        if !told || self.failures().is_multiple_of(count) {
            self.last = Some(fault.clone());
        }
        *(if self.current.is_some() { &mut self.broken } else { &mut self.unreached }) += 1;
        self.refusals = if fault.kind.is_transient() { 0 } else { self.refusals + 1 };
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
                *locked(&answer) = Some(found);
                Ok(())
            })
        };
        let answered: Sent<'_> = Box::pin(self.execute(deadline, patience, &node, &mut request));
        answered.await?;
        let answer = locked(&answer).take();
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
        let mut progress = Progress { current: None, last: None, unreached: 0, broken: 0, refusals: 0 };
        let work = self.attempts(deadline, patience, node, request, &mut progress);
        let gives_up = patience != Patience::Deadline;
        let found = match cause::by(self.clock, deadline, gives_up, work, || self.why_silent(node())).await {
            Ok(answer) => return answer,
            Err(found) => found.or(progress.last),
        };
        // An answer after a look refutes what that guessed.
        let found = found.filter(|found| !self.answered() || !cause::is_guess(&found.reason));
        let place = match progress.current {
            Some(connection) => {
                // The cause of the delay may not affect another connection.
                self.leave_unanswered(&connection);
                self.dial.peer(&connection)
            }
            None => self.place(&node()),
        };
        Err(found.unwrap_or_else(|| Fault::spent(cause::silent(&place))))
    }

    fn answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// Returns why a service does not answer, if no server of it ever did.
    async fn why_silent(&self, node: D::Node) -> Option<Fault> {
        if self.answered() { None } else { self.look(&node).await }
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
        let mut between_rounds = (BETWEEN_ROUNDS, self.rank().longest_pause());
        let mut before_again = BEFORE_AGAIN;
        loop {
            let node = node();
            let count = self.dial.servers(&node).max(1);
            let given = self.time_for_one(count, count - progress.failures() % count, deadline);
            // Only requests with this patience, such as removals, do not rely on the open connection alone.
            let remaining = deadline.since(self.clock.now());
            let half = if patience == Patience::Deadline { deadline - remaining / 2 } else { Moment::NEVER };
            let Err(fault) = self.attempt(&node, given, half, request, progress).await else {
                return Ok(());
            };
            match fault.retry {
                Retry::Again => {
                    progress.last = Some(fault);
                    self.pause(&mut before_again).await;
                    continue;
                }
                // The fault comes from a server that is usable, or would be with more time.
                _ if progress.current.is_some() && !fault.is_spent() => {
                    if patience == Patience::Once || !fault.kind.is_transient() {
                        return Err(fault);
                    }
                    progress.last = Some(fault);
                    self.pause(&mut between_rounds).await;
                    continue;
                }
                _ => {}
            }
            progress.note(&fault, count);
            let ends = progress.refusals >= count
                || patience == Patience::Once && (progress.unreached >= count || progress.broken > 1);
            if (ends || progress.failures() == count)
                && matches!(fault.kind, ErrorKind::Unavailable | ErrorKind::Corrupt)
                && let Some(found) = self.why_silent(node).await
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
            if patience != Patience::Once && progress.failures().is_multiple_of(count) {
                self.pause(&mut between_rounds).await;
            }
        }
    }

    /// Sends `request` once over the connection for `node`. Without an answer by `half`, it is also sent over a new
    /// connection. A server that does not answer in the `given` time counts as slow.
    async fn attempt(
        &self,
        node: &D::Node,
        given: Option<Duration>,
        half: Moment,
        request: &mut Request<'_, D>,
        progress: &mut Progress<D>,
    ) -> FaultResult<()> {
        self.turn_comes(node).await;
        let begun = self.clock.now();
        let turn = self.turn.load(Ordering::Relaxed);
        progress.current = None;
        let place = self.place(node);
        let until = given.map_or(Moment::NEVER, |given| begun + given);
        let late = |is_news, place: &str| {
            self.slow.fetch_add(u32::from(is_news), Ordering::Relaxed);
            Fault::spent(cause::silent(&place))
        };
        let opened = self.opened();
        let connection = match self.clock.by(until, self.connection(node)).await {
            Some(Ok(connection)) => connection,
            Some(Err(fault)) => {
                self.pass_over(turn);
                return Err(fault);
            }
            None => return Err(late(self.pass_over(turn), &place)),
        };
        progress.current = Some(Arc::clone(&connection));
        let until = if D::ANSWERS_SOON { until } else { Moment::NEVER };
        let half = if self.opened() > opened { Moment::NEVER } else { half };
        let peer = || self.dial.peer(&connection);
        let Some(answer) = self.clock.by(until, self.asked(node, &connection, half, request)).await else {
            return Err(late(self.leave_unanswered(&connection), &peer()));
        };
        match &answer {
            Err(fault) if fault.is_spent() => {
                self.give_up(&connection);
            }
            _ => self.answered.store(true, Ordering::Relaxed),
        }
        if answer.is_ok() && self.clock.now().since(begun) <= ONE_OF_SEVERAL {
            self.slow.store(0, Ordering::Relaxed);
        }
        answer.map_err(|fault| fault.at(&peer()))
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

    /// Waits for the first of the two lengths, and doubles it, up to the second.
    async fn pause(&self, (next, longest): &mut (Duration, Duration)) {
        self.clock.sleep_until(self.clock.now() + *next).await;
        *next = (*next * 2).min(*longest);
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
