//! One life of a claim: behind a holder, before another waiter, and with a newcomer afterwards.

use std::thread::sleep;
use std::time::Duration;

use crate::enumeration::command::lasting;
use crate::oracle;
use crate::scene::{Claimant, Scene};
use crate::servers::relay::Relay;
use crate::servers::relay::fault::{Strike, TTL, Way};
use crate::service::Service;
use crate::shape::{Company, Shape};
use crate::support::wait::holds_within;
use crate::support::witness::{self, now};
use crate::support::{Finished, Running};

/// The length of the claim's command, and of its wait before: each takes two renewals.
pub(crate) const WORK: Duration = TTL.saturating_mul(4).checked_div(5).expect("not by zero");
/// The length of the command of the waiter behind, so that a late action of the claim meets it.
pub(crate) const WORK_BEHIND: Duration = TTL.saturating_mul(3).checked_div(10).expect("not by zero");
/// The claim gives up waiting after that.
pub(crate) const WAIT: Duration = TTL.saturating_mul(3);
/// The claim that comes last.
pub(crate) const NEWCOMER: &str = "newcomer";
/// The TTL of the others.
pub(crate) const TTL_OF_OTHERS: Duration = Duration::from_secs(9);
/// Nothing takes longer.
const LIMIT: Duration = Duration::from_secs(40);
const STEP: Duration = Duration::from_millis(10);

/// The end of a claim.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) at: Duration,
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) said: String,
}

/// The observations of a life.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) service: Service,
    pub(crate) shape: &'static Shape,
    pub(crate) strike: Option<Strike>,
    /// The message that the fault met.
    pub(crate) met: Option<String>,
    /// The messages of the claim, each way.
    pub(crate) messages: [Vec<String>; 2],
    /// The notes of the commands.
    pub(crate) log: Vec<String>,
    /// Whether the claim was in the queue before the waiter behind came.
    pub(crate) was_queued: bool,
    /// When the holder was asked to release.
    pub(crate) released: Duration,
    pub(crate) claim: Option<Ended>,
    /// The names and ends of the other claims.
    pub(crate) others: Vec<(&'static str, Option<Ended>)>,
    /// When the newcomer came.
    pub(crate) came: Duration,
    /// The entries that remained at the end, after how long a wait.
    pub(crate) remains: Vec<String>,
    /// How long the machine stood still during the life.
    pub(crate) stood_still: Option<Duration>,
}

/// The course of the claim and the others.
struct Course {
    was_queued: bool,
    released: Duration,
    claim: Option<Ended>,
    others: Vec<(&'static str, Option<Ended>)>,
    came: Duration,
}

/// Lives one life.
pub(crate) fn live(
    service: Service,
    shape: &'static Shape,
    strike: Option<Strike>,
    claimant: Claimant,
) -> Seen {
    let scene = Scene::new(service, shape, strike);
    let begun = now();
    let course = match shape.company {
        Company::Rival => scene.beside_a_rival(),
        Company::Queue | Company::QueueForSlot => scene.in_a_queue(claimant),
    };
    let left_for = oracle::left_for(service, shape, strike, course.claim.as_ref());
    let remains = scene.await_nothing(service, left_for);
    let messages = Way::BOTH.map(|way| scene.relays[0].messages(way));
    Seen {
        service,
        shape,
        strike,
        met: scene.relays.iter().find_map(Relay::met),
        messages,
        log: scene.log(),
        was_queued: course.was_queued,
        released: course.released,
        claim: course.claim,
        others: course.others,
        came: course.came,
        remains,
        stood_still: witness::stood_still(begun),
    }
}

impl Scene {
    /// Behind a holder and before another waiter, with a newcomer afterwards.
    fn in_a_queue(&self, claimant: Claimant) -> Course {
        let before = self.start("before", "gate");
        let has_slots = self.shape().company == Company::QueueForSlot;
        let beside = has_slots.then(|| self.start("beside", "gate"));
        holds_within(LIMIT, STEP, || {
            self.has_noted("start before") && (beside.is_none() || self.has_noted("start beside"))
        });

        let mut claim = match claimant {
            Claimant::Dlock => self.start_claim(),
            Claimant::Careless => self.start_careless(),
        };
        let was_queued = self.await_in_queue("claim", &mut claim, TTL);
        let mut behind = self.start("behind", &lasting(WORK_BEHIND));
        self.await_in_queue("behind", &mut behind, TTL);
        sleep(WORK);
        let released = now();
        self.let_go("before");
        let mut others = vec![("before", end(before))];

        self.happen(&mut claim, LIMIT / 2);
        let claim = self.end_of_claim(claim);
        self.relays.iter().for_each(Relay::end);
        let came = now();
        let newcomer = self.start(NEWCOMER, &lasting(STEP));
        others.extend([("behind", end(behind)), (NEWCOMER, end(newcomer))]);
        self.let_go("beside");
        others.extend(beside.map(|beside| ("beside", end(beside))));
        Course { was_queued, released, claim, others, came }
    }

    /// With only a rival, which comes when the fault strikes, and a newcomer afterwards.
    fn beside_a_rival(&self) -> Course {
        let released = now();
        let mut claim = self.start_claim();
        let is_met = || self.relays.iter().any(|relay| relay.met().is_some());
        holds_within(LIMIT, STEP, || is_met() || claim.has_ended());
        let rival = self.start("rival", &lasting(WORK_BEHIND));
        let claim = end(claim);
        let mut others = vec![("rival", end(rival))];
        self.relays.iter().for_each(Relay::end);
        let came = now();
        others.push((NEWCOMER, end(self.start(NEWCOMER, &lasting(STEP)))));
        Course { was_queued: true, released, claim, others, came }
    }

    /// Returns the end of the claim. A script's claim ends when all processes that held the lock for it are gone.
    fn end_of_claim(&self, claim: Running) -> Option<Ended> {
        let ended = end(claim)?;
        if !self.shape().is_for_script() {
            return Some(ended);
        }
        self.await_no_process(LIMIT / 2).then(|| Ended { at: now(), ..ended })
    }
}

/// Waits for the end of a claim; `None` if it does not come.
pub(crate) fn end(mut one: Running) -> Option<Ended> {
    if !holds_within(LIMIT, STEP, || one.has_ended()) {
        return None;
    }
    let at = now();
    let ended: Finished = one.finish();
    Some(Ended { at, code: ended.code(), signal: ended.signal(), said: ended.err })
}
