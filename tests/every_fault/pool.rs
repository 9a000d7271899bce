//! Runs workers, several at once.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::point::Point;
use crate::process;
use crate::site::MARK;
use crate::support::places::Places;
use crate::support::witness;

/// No worker takes longer that is not stuck itself.
const LIMIT: Duration = Duration::from_secs(60);

/// Since calls are traced, a machine that loses so much in a second may take longer to end a tree than a lease has left.
const STILL: Duration = Duration::from_millis(100);

/// How often a point is played of which something is wrong while the machine stands still: that may be the machine's fault,
/// unless it is wrong each time.
const TIMES: usize = 4;

/// Points wait more than they work.
static PLACES: Places = Places::new(4);

/// What a worker said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) call: Option<String>,
    pub(crate) bad: Vec<String>,
    pub(crate) facts: Vec<String>,
    pub(crate) left: Vec<String>,
    pub(crate) points: Vec<Point>,
    pub(crate) took: Duration,
}

impl Answer {
    fn of(text: &str) -> Self {
        let mut answer = Self::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("call", call)) => answer.call = Some(call.to_owned()),
                Some(("bad", bad)) => answer.bad.push(bad.to_owned()),
                Some(("fact", fact)) => answer.facts.push(fact.to_owned()),
                Some(("left", file)) => answer.left.push(file.to_owned()),
                Some(("point", point)) => answer.points.extend(point.parse()),
                _ => answer.bad.push(format!("the worker said: {line}")),
            }
        }
        answer
    }
}

/// A folder for one worker, gone when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let name = format!("dlock-fault-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a folder for a worker");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Has a worker do `what`, again while that goes wrong on a machine that stands still.
pub(crate) fn work(what: &str, redis: u16, arguments: &[String]) -> Answer {
    witness::watch(STILL);
    let mut answer = Answer::default();
    for _ in 0..TIMES {
        let _place = PLACES.take();
        let begun = witness::now();
        answer = work_once(what, redis, arguments);
        let is_wrong = !answer.bad.is_empty() || (what == "count" && answer.points.is_empty());
        if !is_wrong || witness::stood_still(begun).is_none() {
            break;
        }
    }
    answer
}

fn work_once(what: &str, redis: u16, arguments: &[String]) -> Answer {
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
    // It says everything at its end, and that may be more than a pipe holds.
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
    let mut answer = Answer::of(&reader.join().expect("a reader"));
    if !status.success() {
        answer.bad.push(format!("the test's own worker ended with {status}"));
    }
    answer.took = begun.elapsed();
    answer
}

/// Ends every process that a worker has left in `folder`.
fn end_all_of(folder: &Path) {
    let mark = format!("{MARK}={}", folder.display());
    for _ in 0..100 {
        let left = process::with_variable(&mark);
        if left.is_empty() {
            return;
        }
        for pid in left {
            process::signal(pid, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Plays all `points`; the answers are in their order.
pub(crate) fn play(points: &[Point], redis: u16, usual: &[String]) -> Vec<Answer> {
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(vec![Answer::default(); points.len()]);
    thread::scope(|scope| {
        for _ in 0..PLACES.number() {
            scope.spawn(|| {
                while let Some((at, point)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, points.get(at)?)))
                {
                    let arguments = [&[point.to_string()], usual].concat();
                    let answer = work("play", redis, &arguments);
                    if !answer.bad.is_empty() {
                        // At once: all of them take their time.
                        eprintln!("broken: {point}: {}", answer.bad.join("; "));
                    }
                    answers.lock().unwrap_or_else(PoisonError::into_inner)[at] = answer;
                }
            });
        }
    });
    answers.into_inner().unwrap_or_else(PoisonError::into_inner)
}
