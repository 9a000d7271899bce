//! This binary as a lock taker: a process of its own that a case can kill.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use dlock::clock::Clock;
use dlock::lock::{ClaimId, ClaimState, Holder, LockName, Mode, Moment, Request};

use crate::bench::Bench;
use crate::fixtures::Subject;

const SUBJECT: &str = "DLOCK_CONTRACT_TAKER";
const ADDRESS: &str = "DLOCK_CONTRACT_ADDRESS";
const LOCK: &str = "DLOCK_CONTRACT_LOCK";
const TTL_MS: &str = "DLOCK_CONTRACT_TTL_MS";
const SEED: &str = "DLOCK_CONTRACT_SEED";
const COUNT: &str = "DLOCK_CONTRACT_COUNT";

/// The number of times that a counting taker adds one.
pub(crate) const ROUNDS: u64 = 40;

/// A taker process, killed when dropped.
pub(crate) struct Taker {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Taker {
    /// Starts a process that enters the queue of `lock` and stays. With `count` it adds to the number in that file
    /// instead, each time under the lock.
    pub(crate) fn start(b: &Bench, lock: &LockName, count: Option<&Path>) -> Self {
        // A taker does not renew. No case waits for the lease of a counting taker to expire.
        let ttl = if count.is_some() { Duration::from_secs(3600) } else { b.fixture.short_ttl() };
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command
            .env(SUBJECT, b.subject.name())
            .env(ADDRESS, b.fixture.address())
            .env(LOCK, lock.as_str())
            .env(TTL_MS, ttl.as_millis().to_string())
            .env(SEED, b.random(u64::MAX).to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if let Some(path) = count {
            command.env(COUNT, path);
        }
        let mut child = command.spawn().expect("starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, out }
    }

    /// Returns its next word, or an empty text if it has ended. The taker limits its own waits.
    pub(crate) fn says(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("reads");
        line.trim_end().to_owned()
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("kills");
        self.child.wait().expect("waits");
    }

    pub(crate) fn succeeds(mut self) -> bool {
        self.child.wait().expect("waits").success()
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// If this process was started as a taker, does its work and returns true after counting.
pub(crate) fn run_if_asked() -> bool {
    let Ok(subject) = std::env::var(SUBJECT) else { return false };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(take(&subject));
    true
}

fn var(name: &str) -> String {
    std::env::var(name).expect("set by the one who started this")
}

async fn take(subject: &str) {
    let subject = Subject::named(subject).expect("a known fixture");
    let client = subject.remote().expect("reachable from another process")(&var(ADDRESS));
    let seed: u64 = var(SEED).parse().expect("a number");
    let count = std::env::var_os(COUNT);
    for round in 0..ROUNDS {
        let id = (u128::from(seed) << 64) | u128::from(round);
        let request = Request {
            names: vec![LockName::new(var(LOCK)).expect("a name")],
            id: ClaimId::from_bytes(id.to_be_bytes()),
            mode: Mode::Exclusive,
            ttl: Duration::from_millis(var(TTL_MS).parse().expect("a number")),
            holder: Holder { host: "taker".into(), pid: std::process::id(), ..Holder::default() },
            ancestors: Vec::new(),
            supersede: false,
        };
        let deadline = Clock::Boot.now() + Duration::from_secs(60);
        let claim = client.enter(&request, deadline).await.expect("enters");
        let mut state = claim.changed(None).await.expect("follows");
        while !matches!(state, ClaimState::Held(_)) {
            if count.is_none() {
                say("waiting");
            }
            state = tokio::select! {
                next = claim.changed(Some(&state)) => next.expect("follows"),
                () = Clock::Boot.sleep_until(deadline) => panic!("never held"),
            };
        }
        match &count {
            None => {
                say("held");
                Clock::Boot.sleep_until(Moment::NEVER).await;
            }
            Some(path) => {
                add_one(Path::new(path));
                claim.leave(false, deadline).await.expect("leaves");
            }
        }
    }
}

fn say(word: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "{word}").and_then(|()| out.flush()).expect("a reader");
}

/// Not atomic on purpose: only the lock makes the count exact.
fn add_one(path: &Path) {
    let count: u64 = std::fs::read_to_string(path).expect("reads").trim().parse().expect("a number");
    std::thread::yield_now();
    std::fs::write(path, (count + 1).to_string()).expect("writes");
}
