//! Notices when the machine stands still. A short lease that is lost then is not dlock's fault.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Mutex, Once, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The pause between two questions to another process.
const STEP: Duration = Duration::from_millis(20);

/// The work that each question costs.
const WORK: Duration = Duration::from_micros(500);

/// So many questions take a second on a machine at rest.
const WINDOW: usize = 50;

/// The times of questions by which too much time was lost, and the lost times.
static STOOD: Mutex<Vec<(Duration, Duration)>> = Mutex::new(Vec::new());

/// Returns the time since the machine was started, which is the same for all processes.
pub(crate) fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).expect("after the start")
}

/// Begins to watch for the rest of this process's life. The machine stands still if it loses more than `still` in a
/// second.
#[expect(clippy::zombie_processes, reason = "it dies with this process")]
pub(crate) fn watch(still: Duration) {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        thread::spawn(move || {
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut other = command.spawn().expect("a process to ask");
            let (mut asks, mut answers) =
                (other.stdin.take().expect("a pipe"), other.stdout.take().expect("a pipe"));
            let mut lost = VecDeque::from([Duration::ZERO; WINDOW]);
            loop {
                let asked = now();
                thread::sleep(STEP);
                asks.write_all(b"?").expect("it listens");
                answers.read_exact(&mut [0]).expect("it answers");
                work();
                lost.pop_front();
                lost.push_back(now().saturating_sub(asked + STEP + WORK));
                let all: Duration = lost.iter().sum();
                if all > still {
                    STOOD.lock().unwrap_or_else(PoisonError::into_inner).push((asked, all));
                }
            }
        });
    });
}

/// Uses the processor for a while.
fn work() {
    let used = || clock_gettime(ClockId::ThreadCPUTime);
    let used = || Duration::try_from(used()).expect("since the start");
    let begun = used();
    while used() < begun + WORK {}
}

/// Returns the most time that the machine has lost in a second since then.
pub(crate) fn stood_still(since: Duration) -> Option<Duration> {
    let stood = STOOD.lock().unwrap_or_else(PoisonError::into_inner);
    stood.iter().filter(|(at, _)| *at > since).map(|(_, lost)| *lost).max()
}
