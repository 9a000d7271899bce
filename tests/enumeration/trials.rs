//! The trials of an enumeration: the choice of the points, the runs, several at once, and the report.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};

use crate::support::choice::Choice;
use crate::support::places::Places;
use crate::support::witness;

/// A point that takes longer is reported, even if nothing is wrong.
const SLOW: Duration = Duration::from_secs(20);

/// How often a point is tried while the machine stands still during it.
const TIMES: usize = 4;

/// One fault at one place, in a form that can be repeated.
pub(crate) trait Point: Display + FromStr<Err = String> + Clone + Send + Sync + 'static {}

impl<P: Display + FromStr<Err = String> + Clone + Send + Sync + 'static> Point for P {}

/// The result of a point.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// The call or the message that the fault met.
    pub(crate) met: Option<String>,
    /// The complaints, each beginning with its kind and a colon.
    pub(crate) bad: Vec<String>,
    /// The observations.
    pub(crate) facts: Vec<String>,
    pub(crate) took: Duration,
    /// Whether the machine stood still: then an answer without complaints proves nothing.
    pub(crate) is_void: bool,
}

/// Returns the trials that `variable` asks for: of one point, or of those that `rest` makes of a choice.
pub(crate) fn chosen<P: Point>(
    suite: &str,
    variable: &str,
    sample: usize,
    play: fn(&P) -> Result<Answer, Failed>,
    rest: impl FnOnce(&Choice<P>) -> Vec<Trial>,
) -> Vec<Trial> {
    match Choice::of(variable, sample) {
        Err(error) => vec![Trial::test(format!("{suite}::choice"), || Err(error.into()))],
        Ok(Choice::One(point)) => {
            vec![Trial::test(format!("{suite}::one_point"), move || show(&point, &play(&point)?))]
        }
        Ok(choice) => rest(&choice),
    }
}

/// Returns whether trials on the service of that name are skipped: it is missing, and nothing requires it.
pub(crate) fn is_skipped(name: &str, is_missing: impl FnOnce() -> bool) -> bool {
    let required = std::env::var("DLOCK_TEST_REQUIRE").unwrap_or_default();
    !required.split(',').any(|one| one == name) && is_missing()
}

/// Tries something once it has a place. Tries it again while `proves_nothing` of the result and of the time that the
/// machine stood still.
pub(crate) fn undisturbed<T>(
    places: &'static Places,
    mut attempt: impl FnMut() -> T,
    proves_nothing: impl Fn(&T, Option<Duration>) -> bool,
) -> T {
    for _ in 1..TIMES {
        let _place = places.take();
        let begun = witness::now();
        let came = attempt();
        if !proves_nothing(&came, witness::stood_still(begun)) {
            return came;
        }
    }
    let _place = places.take();
    attempt()
}

/// Plays all `points`, `at_once` of them at a time. Returns the answers in the same order.
pub(crate) fn play<P: Point>(
    points: &[P],
    at_once: usize,
    play: impl Fn(&P) -> Answer + Sync,
) -> Vec<Answer> {
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(vec![Answer::default(); points.len()]);
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some((at, point)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, points.get(at)?)))
                {
                    let answer = play(point);
                    if !answer.bad.is_empty() {
                        // Printed at once, since all of them take their time.
                        eprintln!("broken: {point}: {}", answer.bad.join("; "));
                    }
                    answers.lock().unwrap_or_else(PoisonError::into_inner)[at] = answer;
                }
            });
        }
    });
    answers.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The count of a run without a fault.
pub(crate) struct Counted {
    /// The shape and its numbers.
    pub(crate) what: String,
    pub(crate) points: usize,
    /// The complaints about it.
    pub(crate) bad: Vec<String>,
}

/// Reports how much was tried and what broke, in a form that can be repeated. Fails if anything broke.
pub(crate) fn judge<P: Point>(
    counted: &Counted,
    variable: &str,
    points: &[P],
    answers: &[Answer],
) -> Result<(), Failed> {
    let number = |is_it: fn(&&Answer) -> bool| answers.iter().filter(is_it).count();
    let broken = number(|answer| !answer.bad.is_empty());
    let longest = answers.iter().map(|answer| answer.took).max().unwrap_or(Duration::ZERO);
    let mut text = format!(
        "{}; {} of {} points tried, {} met, {broken} broke; the longest took {longest:.1?}",
        counted.what,
        points.len(),
        counted.points,
        number(|answer| answer.met.is_some()),
    );
    if let void @ 1.. = number(|answer| answer.is_void) {
        let _ = write!(text, "; {void} prove nothing since the machine stood still");
    }
    for bad in &counted.bad {
        let _ = write!(text, "\n  without a fault: {bad}");
    }
    let mut kinds = BTreeMap::<&str, usize>::new();
    for (point, answer) in points.iter().zip(answers).filter(|(_, answer)| !answer.bad.is_empty()) {
        let met = answer.met.as_deref().unwrap_or("not reached");
        let _ = write!(text, "\n  {variable}={point} ({met})");
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
    end(text, counted.bad.is_empty() && broken == 0)
}

/// Reports every observation of one point.
fn show<P: Point>(point: &P, answer: &Answer) -> Result<(), Failed> {
    let met = answer.met.as_deref().unwrap_or("not reached");
    let text = format!("{point}\n{met}\n{}\n{}", answer.facts.join("\n"), answer.bad.join("\n"));
    end(text, answer.bad.is_empty())
}

fn end(text: String, is_good: bool) -> Result<(), Failed> {
    if !is_good {
        return Err(text.into());
    }
    eprintln!("{text}");
    Ok(())
}
