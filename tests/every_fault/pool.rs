//! Runs workers, several at once.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::enumeration::trials::{self, Answer, undisturbed};
use crate::point::Point;
use crate::support::TestEnv;
use crate::support::places::Places;
use crate::support::program::dlock;
use crate::support::witness;

/// Only a stuck worker takes longer.
const LIMIT: Duration = Duration::from_secs(60);

/// Calls are traced. So a machine that loses this much in a second may need more time to end a tree than the lease has
/// left.
const STILL: Duration = Duration::from_millis(100);

/// Points wait more than they work.
static PLACES: Places = Places::new(4);

/// The output of a worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    pub(crate) answer: Answer,
    pub(crate) left: Vec<String>,
    pub(crate) points: Vec<Point>,
}

impl Said {
    fn read(text: &str) -> Self {
        let mut said = Self::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("call", call)) => said.answer.met = Some(call.to_owned()),
                Some(("bad", bad)) => said.answer.bad.push(bad.to_owned()),
                Some(("fact", fact)) => said.answer.facts.push(fact.to_owned()),
                Some(("left", file)) => said.left.push(file.to_owned()),
                Some(("point", point)) => said.points.extend(point.parse()),
                _ => said.answer.bad.push(format!("the worker said: {line}")),
            }
        }
        said
    }
}

/// Has a worker do `what`, and repeats it while it fails on a machine that stands still: the machine may be the cause,
/// unless it fails each time.
pub(crate) fn work(what: &str, redis: u16, arguments: &[String]) -> Said {
    witness::watch(STILL);
    let is_wrong = |said: &Said| !said.answer.bad.is_empty() || (what == "count" && said.points.is_empty());
    undisturbed(
        &PLACES,
        || work_once(what, redis, arguments),
        |said, still| is_wrong(said) && still.is_some(),
    )
}

fn work_once(what: &str, redis: u16, arguments: &[String]) -> Said {
    let env = TestEnv::new();
    let begun = Instant::now();
    let mut command = env.command(std::env::current_exe().expect("this program"));
    command.env("DLOCK_TEST_PROGRAM", dlock()).arg(what).arg(env.root()).arg(redis.to_string());
    let mut worker = env.start(command.args(arguments));
    while !worker.has_ended() {
        if begun.elapsed() > LIMIT {
            worker.signal(Signal::KILL);
        }
        thread::sleep(Duration::from_millis(2));
    }
    let took = begun.elapsed();
    let ended = worker.finish();
    let mut said = Said::read(&ended.text());
    if !ended.status.success() {
        said.answer.bad.push(format!("the test's own worker ended with {}: {}", ended.status, ended.err));
    }
    said.answer.took = took;
    said
}

/// Plays all `points`. Returns the answers in the same order.
pub(crate) fn play(points: &[Point], redis: u16, usual: &[String]) -> Vec<Answer> {
    trials::play(points, PLACES.number(), |point| {
        work("play", redis, &[&[point.to_string()], usual].concat()).answer
    })
}
