//! Many claims on one lock at the same moment, with a different short delay for each message. So they arrive in orders
//! that a quick loopback never produces.

use std::fmt::Write as _;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};

use crate::enumeration::command::{self, lasting};
use crate::life;
use crate::oracle;
use crate::scene;
use crate::servers::Kind;
use crate::servers::relay::Relay;
use crate::service::Service;
use crate::support::chance::{Random, rounds, seed};
use crate::support::{Running, TestEnv};
use crate::trials::PLACES;

/// How often each is tried, without `DLOCK_TEST_ROUNDS`.
const ROUNDS: usize = 2;

/// How long each command takes.
const WORK: Duration = Duration::from_millis(20);

/// A claim without the lock by then never gets it: all their work takes a second.
const WAIT: Duration = Duration::from_secs(30);

/// The options of the claims in a shape, and the number of claims with each.
struct Shape {
    name: &'static str,
    modes: &'static [&'static [&'static str]],
    each: usize,
    /// How many of them take the time of one large one.
    times: usize,
    /// The status of a claim whose command may not run.
    refused: Option<i32>,
}

const SHAPES: [Shape; 2] = [
    Shape { name: "slots", modes: &[&["--slots", "3"]], each: 12, times: 1, refused: None },
    Shape {
        name: "kinds",
        modes: &[&["--slots", "2"], &["--exclusive"]],
        each: 1,
        times: 8,
        refused: Some(64),
    },
];

/// Returns the services and layouts that have crowds. One of them is encrypted.
fn services() -> Vec<Service> {
    let mut all = Service::all();
    all.retain(|service| service.name() != "redlock-one");
    all.extend(Service::named("etcd-secure"));
    all
}

pub(crate) fn trials(is_skipped: impl Fn(&Kind) -> bool) -> Vec<Trial> {
    let trial = |service: Service, shape: &'static Shape| {
        let name = format!("every_message::{}_crowd_of_{}", service.name().replace('-', "_"), shape.name);
        Trial::test(name, move || crowds(service, shape)).with_ignored_flag(is_skipped(service.kind))
    };
    let pairs = services().into_iter().flat_map(|service| SHAPES.iter().map(move |shape| (service, shape)));
    pairs.map(|(service, shape)| trial(service, shape)).collect()
}

fn crowds(service: Service, shape: &Shape) -> Result<(), Failed> {
    let mut random = Random(seed());
    let (mut told, rounds) = (String::new(), rounds(ROUNDS) * shape.times);
    let mut broken = 0;
    for round in 1..=rounds {
        let _place = PLACES.take();
        let found = crowd(service, shape, &mut random);
        if !found.is_empty() {
            broken += 1;
            let _ = write!(told, "\n  round {round}: {}", found.join("\n      "));
        }
    }
    let told = format!("{} {}: {broken} of {rounds} crowds broke{told}", service.name(), shape.name);
    if broken > 0 {
        return Err(told.into());
    }
    eprintln!("{told}");
    Ok(())
}

/// Mostly none, sometimes as much as on a busy network, and now and then as much as a packet that is sent again.
fn delay(random: &mut Random) -> Duration {
    let most = [0, 0, 2, 5, 10, 30][random.below(6)];
    Duration::from_millis(random.below(most + 1) as u64)
}

/// A member of the crowd.
struct Member {
    who: String,
    running: Running,
    // Its place, which exists as long as it runs.
    _env: TestEnv,
    _relay: Relay,
}

/// Runs one crowd, and returns the complaints about it.
fn crowd(service: Service, shape: &Shape, random: &mut Random) -> Vec<String> {
    let site = service.site();
    let ports = site.ports();
    let past = TestEnv::on(site.whole());
    let name = scene::new_name();
    let mut members = Vec::new();
    for n in 0..shape.each * shape.modes.len() {
        let mut own = Random(random.next());
        let relay = Relay::delaying(&ports, site.protocol(), Box::new(move || delay(&mut own)));
        let env = TestEnv::on(site.at(relay.ports())).with_variables(site.variables());
        let who = format!("member{n}");
        let wait = format!("{}s", WAIT.as_secs());
        let mut command = env.run(["--name", &name, "--wait", &wait]);
        command.args(shape.modes[n % shape.modes.len()]).arg("--");
        command.args(command::words(past.root(), &who, &lasting(WORK)));
        let running = env.start(&mut command);
        members.push(Member { who, running, _env: env, _relay: relay });
    }
    let mut found = Vec::new();
    let mut ran = 0;
    for member in members {
        let ended = life::end(member.running);
        match ended.as_ref().map(|ended| ended.code) {
            Some(Some(0)) => ran += 1,
            Some(Some(code)) if Some(code) == shape.refused => {}
            _ => found.push(format!("{}: ended with {ended:?}", member.who)),
        }
    }
    let log = command::log(past.root());
    let starts = oracle::starts(&log);
    if starts.len() != ran || ran == 0 {
        found.push(format!("{ran} were successful, and {} commands began", starts.len()));
    }
    found.extend(command::overlaps(&log));
    found.extend(oracle::tokens_that_fall(&starts));
    found
}
