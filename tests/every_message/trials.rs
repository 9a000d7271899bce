//! The trials: one for each service and shape, and the proofs that the enumeration finds what it should.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::crowd;
use crate::life::{self, Seen};
use crate::point::Point;
use crate::proofs;
use crate::scene::Claimant;
use crate::servers::relay::fault::{Strike, TTL, Way};
use crate::servers::{Kind, redis};
use crate::service::Service;
use crate::shape::{SHAPES, Shape};
use crate::support::bounds;
use crate::support::choice::Choice;
use crate::support::places::Places;
use crate::support::witness;

/// How many points of each service and shape belong to an ordinary run of the tests.
const SAMPLE: usize = 2;

/// How often a life is lived while the machine stands still in the midst of it: such a life proves nothing, whatever comes
/// of it.
const TIMES: usize = 4;

/// If the machine loses so much in a second, a renewal, which passes through five processes, may not be answered in time.
const STILL: Duration = TTL.checked_div(8).expect("not by zero");

/// A life of some seconds is a quarter of a second's work.
pub(crate) static PLACES: Places = Places::new(8);

/// Runs the trials, all of them at once: lives wait more than they work, and there are places for some.
pub(crate) fn run() -> ExitCode {
    witness::watch(STILL);
    let mut arguments = Arguments::from_args();
    if !bounds::exact() {
        arguments.test_threads = Some(Service::all().len() * (SHAPES.len() + 2));
    }
    libtest_mimic::run(&arguments, all()).exit_code()
}

fn all() -> Vec<Trial> {
    let choice = match Choice::of("DLOCK_TEST_EVERY_MESSAGE", SAMPLE) {
        Ok(choice) => choice,
        Err(error) => {
            return vec![Trial::test("every_message::choice", || Err(error.into()))];
        }
    };
    if let Choice::One(point) = choice {
        return vec![Trial::test("every_message::one_point", move || one(&point))];
    }
    let required = std::env::var("DLOCK_TEST_REQUIRE").unwrap_or_default();
    let is_skipped = |kind: &Kind| {
        let is_required = required.split(',').any(|name| name == kind.name);
        !is_required && (kind.missing)().is_some()
    };
    let mut trials = vec![
        Trial::test("every_message::points_read_as_they_are_written", round_trip),
        Trial::test("every_message::the_oracle_sees_what_is_wrong", proofs::fabricated),
        Trial::test("every_message::a_careless_wrapper_is_found_out", proofs::careless)
            .with_ignored_flag(is_skipped(&redis::KIND)),
    ];
    for service in Service::all() {
        let skipped = is_skipped(service.kind);
        trials.extend(SHAPES.iter().filter(|shape| shape.suits(service.kind)).map(|shape| {
            let name = format!("every_message::{}_{}", service.name(), shape.name).replace('-', "_");
            let choice = choice.clone();
            Trial::test(name, move || every(service, shape, &choice)).with_ignored_flag(skipped)
        }));
    }
    trials.extend(crowd::trials(is_skipped));
    trials
}

/// Every point of a life with so many messages each way.
fn points_of(counted: &Seen) -> Vec<Point> {
    let mut points = Vec::new();
    for way in Way::BOTH {
        for number in 1..=counted.messages[way as usize].len() {
            points.extend(counted.shape.faults(way).iter().map(|fault| Point {
                service: counted.service,
                shape: counted.shape,
                strike: Strike { way, number, fault: *fault },
            }));
        }
    }
    points
}

fn every(service: Service, shape: &'static Shape, choice: &Choice<Point>) -> Result<(), Failed> {
    let counted = undisturbed(|| life::live(service, shape, None, Claimant::Dlock));
    let all = points_of(&counted);
    let points = choice.among(all.clone());
    let told = tell(&counted, all.len(), &play(&points));
    if told.1 {
        return Err(told.0.into());
    }
    eprintln!("{}", told.0);
    Ok(())
}

/// Lives a life while the machine goes on, if it does.
pub(crate) fn undisturbed(live: impl Fn() -> Seen) -> Seen {
    let mut seen = None;
    for _ in 0..TIMES {
        let _place = PLACES.take();
        let this = seen.insert(live());
        if this.stood_still.is_none() || !this.complaints().is_empty() {
            break;
        }
    }
    seen.expect("at least once")
}

/// Lives all of these, several at once.
fn play(points: &[Point]) -> Vec<(Point, Seen)> {
    let next = AtomicUsize::new(0);
    let lived = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..PLACES.number() {
            scope.spawn(|| {
                while let Some(point) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let seen = undisturbed(|| life::live_with(point));
                    let found = seen.complaints();
                    if !found.is_empty() {
                        // At once: all of them take their time.
                        let facts = [seen.passed(), seen.facts()].concat().join("\n    ");
                        eprintln!("broken: {point}: {}\n    {facts}", found.join("; "));
                    }
                    lived.lock().unwrap_or_else(PoisonError::into_inner).push((*point, seen));
                }
            });
        }
    });
    let mut lived = lived.into_inner().unwrap_or_else(PoisonError::into_inner);
    lived.sort_by_key(|(point, _)| points.iter().position(|one| one == point));
    lived
}

/// How much was tried and what broke, each in a form that can be repeated; whether anything broke.
fn tell(counted: &Seen, points: usize, lived: &[(Point, Seen)]) -> (String, bool) {
    let met = lived.iter().filter(|(_, seen)| seen.met.is_some()).count();
    let still = lived.iter().filter(|(_, seen)| seen.stood_still.is_some()).count();
    let broken: Vec<_> = lived.iter().filter(|(_, seen)| !seen.complaints().is_empty()).collect();
    let mut text = format!(
        "{} {}: {} requests and {} answers; {} of {points} points tried, {met} met, {} broke, \
         {still} not judged since the machine stood still",
        counted.service.name(),
        counted.shape.name,
        counted.messages[0].len(),
        counted.messages[1].len(),
        lived.len(),
        broken.len(),
    );
    let without = counted.complaints();
    for bad in &without {
        let _ = write!(text, "\n  without a fault: {bad}");
    }
    let mut kinds = BTreeMap::<String, usize>::new();
    for (point, seen) in &broken {
        let met = seen.met.as_deref().unwrap_or("not reached");
        let _ = write!(text, "\n  DLOCK_TEST_EVERY_MESSAGE={point} ({met})");
        for bad in seen.complaints() {
            let _ = write!(text, "\n      {bad}");
            *kinds.entry(bad.split(':').next().unwrap_or(&bad).to_owned()).or_default() += 1;
        }
    }
    for (kind, number) in kinds {
        let _ = write!(text, "\n  {number} x {kind}");
    }
    (text, !without.is_empty() || !broken.is_empty())
}

/// One point, with everything that was seen.
fn one(point: &Point) -> Result<(), Failed> {
    let seen = life::live_with(point);
    let found = seen.complaints();
    let facts = [seen.passed(), seen.facts()].concat();
    let told = format!("{point}\n{}\n{}", facts.join("\n"), found.join("\n"));
    if found.is_empty() {
        eprintln!("{told}");
        return Ok(());
    }
    Err(told.into())
}

fn round_trip() -> Result<(), Failed> {
    for text in [
        "redis/slots/request/7/lost",
        "zk/shared/answer/12/1.2ttl",
        "redlock-most/elect-forever/request/1/ghost",
    ] {
        let read: Point = text.parse().map_err(Failed::from)?;
        if read.to_string() != text {
            return Err(format!("{text} was read as {read}").into());
        }
    }
    for text in ["redis/slots/request/lost", "file/slots/request/1/lost", "redis/slots/answer/1/ghost"] {
        if text.parse::<Point>().is_ok() {
            return Err(format!("{text} is no point").into());
        }
    }
    Ok(())
}
