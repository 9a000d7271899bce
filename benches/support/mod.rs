//! The common parts of the benchmarks: the two tools, sections that leave stamps, a scratch directory, statistics.
#![allow(dead_code, reason = "each benchmark uses a part of it")]

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{env, process, thread};

use rustix::time::{ClockId, clock_gettime};

/// The time after which the benchmark gives up.
const PATIENCE: Duration = Duration::from_secs(20);
/// The pause between two polls of a growing queue.
const LOOK: Duration = Duration::from_millis(1);

/// Runs `measure` under `cargo bench`, or plays the part of a child process. Does nothing under `cargo test`.
pub(crate) fn main(measure: impl FnOnce(&Scratch)) {
    let words: Vec<String> = env::args().collect();
    match words.get(1).map(String::as_str) {
        Some("stamp") => stamp(&words[2..]),
        Some("gate") => gate(),
        _ if words.iter().any(|word| word == "--bench") => measure(&Scratch::new()),
        _ => {}
    }
}

/// Returns a number from the environment.
pub(crate) fn setting(name: &str, default: usize) -> usize {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A directory of its own on the file system of the build, removed at the end. `BENCH_DIR` chooses another place.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let parent =
            env::var_os("BENCH_DIR").map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from);
        let path = parent.join(format!("bench-{}", process::id()));
        fs::create_dir_all(&path).expect("a scratch directory");
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns dlock, without the user's configuration. `DLOCK_BIN` chooses another program.
pub(crate) fn dlock(scratch: &Scratch) -> Command {
    let binary = env::var_os("DLOCK_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_dlock").into());
    let mut command = Command::new(binary);
    command.env("XDG_CONFIG_HOME", scratch.path("no-configuration"));
    command
}

/// A tool in the comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tool {
    Flock,
    Dlock,
}

impl Tool {
    pub(crate) const BOTH: [Self; 2] = [Self::Flock, Self::Dlock];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Flock => "flock",
            Self::Dlock => "dlock",
        }
    }

    /// Returns a command that runs `argv` under the lock `name`, without streams.
    pub(crate) fn command(self, scratch: &Scratch, name: &str, argv: &[&str]) -> Command {
        let locks = self.locks(scratch);
        let mut command = match self {
            Self::Flock => {
                let mut command = Command::new("flock");
                command.arg(locks.join(name));
                command
            }
            Self::Dlock => {
                let mut command = dlock(scratch);
                command.args(["run", "--quiet", "--name", name, "--endpoint"]).arg(locks).arg("--");
                command
            }
        };
        command.args(argv).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        command
    }

    fn locks(self, scratch: &Scratch) -> PathBuf {
        let path = scratch.path(self.name());
        fs::create_dir_all(&path).expect("a lock directory");
        path
    }

    /// Returns the number of waiters for the lock `name`, which has a holder.
    fn waiting(self, scratch: &Scratch, name: &str) -> usize {
        let locks = self.locks(scratch);
        match self {
            Self::Flock => {
                let inode = fs::metadata(locks.join(name)).expect("the lock file").ino();
                let table = fs::read_to_string("/proc/locks").expect("the kernel's locks");
                let own = format!(":{inode} ");
                table.lines().filter(|line| line.contains("->") && line.contains(&own)).count()
            }
            Self::Dlock => {
                // Each waiter has a FIFO of its own. The holder found the queue empty and has the permanent one.
                let own = format!(".{name}.");
                let files = fs::read_dir(locks).expect("the lock directory").flatten();
                let names = files.filter_map(|file| file.file_name().into_string().ok());
                let claims = names.filter(|n| n.strip_prefix(&own).is_some_and(|id| id.len() == 32));
                claims.count()
            }
        }
    }
}

/// A process that holds a lock until it is released.
pub(crate) struct Holder(Child);

impl Holder {
    /// Starts one and returns when it holds.
    pub(crate) fn start(tool: Tool, scratch: &Scratch, name: &str) -> Self {
        let me = env::current_exe().expect("the benchmark's own path");
        let me = me.to_str().expect("a path in UTF-8");
        let mut command = tool.command(scratch, name, &[me, "gate"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a holder");
        let mut word = [0; 5];
        child.stdout.as_mut().expect("piped").read_exact(&mut word).expect("the holder holds");
        Self(child)
    }

    /// Releases the lock, and waits until the process has ended.
    pub(crate) fn release(mut self) {
        drop(self.0.stdin.take());
        let status = self.0.wait().expect("the holder's end");
        assert!(status.success(), "the holder ended with {status}");
    }
}

/// The holder's command: reports that it runs, and ends at the end of its standard input.
fn gate() {
    let mut out = std::io::stdout();
    out.write_all(b"held\n").and_then(|()| out.flush()).expect("a server listens");
    drop(std::io::stdin().read_to_end(&mut Vec::new()));
}

fn nanoseconds() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let (seconds, rest) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.expect("after the start of the host") * 1_000_000_000 + rest.expect("not negative")
}

/// The command of a waiter, with a file, microseconds and an index: waits for that long, then appends the times of its
/// start and end.
fn stamp(words: &[String]) {
    let start = nanoseconds();
    let stay = words[1].parse().expect("microseconds");
    thread::sleep(Duration::from_micros(stay));
    let mut file = File::options().append(true).create(true).open(&words[0]).expect("the file of stamps");
    let line = format!("{start} {} {}\n", nanoseconds(), words[2]);
    file.write_all(line.as_bytes()).expect("a stamp");
}

/// One section under the lock.
struct Section {
    start: u64,
    end: u64,
    index: usize,
}

/// The result of a queue of waiters.
#[derive(Default)]
pub(crate) struct Handover {
    pub(crate) ran: usize,
    /// From each section's end to the next one's start, in ms; negative for an overlap.
    pub(crate) gaps: Vec<f64>,
    pub(crate) overlaps: usize,
    /// Sections that came after one of a later waiter.
    pub(crate) out_of_order: usize,
}

impl Handover {
    pub(crate) fn add(&mut self, other: Self) {
        self.ran += other.ran;
        self.gaps.extend(other.gaps);
        self.overlaps += other.overlaps;
        self.out_of_order += other.out_of_order;
    }

    fn of(stamps: &Path) -> Self {
        let text = fs::read_to_string(stamps).expect("stamps");
        let mut sections: Vec<Section> = text.lines().map(section).collect();
        sections.sort_by_key(|section| section.start);
        #[expect(clippy::cast_precision_loss, reason = "differences of nanoseconds are small")]
        let gap = |pair: &[Section]| {
            let (end, start) = (pair[0].end, pair[1].start);
            let length = start.abs_diff(end) as f64 / 1e6;
            if start < end { -length } else { length }
        };
        let gaps: Vec<f64> = sections.windows(2).map(gap).collect();
        Self {
            ran: sections.len(),
            overlaps: gaps.iter().filter(|gap| **gap < 0.0).count(),
            gaps,
            out_of_order: sections.windows(2).filter(|pair| pair[0].index > pair[1].index).count(),
        }
    }
}

fn section(line: &str) -> Section {
    let mut numbers = line.split(' ').map(|number| number.parse().expect("a number"));
    let mut next = || numbers.next().expect("three numbers");
    let (start, end, index): (u64, u64, u64) = (next(), next(), next());
    Section { start, end, index: usize::try_from(index).expect("an index") }
}

/// Queues `waiters` behind a holder, one after another, then releases the holder and waits for all of them. Each stays
/// for `stay`.
pub(crate) fn hand_over(
    tool: Tool,
    scratch: &Scratch,
    name: &str,
    waiters: usize,
    stay: Duration,
) -> Handover {
    let me = env::current_exe().expect("the benchmark's own path");
    let me = me.to_str().expect("a path in UTF-8");
    let stamps = scratch.path(&format!("{name}-{}.stamps", tool.name()));
    let file = stamps.to_str().expect("a path in UTF-8");
    let stay = stay.as_micros().to_string();
    let holder = Holder::start(tool, scratch, name);
    let queue = |index: usize| {
        let argv = [me, "stamp", file, &stay, &index.to_string()];
        let child = tool.command(scratch, name, &argv).spawn().expect("a waiter");
        until_waiting(tool, scratch, name, index + 1);
        child
    };
    let children: Vec<Child> = (0..waiters).map(queue).collect();
    holder.release();
    for child in children {
        let status = end_of(child);
        assert!(status.success(), "a waiter of {} ended with {status}", tool.name());
    }
    Handover::of(&stamps)
}

/// Returns when `count` processes wait.
pub(crate) fn until_waiting(tool: Tool, scratch: &Scratch, name: &str, count: usize) {
    let began = Instant::now();
    while tool.waiting(scratch, name) < count {
        assert!(began.elapsed() < PATIENCE, "waiter {count} of {} did not come", tool.name());
        thread::sleep(LOOK);
    }
}

fn end_of(mut child: Child) -> ExitStatus {
    child.wait().expect("a child's end")
}

/// Returns the value below which `part` (0 to 1) of the values lie.
pub(crate) fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index of a short list"
    )]
    let index = ((sorted.len().saturating_sub(1)) as f64 * part).round() as usize;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Returns one line of figures: a title, then names with values.
pub(crate) fn line(title: &str, figures: &[(&str, String)]) -> String {
    let mut text = format!("{title:<24}");
    for (name, value) in figures {
        let _ = write!(text, "  {name} {value:>8}");
    }
    text
}
