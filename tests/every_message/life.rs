//! One life of a claim: behind a holder, before somebody who waits, and with a newcomer afterwards.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use crate::command::{self, Length};
use crate::point::{Kind, Point};
use crate::relay::Relay;
use crate::relay::fault::{Strike, TTL, Way};
use crate::service::Service;
use crate::support::witness::{self, now};
use crate::support::{Bed, Finished, Running};

/// How long the claim's command takes, and for how long the claim waits before: each takes two renewals.
pub(crate) const WORK: Duration = TTL.saturating_mul(4).checked_div(5).expect("not by zero");
/// How long the command of the one behind takes: what is done late may meet it.
const WORK_BEHIND: Duration = TTL.saturating_mul(3).checked_div(10).expect("not by zero");
/// The claim gives up waiting after that.
pub(crate) const WAIT: Duration = TTL.saturating_mul(3);
/// The ttl of the others.
pub(crate) const TTL_OF_OTHERS: Duration = Duration::from_secs(9);
/// Nothing takes longer.
const LIMIT: Duration = Duration::from_secs(40);
const STEP: Duration = Duration::from_millis(10);
/// How often is asked who waits: each time a process.
const LOOK: Duration = Duration::from_millis(150);

/// How one of them ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) at: Duration,
    pub(crate) code: Option<i32>,
    pub(crate) said: String,
}

/// What was seen of a life.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) service: Service,
    pub(crate) kind: Kind,
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
    /// What was still there when all was over, and for how long it was looked at.
    pub(crate) remains: Vec<String>,
    /// For how long the machine stood still meanwhile.
    pub(crate) stood_still: Option<Duration>,
}

/// Who claims the lock over the relays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claimant {
    Dlock,
    /// A wrapper that sets a key of Redis and deletes it, as many scripts do.
    Careless,
}

/// Sets the key `$1` at the port `$2`, runs the rest, and deletes the key.
const CARELESS: &str = r#"key=$1 port=$2; shift 2
until [ "$(redis-cli -p "$port" SET "$key" claim NX PX 3000 2>&1)" = OK ]; do sleep 0.1; done
DLOCK_MODE=exclusive DLOCK_TOKEN=0 "$@"; code=$?
redis-cli -p "$port" DEL "$key" >/dev/null
exit $code"#;

/// A lock that nobody else uses.
pub(crate) fn new_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("life-{}-x", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A place for one life.
struct Scene {
    kind: Kind,
    name: String,
    /// Over the relays.
    over: Bed,
    /// Past them.
    past: Bed,
    relays: Vec<Relay>,
}

impl Scene {
    fn new(service: Service, kind: Kind, strike: Option<Strike>) -> Self {
        let name = new_name();
        let ports = service.ports();
        let past = Bed::on(service.at(&ports));
        let relays: Vec<Relay> =
            service.ways(&ports).iter().map(|way| Relay::to(way, service.protocol(), strike)).collect();
        let mut over: Vec<u16> = relays.iter().flat_map(|relay| relay.ports().to_vec()).collect();
        // The others are reached directly.
        over.extend(&ports[over.len()..]);
        Self { kind, name, over: Bed::on(service.at(&over)), past, relays }
    }

    /// Somebody who reaches the service directly.
    fn start(&self, who: &str, length: Length) -> Running {
        let ttl = format!("{}s", TTL_OF_OTHERS.as_secs());
        let options = ["--name", &self.name, "--ttl", &ttl, "--wait", "30s"];
        let mut command = self.past.run(options);
        command.args(self.kind.options(false)).arg("--").args(command::words(self.past.root(), who, length));
        self.past.start(&mut command)
    }

    /// The claim whose messages go over the relays.
    fn start_claim(&self) -> Running {
        let [ttl, wait] = [TTL, WAIT].map(|length| format!("{}ms", length.as_millis()));
        let options = ["--name", &self.name, "--ttl", &ttl, "--wait", &wait, "--grace", "0"];
        let mut command = self.over.run(options);
        let words = command::words(self.past.root(), "claim", Length::For(WORK));
        command.args(self.kind.options(true)).arg("--").args(words);
        self.over.start(&mut command)
    }

    /// A wrapper in the place of dlock.
    fn start_careless(&self) -> Running {
        let words = command::words(self.past.root(), "claim", Length::For(WORK));
        let mut command = self.over.command("bash");
        command.args(["-c", CARELESS, "bash", &format!("dlock:{}", self.name)]);
        command.arg(self.relays[0].ports()[0].to_string()).args(words);
        self.over.start(&mut command)
    }

    fn let_go(&self, who: &str) {
        self.past.write(&format!("gate.{who}"), "");
    }

    fn log(&self) -> Vec<String> {
        self.past.read("log").lines().map(str::to_owned).collect()
    }

    fn has_noted(&self, what: &str) -> bool {
        self.log().iter().any(|line| line.starts_with(what))
    }

    /// Who holds and who waits, or what dlock says instead.
    fn status(&self) -> Result<Value, String> {
        let asked = self.past.finish(&mut self.past.verb("status", ["--json", &self.name]));
        let said = serde_json::from_slice(&asked.out).ok().filter(|_| asked.code() == Some(0));
        said.ok_or(asked.err)
    }

    /// Waits until this one is in the queue, but not for ever; whether it is.
    fn await_in_queue(&self, one: &mut Running, length: Duration) -> bool {
        let limit = now() + length;
        while now() < limit && !one.has_ended() {
            let status = self.status().unwrap_or_default();
            let mut waiters = status["waiters"].as_array().into_iter().flatten();
            if waiters.any(|waiter| waiter["pid"] == one.pid()) {
                return true;
            }
            sleep(LOOK);
        }
        false
    }

    /// What the service still has of the lock.
    fn remains(&self, service: Service) -> Vec<String> {
        let status = match self.status() {
            Ok(status) => status,
            Err(said) => return vec![format!("status: {said}")],
        };
        let mut left = Vec::new();
        for who in ["holders", "waiters"] {
            let those = status[who].as_array().into_iter().flatten();
            left.extend(those.map(|one| format!("{who}: {} of pid {}", one["claim"], one["pid"])));
        }
        left.extend(service.remains(&self.name));
        left
    }

    /// Waits until nothing is left, but not for ever.
    fn await_nothing(&self, service: Service, length: Duration) -> Vec<String> {
        let limit = now() + length;
        loop {
            let left = self.remains(service);
            if left.is_empty() || now() > limit {
                return left;
            }
            sleep(LOOK * 2);
        }
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
    Some(Ended { at, code: ended.code(), said: ended.err })
}

/// Waits for something that comes in a life without faults as in any other.
fn until(what: impl Fn() -> bool) {
    let limit = now() + LIMIT;
    while !what() && now() < limit {
        sleep(STEP);
    }
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
pub(crate) fn live(service: Service, kind: Kind, strike: Option<Strike>, claimant: Claimant) -> Seen {
    let scene = Scene::new(service, kind, strike);
    let begun = now();
    let course = if kind == Kind::Mixed { scene.beside_a_rival() } else { scene.in_a_queue(claimant) };
    let remains =
        scene.await_nothing(service, crate::oracle::left_for(service, strike, course.claim.as_ref()));
    let messages = Way::BOTH.map(|way| scene.relays[0].messages(way));
    Seen {
        service,
        kind,
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
    /// Behind a holder and before somebody who waits, with a newcomer afterwards.
    fn in_a_queue(&self, claimant: Claimant) -> Course {
        let before = self.start("before", Length::Gate);
        let beside = (self.kind == Kind::Slots).then(|| self.start("beside", Length::Gate));
        until(|| self.has_noted("start before") && (beside.is_none() || self.has_noted("start beside")));

        let mut claim = match claimant {
            Claimant::Dlock => self.start_claim(),
            Claimant::Careless => self.start_careless(),
        };
        let was_queued = self.await_in_queue(&mut claim, TTL);
        let mut behind = self.start("behind", Length::For(WORK_BEHIND));
        self.await_in_queue(&mut behind, TTL);
        sleep(WORK);
        let released = now();
        self.let_go("before");
        let mut others = vec![("before", end(before))];

        let claim = end(claim);
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
}

/// Lives the life of a point.
pub(crate) fn live_with(point: &Point) -> Seen {
    live(point.service, point.kind, Some(point.strike), Claimant::Dlock)
}
