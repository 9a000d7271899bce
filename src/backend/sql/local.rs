//! Waiting for a change of a claim or of a queue, and the state that a client keeps for that.
//!
//! A session that can report changes is asked to once, and reports them from then on. Otherwise the session sleeps until
//! a claim ahead is gone, or the claim is read again and again.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::watch;

use super::dialect::{LEFT, Session, Sets, Wait};
use super::rows;
use super::sessions::Sessions;
use super::statements::{Statements, UNCHANGED};
use crate::backend::claim_state::POLL;
use crate::backend::observe::LOOK;
use crate::lock::{ClaimId, LockName, Mode, Moment};
use crate::net::fault::FaultResult;
use crate::net::rank::NEXT;
use crate::net::request::Patience;
use crate::queue::store::{Answer, Key, Own, Seen, Target};
use crate::sync::locked;

/// The number of renewals in one ttl.
pub(super) const RENEWALS_PER_TTL: u32 = 3;

/// The longest ttl of a waiter that may give up its connection between renewals: it learns of its hold up to a third of
/// the ttl late.
const PARKS: Duration = Duration::from_secs(30);

/// The time between two reads of an observer if no change is reported or foreseen, which limits the effect of a lost
/// message.
const AT_LEAST: Duration = Duration::from_secs(10);

/// A session that reports changes of the claims of these ids.
type Armed = Option<(Arc<dyn Session>, HashSet<String>)>;

/// The session of the last answer.
#[derive(Debug, Default)]
enum Last {
    #[default]
    None,
    /// It is in use, unless it was dropped.
    Used(Weak<dyn Session>),
    /// It was closed, until the next renewal.
    Parked,
}

#[derive(Debug, Default)]
pub(super) struct Local {
    /// From when its ttl counts.
    renewed: watch::Sender<Option<Moment>>,
    /// The number of entries ahead in the longest of its queues.
    ahead: AtomicU32,
    last: Mutex<Last>,
    armed: Mutex<Armed>,
}

/// A wait of a claim.
#[derive(Clone, Copy)]
pub(super) struct Waiting<'a> {
    pub(super) service: &'a Sessions,
    pub(super) own: &'a Own,
    pub(super) on: &'a [Target],
    /// Whether this client has only one claim. Claims that share a connection would wake each other.
    pub(super) is_alone: bool,
}

impl Waiting<'_> {
    /// Returns the own entries and the targets.
    fn keys(&self) -> impl Iterator<Item = &Key> {
        self.own.keys.iter().chain(self.on.iter().map(|on| &on.key))
    }
}

/// How a client learns of a change.
enum Means {
    /// It has changed already.
    None,
    /// The session reports it, or sleeps until then. Without a session, the next renewal shows it.
    Told(Option<Arc<dyn Session>>, Option<Wait>),
    Polls,
}

impl Local {
    pub(super) fn renewed(&self, sent: Moment) {
        self.renewed.send_replace(Some(sent));
    }

    /// Remembers what an answer over `session` shows of the claim.
    pub(super) fn learn(&self, answer: &Answer, own: &Own, session: &Arc<dyn Session>) {
        let each = answer.queues.iter().zip(&own.keys);
        let at = each.filter_map(|(queue, key)| Some(queue.items.iter().find(|item| item.key == *key)?.at));
        let ahead = u32::try_from(at.max().unwrap_or(0)).unwrap_or(u32::MAX);
        self.ahead.store(ahead, Ordering::Relaxed);
        *locked(&self.last) = Last::Used(Arc::downgrade(session));
    }

    /// Implements [`crate::queue::store::Store::changed`] for this claim.
    pub(super) async fn changed(
        &self,
        waiting: Waiting<'_>,
        mut seen: Seen,
        until: Moment,
    ) -> FaultResult<()> {
        let (clock, mut renewed) = (waiting.service.clock, self.renewed.subscribe());
        loop {
            let renew_at = renewed
                .borrow_and_update()
                .map_or(Moment::NEVER, |at| at + waiting.own.ttl / RENEWALS_PER_TTL);
            let (session, wait) = match self.means(waiting, &mut seen, until.min(renew_at)).await? {
                Means::None => return Ok(()),
                Means::Told(session, wait) => (session, wait),
                Means::Polls => {
                    clock.sleep_until(until.min(clock.now() + POLL)).await;
                    return Ok(());
                }
            };
            let told = async {
                match &session {
                    Some(session) => session.notified_after(seen, wait.as_ref()).await,
                    None => std::future::pending().await,
                }
            };
            // A renewal that is due is not late yet.
            let next = if wait.is_some() { renew_at + POLL } else { Moment::NEVER };
            tokio::select! {
                () = told => return Ok(()),
                _ = renewed.changed() => {}
                () = clock.sleep_until(until) => return Ok(()),
                () = clock.sleep_until(next) => {}
            }
        }
    }

    /// Returns how to learn of the next change after `seen`, which becomes the number of notifications from which that
    /// counts.
    async fn means(&self, waiting: Waiting<'_>, seen: &mut Seen, until: Moment) -> FaultResult<Means> {
        if let Some(session) = self.listens(waiting, *seen) {
            return Ok(Means::Told(Some(session), None));
        }
        let session = match &*locked(&self.last) {
            Last::None => None,
            Last::Used(session) => session.upgrade().filter(|session| session.is_open()),
            Last::Parked => return Ok(Means::Told(None, None)),
        };
        let Some(session) = session else { return Ok(Means::None) };
        if session.can_notify() {
            return self.listen(waiting, seen).await;
        }
        let wait = self.sleep(waiting, until, &session);
        Ok(wait.map_or(Means::Polls, |wait| Means::Told(Some(session), Some(wait))))
    }

    /// Returns the session that reports all that concerns the claim since `seen`.
    fn listens(&self, waiting: Waiting<'_>, seen: Seen) -> Option<Arc<dyn Session>> {
        let armed = locked(&self.armed);
        let (session, claims) = armed.as_ref()?;
        let is_same = session.notified_count() >> 32 == seen >> 32;
        (session.is_open() && is_same && waiting.keys().all(|key| claims.contains(&key.text)))
            .then(|| Arc::clone(session))
    }

    async fn listen(&self, waiting: Waiting<'_>, seen: &mut Seen) -> FaultResult<Means> {
        let Waiting { service, own, on, .. } = waiting;
        let statements = Statements::new(&*service.dialect, &own.names, own.id, own.mode);
        // A new session knows only after its first answer whether it can report changes.
        let batch = |session: &Arc<dyn Session>| {
            if session.can_notify() { statements.listen(own, on) } else { statements.show() }
        };
        let deadline = service.clock.now() + own.ttl;
        let reply = service.call(deadline, Patience::Once, batch).await?;
        let Some(unchanged) = rows::number(&reply.sets, UNCHANGED) else {
            *locked(&self.last) = Last::Used(Arc::downgrade(&reply.session));
            return Ok(Means::None);
        };
        if self.parks(waiting, &reply.sets) {
            *locked(&self.armed) = None;
            *locked(&self.last) = Last::Parked;
            service.link.close(&reply.session);
            return Ok(Means::Told(None, None));
        }
        let known = locked(&self.armed).take().filter(|(session, _)| Arc::ptr_eq(session, &reply.session));
        let mut claims = known.map(|(_, claims)| claims).unwrap_or_default();
        claims.extend(waiting.keys().map(|key| key.text.clone()));
        *locked(&self.armed) = Some((Arc::clone(&reply.session), claims));
        *seen = reply.notified;
        Ok(if unchanged > 0 { Means::Told(Some(reply.session), None) } else { Means::None })
    }

    /// Returns whether to close the session until the next renewal, because the server has few connections left and the
    /// claim is not near the front.
    fn parks(&self, Waiting { own, on, is_alone, .. }: Waiting<'_>, sets: &Sets) -> bool {
        let Some(left) = rows::number(sets, LEFT) else { return false };
        let ahead = self.ahead.load(Ordering::Relaxed);
        let distance = match own.mode {
            Mode::Exclusive => ahead,
            Mode::Slots(slots) => ahead.saturating_sub(slots.get() - 1),
            // It may be let in together with all others.
            Mode::Shared => 0,
        };
        !on.is_empty() && distance > left.max(NEXT) && own.ttl <= PARKS && is_alone
    }

    /// Returns the sleep of the claim, if it can sleep until a claim ahead is gone.
    fn sleep(
        &self,
        Waiting { service, own, on, is_alone }: Waiting<'_>,
        until: Moment,
        session: &Arc<dyn Session>,
    ) -> Option<Wait> {
        let first = on.first()?;
        // Any of several targets in one queue may end the wait.
        let is_single = on.iter().filter(|target| target.name == first.name).count() == 1;
        let ahead: ClaimId = first.key.text.parse().ok()?;
        let length = until.since(service.clock.now());
        let may = is_single && !length.is_zero() && is_alone;
        // With several queues, the claim further ahead may be in another queue. Ahead of a reader it may be another reader,
        // which holds with it.
        let is_stepwise = own.names.len() == 1 && own.mode != Mode::Shared;
        let crowd = if is_stepwise { self.ahead.load(Ordering::Relaxed) } else { 0 };
        (may && session.can_sleep(ahead, crowd)).then_some(Wait { own: own.id, ahead, crowd, length })
    }
}

/// Watches one queue, over a separate session: a session is not told of its own changes.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) service: Sessions,
    /// The session that reports changes.
    told_by: Mutex<Option<Arc<dyn Session>>>,
}

impl Watcher {
    pub(super) fn new(service: &Sessions) -> Self {
        Self { service: service.another(), told_by: Mutex::default() }
    }

    /// Completes after a change since `seen`, or when the queue is to be read in any case.
    pub(super) async fn changed(&self, name: &LockName, seen: Seen, until: Moment) -> FaultResult<()> {
        let clock = self.service.clock;
        let told_by = locked(&self.told_by).clone();
        let is_same =
            |session: &Arc<dyn Session>| session.is_open() && session.notified_count() >> 32 == seen >> 32;
        if let Some(session) = told_by.filter(is_same) {
            tokio::select! {
                () = session.notified_after(seen, None) => {}
                () = clock.sleep_until(until.min(clock.now() + AT_LEAST)) => {}
            }
            return Ok(());
        }
        let told_by = self.ask(name, clock.now() + LOOK).await?;
        // Earlier changes are read now.
        let pause = if told_by.is_some() { Duration::ZERO } else { POLL };
        *locked(&self.told_by) = told_by;
        clock.sleep_until(until.min(clock.now() + pause)).await;
        Ok(())
    }

    /// Returns the session that reports changes from now on; `None` if no session does, and the observer polls. A
    /// session behind a pooler must remain unchanged, and reports nothing.
    async fn ask(&self, name: &LockName, deadline: Moment) -> FaultResult<Option<Arc<dyn Session>>> {
        let watch = self.service.dialect.watch(name);
        if watch.is_empty() || !self.service.read(deadline, "SELECT 1;").await?.session.can_notify() {
            return Ok(None);
        }
        // In a separate exchange, because changes are reported only after its end.
        let reply = self.service.read(deadline, &watch).await?;
        let is_refused = reply.sets.iter().flatten().any(|row| row[0].as_deref() == Some("f"));
        Ok(Some(reply.session).filter(|session| session.can_notify() && !is_refused))
    }
}
