//! The trials: one for each shape, and the proof that the enumeration finds what it should.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::OnceLock;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};

use crate::point::{Fault, Point};
use crate::pool::{self, Answer};
use crate::servers::{Server, redis};
use crate::shape::{CARELESS, SHAPES, Shape};
use crate::support::choice::Choice;
use crate::sys;
use crate::tracer::Role;

/// How many points of each shape belong to an ordinary run of the tests.
const SAMPLE: usize = 30;

/// What takes longer is worth a look, though nothing is wrong.
const SLOW: Duration = Duration::from_secs(5);

pub(crate) fn all() -> Vec<Trial> {
    if !sys::KNOWS_THIS_MACHINE {
        let skipped = Trial::test("every_fault::needs_the_registers_of_this_machine_in_sys_rs", || Ok(()));
        return vec![skipped.with_ignored_flag(true)];
    }
    let choice = match Choice::of("DLOCK_TEST_EVERY_FAULT", SAMPLE) {
        Ok(choice) => choice,
        Err(error) => {
            return vec![Trial::test("every_fault::choice", || Err(error.into()))];
        }
    };
    if let Choice::One(point) = choice {
        return vec![Trial::test("every_fault::one_point", move || one(&point))];
    }
    let mut trials = vec![
        Trial::test("every_fault::points_read_as_they_are_written", round_trip),
        Trial::test("every_fault::a_careless_wrapper_is_found_out", careless),
    ];
    trials.extend(SHAPES.iter().map(|shape| {
        let choice = choice.clone();
        let missing = shape.on_redis.then(redis::missing).flatten();
        let required = std::env::var("DLOCK_TEST_REQUIRE").unwrap_or_default();
        let skipped = missing.is_some() && !required.split(',').any(|name| name == "redis");
        Trial::test(format!("every_fault::{}", shape.name), move || every(shape, &choice))
            .with_ignored_flag(skipped)
    }));
    trials
}

/// The server of all trials; it dies with this process.
fn redis_of(shape: &Shape) -> u16 {
    static SERVER: OnceLock<Server> = OnceLock::new();
    if shape.on_redis { SERVER.get_or_init(|| redis::start_with(&["--appendonly", "no"])).port() } else { 0 }
}

/// Counts the calls of a run without a fault.
fn count(shape: &Shape) -> Result<Answer, Failed> {
    let counted = pool::work("count", redis_of(shape), &[shape.name.to_owned()]);
    if counted.points.is_empty() {
        return Err(
            format!("the calls of {} cannot be counted: {}", shape.name, counted.bad.join("; ")).into()
        );
    }
    Ok(counted)
}

fn every(shape: &'static Shape, choice: &Choice<Point>) -> Result<(), Failed> {
    let counted = count(shape)?;
    let points = choice.among(counted.points.clone());
    let answers = pool::play(&points, redis_of(shape), &counted.left);
    let told = tell(shape, &counted, &points, &answers);
    if counted.bad.is_empty() && answers.iter().all(|answer| answer.bad.is_empty()) {
        eprintln!("{told}");
        return Ok(());
    }
    Err(told.into())
}

/// How much was tried and what broke, each in a form that can be repeated.
fn tell(shape: &Shape, counted: &Answer, points: &[Point], answers: &[Answer]) -> String {
    let calls = |role| {
        let those = counted.points.iter().filter(|point| point.role == role);
        those.map(|point| point.number).max().unwrap_or(0)
    };
    let struck = answers.iter().filter(|answer| answer.call.is_some()).count();
    let broken = answers.iter().filter(|answer| !answer.bad.is_empty()).count();
    let longest = answers.iter().map(|answer| answer.took).max().unwrap_or(Duration::ZERO);
    let mut text = format!(
        "{}: {} calls of the caller, {} of the front, {} of the keeper, {} before the command; {} of {} points tried, \
         {struck} struck, {broken} broke; the longest took {longest:.1?}",
        shape.name,
        calls(Role::Caller),
        calls(Role::Front),
        calls(Role::Keeper),
        calls(Role::Launch),
        points.len(),
        counted.points.len(),
    );
    for bad in &counted.bad {
        let _ = write!(text, "\n  without a fault: {bad}");
    }
    let mut kinds = BTreeMap::<&str, usize>::new();
    for (point, answer) in points.iter().zip(answers).filter(|(_, answer)| !answer.bad.is_empty()) {
        let call = answer.call.as_deref().unwrap_or("not reached");
        let _ = write!(text, "\n  DLOCK_TEST_EVERY_FAULT={point} ({call})");
        for bad in &answer.bad {
            let _ = write!(text, "\n      {bad}");
            *kinds.entry(bad.split(':').next().unwrap_or(bad)).or_default() += 1;
        }
        for fact in &answer.facts {
            let _ = write!(text, "\n        {fact}");
        }
    }
    for (point, answer) in points.iter().zip(answers).filter(|(_, answer)| answer.took > SLOW) {
        let _ = write!(text, "\n  slow, {:.1?}: {point}", answer.took);
    }
    for (kind, number) in kinds {
        let _ = write!(text, "\n  {number} x {kind}");
    }
    text
}

/// One point, with everything that was seen.
fn one(point: &Point) -> Result<(), Failed> {
    let Some(shape) = Shape::named(&point.shape) else {
        return Err(format!("no shape {}", point.shape).into());
    };
    let counted = count(shape)?;
    let answers = pool::play(std::slice::from_ref(point), redis_of(shape), &counted.left);
    let answer = &answers[0];
    let call = answer.call.as_deref().unwrap_or("not reached");
    let told = format!("{point}\n{call}\n{}\n{}", answer.facts.join("\n"), answer.bad.join("\n"));
    if answer.bad.is_empty() {
        eprintln!("{told}");
        return Ok(());
    }
    Err(told.into())
}

/// `flock -o` lets its command live when it is killed: an enumeration that does not see that sees nothing.
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

fn round_trip() -> Result<(), Failed> {
    for text in [
        "run/keeper/57:pwrite64/EIO",
        "term/front/3:openat/proc=EACCES",
        "try/launch/1:prctl/STOP",
        "run/front/2:poll/1.3ttl",
    ] {
        let read: Point = text.parse().map_err(Failed::from)?;
        if read.to_string() != text {
            return Err(format!("{text} was read as {read}").into());
        }
    }
    for text in
        ["run/keeper/57/EIO", "run/nobody/5:read/EIO", "run/keeper/5:read/EWHAT", "run/keeper/5:read/a=b"]
    {
        if text.parse::<Point>().is_ok() {
            return Err(format!("{text} is no point").into());
        }
    }
    Ok(())
}
