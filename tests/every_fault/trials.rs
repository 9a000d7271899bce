//! The trials: one for each shape, and the proof that the enumeration finds what it should.

use std::sync::OnceLock;

use libtest_mimic::{Failed, Trial};

use crate::enumeration::trials::{self, Answer, Counted};
use crate::point::{Fault, Point};
use crate::pool::{self, Said};
use crate::servers::{Server, redis};
use crate::shape::{CARELESS, SHAPES, Shape};
use crate::support::choice::Choice;
use crate::sys;
use crate::tracer::Role;

/// How many points of each shape belong to an ordinary run of the tests.
const SAMPLE: usize = 30;

/// Chooses the points.
const VARIABLE: &str = "DLOCK_TEST_EVERY_FAULT";

pub(crate) fn all() -> Vec<Trial> {
    if !sys::KNOWS_THIS_MACHINE {
        let skipped = Trial::test("every_fault::needs_the_registers_of_this_machine_in_sys_rs", || Ok(()));
        return vec![skipped.with_ignored_flag(true)];
    }
    trials::chosen("every_fault", VARIABLE, SAMPLE, one, |choice| {
        let mut trials = vec![Trial::test("every_fault::a_careless_wrapper_is_found_out", careless)];
        trials.extend(SHAPES.iter().map(|shape| {
            let choice = choice.clone();
            let skipped = shape.on_redis && trials::is_skipped("redis", || redis::missing().is_some());
            Trial::test(format!("every_fault::{}", shape.name), move || every(shape, &choice))
                .with_ignored_flag(skipped)
        }));
        trials
    })
}

/// Returns the port of the server of all trials, which dies with this process.
fn redis_of(shape: &Shape) -> u16 {
    static SERVER: OnceLock<Server> = OnceLock::new();
    if shape.on_redis { SERVER.get_or_init(|| redis::start_with(&["--appendonly", "no"])).port() } else { 0 }
}

/// Counts the calls of a run without a fault.
fn count(shape: &Shape) -> Result<Said, Failed> {
    let counted = pool::work("count", redis_of(shape), &[shape.name.to_owned()]);
    if counted.points.is_empty() {
        let bad = counted.answer.bad.join("; ");
        return Err(format!("the calls of {} cannot be counted: {bad}", shape.name).into());
    }
    Ok(counted)
}

fn every(shape: &'static Shape, choice: &Choice<Point>) -> Result<(), Failed> {
    let said = count(shape)?;
    let calls = |role| {
        let those = said.points.iter().filter(|point| point.role == role);
        those.map(|point| point.number).max().unwrap_or(0)
    };
    let what = format!(
        "{}: {} calls of the caller, {} of the front, {} of the keeper, {} before the command",
        shape.name,
        calls(Role::Caller),
        calls(Role::Front),
        calls(Role::Keeper),
        calls(Role::Launch),
    );
    let counted = Counted { what, points: said.points.len(), bad: said.answer.bad };
    let points = choice.among(said.points);
    trials::judge(&counted, VARIABLE, &points, &pool::play(&points, redis_of(shape), &said.left))
}

fn one(point: &Point) -> Result<Answer, Failed> {
    let shape = Shape::named(&point.shape).ok_or_else(|| format!("no shape {}", point.shape))?;
    let left = count(shape)?.left;
    Ok(pool::play(std::slice::from_ref(point), redis_of(shape), &left).remove(0))
}

/// `flock -o` leaves its command running when it is killed: an enumeration that misses that proves nothing.
fn careless() -> Result<(), Failed> {
    let counted = pool::work("count", 0, &[CARELESS.name.to_owned()]);
    let points: Vec<Point> =
        counted.points.iter().filter(|point| point.fault == Fault::Kill).cloned().collect();
    let answers = pool::play(&points, 0, &counted.left);
    let found = |what: &str| {
        let bad = |answer: &&Answer| answer.bad.iter().any(|bad| bad.starts_with(what));
        answers.iter().filter(bad).count()
    };
    let (unguarded, overlapping) = (found("unguarded"), found("overlap"));
    if unguarded > 0 && overlapping > 0 {
        return Ok(());
    }
    Err(format!("{} points, {unguarded} unguarded, {overlapping} overlaps: {counted:?}", points.len()).into())
}
