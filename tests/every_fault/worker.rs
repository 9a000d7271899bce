//! One point, or the count of one shape, in a process of its own, which reaps everything that it starts.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::enumeration::process;
use crate::oracle::Case;
use crate::point::{Census, Point};
use crate::scene::{self, Seen};
use crate::shape::Shape;
use crate::site::Site;
use crate::sys;
use crate::tracer::{Injection, Tracer};

/// Counts the calls of a shape's run; prints `left FILE`, `bad COMPLAINT` and `point POINT` lines.
pub(crate) fn count(arguments: &[String]) -> ExitCode {
    let [folder, redis, name] = arguments else { return ExitCode::from(99) };
    let Some((site, shape)) = begin(folder, redis, name) else { return ExitCode::from(98) };
    let mut census = Census::default();
    let seen = scene::count(&site, shape, |process, call| census.note(shape.name, process, call));
    tidy_up(&site, &seen);
    say(site.leftovers().iter().map(|file| format!("left {file}")));
    let case = Case { shape, point: None, seen: &seen, site: &site, usual_files: None };
    say(case.complaints().iter().map(|complaint| format!("bad {complaint}")));
    say(census.points.iter().map(|point| format!("point {point}")));
    ExitCode::SUCCESS
}

/// Plays one point; prints `call CALL` if the fault struck, `bad COMPLAINT` lines, and `fact FACT` lines for a closer
/// look.
pub(crate) fn play(arguments: &[String]) -> ExitCode {
    let [folder, redis, point, usual @ ..] = arguments else { return ExitCode::from(99) };
    let Ok(point) = point.parse::<Point>() else { return ExitCode::from(98) };
    let Some((site, shape)) = begin(folder, redis, &point.shape) else { return ExitCode::from(98) };
    let seen = scene::play(&site, shape, &point);
    tidy_up(&site, &seen);
    say(seen.hit.iter().map(|hit| format!("call {}", hit.call)));
    let case = Case { shape, point: Some(&point), seen: &seen, site: &site, usual_files: Some(usual) };
    say(case.complaints().iter().map(|complaint| format!("bad {complaint}")));
    say(site.log().iter().map(|line| format!("fact {line}")));
    for who in ["run", "next", "holder", "script", "shell"] {
        say(site.read(&format!("{who}.err")).lines().map(|line| format!("fact {who} said: {line}")));
    }
    say([format!("fact first {:?}, front {:?}, keeper {:?}", seen.first, seen.front, seen.keeper)]);
    ExitCode::SUCCESS
}

fn begin(folder: &str, redis: &str, shape: &str) -> Option<(Site, &'static Shape)> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).ok()?;
    sys::hold_child_signals();
    let shape = Shape::named(shape)?;
    Some((Site::new(Path::new(folder), shape, redis.parse().ok()?), shape))
}

/// Kills the remaining processes. If all ended without that, reads the queue.
fn tidy_up(site: &Site, seen: &Seen) {
    let mut idle = Tracer::idle();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        idle.take(&mut |_, _| Injection::Nothing);
        let left = process::own_children();
        if left.is_empty() {
            break;
        }
        for pid in left {
            process::signal(pid, Signal::KILL);
        }
        sys::await_change(Duration::from_millis(2));
    }
    if seen.stuck.is_empty() {
        let status = site.status();
        while !idle.others.contains_key(&status) && begun.elapsed() < Duration::from_secs(20) {
            idle.take(&mut |_, _| Injection::Nothing);
            sys::await_change(Duration::from_millis(2));
        }
    }
}

#[expect(clippy::print_stdout, reason = "the process that started this one reads it")]
fn say(lines: impl IntoIterator<Item = String>) {
    for line in lines {
        println!("{}", line.replace('\n', "; "));
    }
}
