//! Runs workers, several at once.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::enumeration::trials::{self, Answer, undisturbed};
use crate::point::Point;
use crate::site::MARK;
use crate::support::places::Places;
use crate::support::process;
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

/// A directory for one worker, removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let name = format!("dlock-fault-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a directory for a worker");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
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
    let folder = Folder::new();
    let begun = Instant::now();
    let mut worker = Command::new(std::env::current_exe().expect("this program"))
        .arg(what)
        .arg(&folder.0)
        .arg(redis.to_string())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("a worker");
    let mut output = worker.stdout.take().expect("piped");
    // The worker prints everything at its end, which may be more than fits into a pipe.
    let reader = thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).map(|_| text).unwrap_or_default()
    });
    let mut stuck = false;
    let status = loop {
        if let Some(status) = worker.try_wait().expect("a child") {
            break status;
        }
        if begun.elapsed() > LIMIT && !stuck {
            stuck = true;
            worker.kill().expect("a child");
        }
        thread::sleep(Duration::from_millis(2));
    };
    if !status.success() {
        end_all_of(&folder.0);
    }
    let mut said = Said::read(&reader.join().expect("a reader"));
    if !status.success() {
        said.answer.bad.push(format!("the test's own worker ended with {status}"));
    }
    said.answer.took = begun.elapsed();
    said
}

/// Kills every process that a worker has left in `folder`.
fn end_all_of(folder: &Path) {
    for _ in 0..100 {
        let left = process::with_variable(MARK, &folder.display().to_string());
        if left.is_empty() {
            return;
        }
        for one in left {
            process::signal(one.pid, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Plays all `points`. Returns the answers in the same order.
pub(crate) fn play(points: &[Point], redis: u16, usual: &[String]) -> Vec<Answer> {
    trials::play(points, PLACES.number(), |point| {
        work("play", redis, &[&[point.to_string()], usual].concat()).answer
    })
}
