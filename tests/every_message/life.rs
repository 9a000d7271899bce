//! One life of a claim: behind a holder, before somebody who waits, and with a newcomer afterwards.

use std::thread::sleep;
use std::time::Duration;

use crate::command::Length;
use crate::history::Observed;
use crate::oracle;
use crate::scene::{Claimant, Scene};
use crate::servers::relay::Relay;
use crate::servers::relay::fault::{Strike, TTL, Way};
use crate::service::Service;
use crate::shape::{Company, Shape};
use crate::support::witness::{self, now};
use crate::support::{Finished, Running};

/// How long the claim's command takes, and for how long the claim waits before: each takes two renewals.
pub(crate) const WORK: Duration = TTL.saturating_mul(4).checked_div(5).expect("not by zero");
/// How long the command of the one behind takes: what is done late may meet it.
pub(crate) const WORK_BEHIND: Duration = TTL.saturating_mul(3).checked_div(10).expect("not by zero");
/// The claim gives up waiting after that.
pub(crate) const WAIT: Duration = TTL.saturating_mul(3);
/// The ttl of the others.
pub(crate) const TTL_OF_OTHERS: Duration = Duration::from_secs(9);
/// Nothing takes longer.
const LIMIT: Duration = Duration::from_secs(40);
/// An observer that lost its connection comes back and is shown what it missed.
const CATCHES_UP: Duration = Duration::from_millis(2_500);
const STEP: Duration = Duration::from_millis(10);

/// How one of them ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) at: Duration,
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) said: String,
}

/// What was seen of a life.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) service: Service,
    pub(crate) shape: &'static Shape,
    pub(crate) strike: Option<Strike>,
    /// The message that the fault met.
    pub(crate) met: Option<String>,
    /// The messages of the claim, each way.
    pub(crate) messages: [Vec<String>; 2],
    /// What the commands noted.
    pub(crate) log: Vec<String>,
    /// Whether the claim stood in the queue before the one behind came.
    pub(crate) was_queued: bool,
    /// When the holder was told to let go.
    pub(crate) released: Duration,
    pub(crate) claim: Option<Ended>,
    /// The others that have come to an end: who it is.
    pub(crate) others: Vec<(&'static str, Option<Ended>)>,
    /// When the newcomer came.
    pub(crate) came: Duration,
    /// What was seen of who was shown the leaders, if somebody was.
    pub(crate) observed: Option<Observed>,
    /// What was still there when all was over, and for how long it was looked at.
    pub(crate) remains: Vec<String>,
    /// For how long the machine stood still meanwhile.
    pub(crate) stood_still: Option<Duration>,
}

/// What happened to the claim and the others.
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
    let onlooker = shape.is_observed().then(|| scene.start_observer());
    let course = match shape.company {
        Company::Rival => scene.beside_a_rival(),
        Company::Queue | Company::QueueForSlot => scene.in_a_queue(claimant),
    };
    let left_for = oracle::left_for(service, shape, strike, course.claim.as_ref());
    let remains = scene.await_nothing(service, left_for);
    let late = strike.map_or(Duration::ZERO, |strike| strike.fault.delay());
    let observed = onlooker.map(|one| Scene::end_observer(one, left_for + late + CATCHES_UP));
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
        observed,
        remains,
        stood_still: witness::stood_still(begun),
    }
}

impl Scene {
    /// Behind a holder and before somebody who waits, with a newcomer afterwards.
    fn in_a_queue(&self, claimant: Claimant) -> Course {
        let before = self.start("before", Length::Gate);
        let has_slots = self.shape().company == Company::QueueForSlot;
        let beside = has_slots.then(|| self.start("beside", Length::Gate));
        until(|| self.has_noted("start before") && (beside.is_none() || self.has_noted("start beside")));

        let mut claim = match claimant {
            Claimant::Dlock => self.start_claim(),
            Claimant::Careless => self.start_careless(),
        };
        let was_queued = self.await_in_queue("claim", &mut claim, TTL);
        let mut behind = self.start("behind", Length::For(WORK_BEHIND));
        self.await_in_queue("behind", &mut behind, TTL);
        sleep(WORK);
        let released = now();
        self.let_go("before");
        let mut others = vec![("before", end(before))];

        self.happen(&mut claim, LIMIT / 2);
        let claim = self.end_of_claim(claim);
        self.relays.iter().for_each(Relay::end);
        let came = now();
        let newcomer = self.start("newcomer", Length::For(STEP));
        others.extend([("behind", end(behind)), ("newcomer", end(newcomer))]);
        self.let_go("beside");
        others.extend(beside.map(|beside| ("beside", end(beside))));
        Course { was_queued, released, claim, others, came }
    }

    /// With nobody but a rival that comes when the fault strikes, and a newcomer afterwards.
    fn beside_a_rival(&self) -> Course {
        let released = now();
        let mut claim = self.start_claim();
        while self.relays.iter().all(|relay| relay.met().is_none()) && !claim.has_ended() {
            sleep(STEP);
        }
        let rival = self.start("rival", Length::For(WORK_BEHIND));
        let claim = end(claim);
        let mut others = vec![("rival", end(rival))];
        self.relays.iter().for_each(Relay::end);
        let came = now();
        others.push(("newcomer", end(self.start("newcomer", Length::For(STEP)))));
        Course { was_queued: true, released, claim, others, came }
    }

    /// The end of the claim: that of a script's is when nothing is left of those that held the lock for it.
    fn end_of_claim(&self, claim: Running) -> Option<Ended> {
        let ended = end(claim)?;
        if !self.shape().is_for_script() {
            return Some(ended);
        }
        self.await_no_process(LIMIT / 2).then(|| Ended { at: now(), ..ended })
    }
}

/// Waits for the end of one; `None` if it does not come.
pub(crate) fn end(mut one: Running) -> Option<Ended> {
    let limit = now() + LIMIT;
    while !one.has_ended() {
        if now() > limit {
            return None;
        }
        sleep(STEP);
    }
    let at = now();
    let ended: Finished = one.finish();
    Some(Ended { at, code: ended.code(), signal: ended.signal(), said: ended.err })
}

/// Waits for something that comes in a life without faults as in any other.
fn until(what: impl Fn() -> bool) {
    let limit = now() + LIMIT;
    while !what() && now() < limit {
        sleep(STEP);
    }
}
