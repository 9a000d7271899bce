//! The place of one life, and the programs that are started there.

use std::iter;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::enumeration::command::{self, lasting, note};
use crate::life::{NEWCOMER, TTL_OF_OTHERS, WAIT, WORK};
use crate::script;
use crate::servers::relay::Relay;
use crate::servers::relay::fault::{Strike, TTL};
use crate::service::Service;
use crate::shape::{Event, Shape, Verb};
use crate::support::wait::holds_within;
use crate::support::witness::now;
use crate::support::{Running, TestEnv};

/// The pause between two queries for the waiters: each query is a process.
const LOOK: Duration = Duration::from_millis(150);
/// How long a waiter without an entry in status may take to send its request.
const SETTLES: Duration = Duration::from_millis(500);

const STEP: Duration = Duration::from_millis(10);

/// How long a hold lasts before the event from outside: one renewal.
const BEFORE_EVENT: Duration = TTL.checked_div(2).expect("not by zero");

/// The program that claims the lock over the relays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claimant {
    Dlock,
    /// A wrapper that sets a key of Redis and deletes it, as many scripts do.
    Careless,
}

/// Sets the key `$1` at the port `$2`, runs the rest, and deletes the key.
const CARELESS: &str = r#"key=$1 port=$2; shift 2
until [ "$(redis-cli -p "$port" SET "$key" claim NX PX 30000 2>&1)" = OK ]; do sleep 0.1; done
DLOCK_MODE=exclusive DLOCK_TOKEN=0 "$@"; code=$?
redis-cli -p "$port" DEL "$key" >/dev/null
exit $code"#;

/// Returns the name of a lock that no other test uses.
pub(crate) fn new_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("life-{}-x", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The place of one life.
pub(crate) struct Scene {
    shape: &'static Shape,
    name: String,
    /// An environment whose messages pass over the relays.
    over: TestEnv,
    /// An environment that reaches the service directly.
    past: TestEnv,
    pub(crate) relays: Vec<Relay>,
}

impl Scene {
    pub(crate) fn new(service: Service, shape: &'static Shape, strike: Option<Strike>) -> Self {
        let name = new_name();
        let site = service.site();
        let ports = site.ports();
        let on = |service| TestEnv::on(service).with_variables(site.variables());
        let past = on(site.whole());
        let relays: Vec<Relay> =
            service.ways(&ports).iter().map(|way| Relay::to(way, site.protocol(), strike)).collect();
        let mut over: Vec<u16> = relays.iter().flat_map(|relay| relay.ports().to_vec()).collect();
        // The other servers are reached directly.
        over.extend(&ports[over.len()..]);
        Self { shape, name, over: on(site.at(&over)), past, relays }
    }

    /// Returns the locks of the claim; the others take the first one, but for the newcomer.
    fn names(&self) -> Vec<String> {
        let second = self.shape.takes_two.then(|| format!("{}-second", self.name));
        iter::once(self.name.clone()).chain(second).collect()
    }

    pub(crate) fn shape(&self) -> &'static Shape {
        self.shape
    }

    /// Starts a claim that reaches the service directly. The newcomer takes all locks of the claim, which removes what
    /// it left.
    pub(crate) fn start(&self, who: &str, manner: &str) -> Running {
        let ttl = format!("{}s", TTL_OF_OTHERS.as_secs());
        let mut names = self.names();
        if who != NEWCOMER {
            names.truncate(1);
        }
        let names: Vec<&str> = names.iter().flat_map(|name| ["--name", name]).collect();
        let options = [&names[..], &["--ttl", &ttl, "--wait", "30s"], self.shape.others].concat();
        // A rival of a candidate is a candidate, too.
        let verb = if self.shape.verb == Verb::Elect { Verb::Elect } else { Verb::Run };
        self.past.start(&mut self.under(&self.past, verb, who, &options, manner))
    }

    /// Starts the claim. Its messages pass over the relays.
    pub(crate) fn start_claim(&self) -> Running {
        let [ttl, wait] = [TTL, WAIT].map(|length| format!("{}ms", length.as_millis()));
        let options = ["--ttl", &ttl, "--wait", &wait, "--grace", "0"];
        let names = self.names();
        let names: Vec<&str> = names.iter().flat_map(|name| ["--name", name]).collect();
        let options = [&names, &options[..], self.shape.options].concat();
        let env = &self.over;
        let mut command = if self.shape.is_for_script() {
            let options = [&options[..], &["--label", "claim"]].concat();
            let words = script::words(self.past.root(), self.shape, &options);
            let mut command = env.command(&words[0]);
            command.args(&words[1..]).env("past", &self.past.service().endpoint);
            command
        } else {
            self.under(env, self.shape.verb, "claim", &options, &lasting(WORK))
        };
        env.start(&mut command)
    }

    /// Returns the program that runs the command of `who` under the lock.
    fn under(&self, env: &TestEnv, verb: Verb, who: &str, options: &[&str], manner: &str) -> Command {
        let (verb, label) = if verb == Verb::Elect { ("elect", "--value") } else { ("run", "--label") };
        let mut command = env.verb(verb, options);
        command.args([label, who, "--"]).args(command::words(self.past.root(), who, manner));
        command
    }

    /// Causes the event from outside once the claim holds, if it ever does.
    pub(crate) fn happen(&self, claim: &mut Running, limit: Duration) {
        let (times, signal) = match self.shape.event {
            Event::None => return,
            Event::KillScript => (1, Signal::KILL),
            Event::EndSecondTerm => (2, Signal::TERM),
        };
        let starts = || command::times_noted(self.past.root(), "start claim");
        holds_within(limit, STEP, || starts() >= times || claim.has_ended());
        if claim.has_ended() {
            return;
        }
        sleep(BEFORE_EVENT);
        if !claim.has_ended() {
            note(self.past.root(), &format!("event {}", now().as_micros()));
            claim.signal(signal);
        }
    }

    /// Waits at most `length` until every process over the relays is gone. Returns whether they are.
    pub(crate) fn await_no_process(&self, length: Duration) -> bool {
        holds_within(length, LOOK / 5, || self.over.processes().is_empty())
    }

    /// Starts a wrapper instead of dlock.
    pub(crate) fn start_careless(&self) -> Running {
        let words = command::words(self.past.root(), "claim", &lasting(WORK));
        let mut command = self.over.command("bash");
        command.args(["-c", CARELESS, "bash", &format!("dlock:{}", self.name)]);
        command.arg(self.relays[0].ports()[0].to_string()).args(words);
        self.over.start(&mut command)
    }

    pub(crate) fn let_go(&self, who: &str) {
        self.past.write(&format!("gate.{who}"), "");
    }

    pub(crate) fn log(&self) -> Vec<String> {
        command::log(self.past.root())
    }

    pub(crate) fn has_noted(&self, what: &str) -> bool {
        command::times_noted(self.past.root(), what) > 0
    }

    /// Returns the holders and waiters of a lock, or dlock's message about them.
    fn status(&self, name: &str) -> Result<Value, String> {
        let asked = self.past.finish(&mut self.past.verb("status", ["--json", name]));
        let said = serde_json::from_slice(&asked.out).ok().filter(|_| asked.code() == Some(0));
        said.ok_or(asked.err)
    }

    /// Waits at most `length` until this claim is in the queue. Returns whether it is.
    pub(crate) fn await_in_queue(&self, who: &str, one: &mut Running, length: Duration) -> bool {
        if self.past.is_redlock() {
            // Its wait is invisible.
            sleep(SETTLES);
            return !one.has_ended();
        }
        let is_queued = || {
            let status = self.status(&self.name).unwrap_or_default();
            status["waiters"].as_array().into_iter().flatten().any(|waiter| waiter["label"] == who)
        };
        holds_within(length, LOOK, || one.has_ended() || is_queued()) && !one.has_ended()
    }

    /// Returns the entries of that lock that the service still has.
    fn remains(&self, service: Service, name: &str) -> Vec<String> {
        let status = match self.status(name) {
            Ok(status) => status,
            Err(said) => return vec![format!("status: {said}")],
        };
        let mut left = Vec::new();
        for who in ["holders", "waiters"] {
            let those = status[who].as_array().into_iter().flatten();
            left.extend(those.map(|one| format!("{who}: {} of pid {}", one["claim"], one["pid"])));
        }
        left.extend(service.site().remains(name));
        left
    }

    /// Waits at most `length` until no entry remains.
    pub(crate) fn await_nothing(&self, service: Service, length: Duration) -> Vec<String> {
        let mut left = Vec::new();
        holds_within(length, LOOK * 2, || {
            left = self.names().iter().flat_map(|name| self.remains(service, name)).collect();
            left.is_empty()
        });
        left
    }
}
