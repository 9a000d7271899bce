//! The trials: one for each service and shape, and the proofs that the enumeration finds faults.

use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::crowd;
use crate::enumeration::trials::{self, Answer, Counted};
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
use crate::support::witness::{self, now};

/// Chooses the points.
const VARIABLE: &str = "DLOCK_TEST_EVERY_MESSAGE";

/// How many points of each service and shape belong to an ordinary run of the tests.
const SAMPLE: usize = 2;

/// If the machine loses this much in a second, a renewal, which passes through five processes, may not be answered in
/// time.
const STILL: Duration = TTL.checked_div(8).expect("not by zero");

/// A life of some seconds takes a quarter of a second of processor time.
pub(crate) static PLACES: Places = Places::new(8);

/// Runs the trials, all of them at once: lives wait more than they work, and a limited number runs at a time.
pub(crate) fn run() -> ExitCode {
    witness::watch(STILL);
    let mut arguments = Arguments::from_args();
    if !bounds::exact() {
        arguments.test_threads = Some(Service::all().len() * (SHAPES.len() + 2));
    }
    libtest_mimic::run(&arguments, all()).exit_code()
}

fn all() -> Vec<Trial> {
    trials::chosen(
        "every_message",
        VARIABLE,
        SAMPLE,
        |point| Ok(lived(point)),
        |choice| {
            let is_skipped = |kind: &Kind| trials::is_skipped(kind.name, || (kind.missing)().is_some());
            let mut trials = vec![
                Trial::test("every_message::oracle_detects_each_violation", proofs::fabricated),
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
        },
    )
}

/// Returns every point of a life with that many messages in each direction.
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
    let seen = undisturbed(|| life::live(service, shape, None, Claimant::Dlock));
    let (name, [requests, answers]) = (service.name(), [&seen.messages[0], &seen.messages[1]].map(Vec::len));
    let what = format!("{name} {}: {requests} requests and {answers} answers", shape.name);
    let all = points_of(&seen);
    let counted = Counted { what, points: all.len(), bad: seen.complaints() };
    let points = choice.among(all);
    let answers = trials::play(&points, PLACES.number(), |point| {
        let proves_nothing = |answer: &Answer, _| answer.is_void && answer.bad.is_empty();
        trials::undisturbed(&PLACES, || lived(point), proves_nothing)
    });
    trials::judge(&counted, VARIABLE, &points, &answers)
}

/// Lives a life while the machine runs without a pause, if possible: a life without complaints after a pause proves
/// nothing.
pub(crate) fn undisturbed(live: impl Fn() -> Seen) -> Seen {
    let proves_nothing = |seen: &Seen, _| seen.stood_still.is_some() && seen.complaints().is_empty();
    trials::undisturbed(&PLACES, live, proves_nothing)
}

/// Lives the life of a point.
fn lived(point: &Point) -> Answer {
    let begun = now();
    let seen = life::live(point.service, point.shape, Some(point.strike), Claimant::Dlock);
    Answer {
        met: seen.met.clone(),
        bad: seen.complaints(),
        facts: [seen.passed(), seen.facts()].concat(),
        took: now().saturating_sub(begun),
        is_void: seen.stood_still.is_some(),
    }
}
