//! Sees when the machine stands still: what is told of a lease of three seconds by a machine that stops for a part of one is
//! told by the machine.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Mutex, Once, PoisonError};
use std::thread;
use std::time::Duration;

use crate::command::now;
use crate::point::TTL;

/// Between two questions to another process.
const STEP: Duration = Duration::from_millis(20);

/// Longer, and a renewal that passes through five processes may not be answered in time.
const STILL: Duration = TTL.checked_div(20).expect("not by zero");

/// When a question was asked that took too long, and how long.
static STOOD: Mutex<Vec<(Duration, Duration)>> = Mutex::new(Vec::new());

/// Begins to watch, for as long as this process lives.
#[expect(clippy::zombie_processes, reason = "it dies with this process")]
pub(crate) fn watch() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        thread::spawn(|| {
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut other = command.spawn().expect("a process to ask");
            let (mut asks, mut answers) =
                (other.stdin.take().expect("a pipe"), other.stdout.take().expect("a pipe"));
            loop {
                let asked = now();
                thread::sleep(STEP);
                asks.write_all(b"?").expect("it listens");
                answers.read_exact(&mut [0]).expect("it answers");
                let took = now().saturating_sub(asked + STEP);
                if took > STILL {
                    STOOD.lock().unwrap_or_else(PoisonError::into_inner).push((asked, took));
                }
            }
        });
    });
}

/// For how long the machine stood still at most since then.
pub(crate) fn stood_still(since: Duration) -> Option<Duration> {
    let stood = STOOD.lock().unwrap_or_else(PoisonError::into_inner);
    stood.iter().filter(|(at, took)| *at + *took > since).map(|(_, took)| *took).max()
}
