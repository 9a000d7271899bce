//! Curator and kazoo in the same queues as dlock.

mod curator;
mod kazoo;

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::peer::Peer;
use crate::servers::zookeeper;
use crate::support::gate::Gate;
use crate::support::{Running, TestEnv, until};

/// A queue that no other test has, and an environment to use it.
struct Queue {
    env: TestEnv,
    path: String,
    layout: &'static str,
}

impl Queue {
    fn new(layout: &'static str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let path = format!("/foreign/queue{}", NEXT.fetch_add(1, Ordering::Relaxed));
        Self { env: TestEnv::new(), path, layout }
    }

    fn verb(&self, verb: &str, options: &[&str]) -> Command {
        let endpoint = zookeeper::endpoint();
        let mut command = self.env.dlock([verb, "--endpoint", &endpoint, "--prefix", ""]);
        command.args(["--zk-layout", self.layout]).args(options);
        command
    }

    /// Returns the exit status of `dlock run --try`.
    fn tried(&self, options: &[&str]) -> Option<i32> {
        let mut command = self.verb("run", &["--name", &self.path, "--try", "--quiet"]);
        self.env.finish(command.args(options).args(["--", "true"])).code()
    }

    /// Starts a dlock whose command creates `NAME.held` and waits at a gate.
    fn start(&self, name: &str, options: &[&str]) -> (Running, Gate) {
        let gate = self.env.gate(&format!("{name}.gate"));
        let script = r#"echo "$DLOCK_TOKEN" >"$0.held"; read _ <"$0.gate""#;
        let mut command = self.verb("run", &["--name", &self.path, "--quiet"]);
        (self.env.start(command.args(options).args(["--", "sh", "-c", script, name])), gate)
    }

    #[track_caller]
    fn hold(&self, name: &str, options: &[&str]) -> (Running, Gate) {
        let running = self.start(name, options);
        self.env.await_line(&format!("{name}.held"));
        running
    }

    fn holds(&self, name: &str) -> bool {
        self.env.exists(&format!("{name}.held"))
    }

    fn status(&self) -> Value {
        let finished = self.env.finish(&mut self.verb("status", &["--json", &self.path]));
        serde_json::from_str(&finished.text()).expect("JSON")
    }

    #[track_caller]
    fn await_waiters(&self, count: usize) {
        until(&format!("{count} waiters"), || {
            let queue = self.status();
            (queue["waiters"].as_array().map(Vec::len) == Some(count)).then_some(())
        });
    }
}

/// Lets a dlock's command end, and dlock with it.
#[track_caller]
fn end((running, gate): (Running, Gate)) {
    gate.open();
    running.finish().silently(0);
}
