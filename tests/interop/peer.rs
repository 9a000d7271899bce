//! Programs that hold locks and obey orders.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::both;
use crate::place;
use crate::servers::{Kind, Site};
use crate::support::running::finish_all;
use crate::support::{TestEnv, until};

/// The time limit for an event that must happen.
const SOON: Duration = Duration::from_secs(20);
/// The time of watching after which a test concludes that nothing happens.
const BLINK: Duration = Duration::from_millis(300);

/// Returns a Python that has `module`, the client's. Without one, prints the reason and returns `None`.
pub(crate) fn python_with(client: &str, module: &str) -> Option<String> {
    let python = std::env::var("DLOCK_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let found =
        Command::new(&python).args(["-c", &format!("import {module}")]).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        crate::skip(client, &format!("{python} has no {module}"));
        return None;
    }
    Some(python)
}

/// Returns the words that run the peer in `script` with `python`.
pub(crate) fn words(python: String, script: &str) -> Vec<String> {
    vec![python, format!("{}/tests/interop/{script}", env!("CARGO_MANIFEST_DIR"))]
}

/// A client in Python, and an environment on the service that it uses.
pub(crate) struct PeerEnv {
    pub(crate) env: TestEnv,
    /// The words that start the client, with the address of the service.
    words: Vec<String>,
}

impl PeerEnv {
    /// Creates one with `client`, a Python `module` with the peer in `script`, and a part of the shared service. `tell`
    /// returns the peer's arguments for the service. If the client or the service is missing, prints the reason and
    /// returns `None`.
    pub(crate) fn of(
        client: &str,
        module: &str,
        script: &str,
        kind: &Kind,
        tell: impl FnOnce(&dyn Site) -> Vec<String>,
    ) -> Option<Self> {
        let env = place::env(kind)?;
        let python = python_with(client, module)?;
        Some(Self { env, words: [words(python, script), tell(place::site(kind))].concat() })
    }

    /// Starts the client, which obeys orders.
    pub(crate) fn peer(&self) -> Peer {
        Peer::start(Command::new(&self.words[0]).args(&self.words[1..]).arg("obey"))
    }

    /// Returns the client's name for the lock x.
    pub(crate) fn key(&self) -> String {
        place::key(&self.env)
    }

    /// Expects for each way to hold that the client waits until dlock has left, and then excludes dlock. `lives` may
    /// follow the key in the order: the lifetime of the lock.
    #[track_caller]
    pub(crate) fn waits_for_dlock(&self, lives: &[&str]) {
        let (env, mut peer, key) = (&self.env, self.peer(), self.key());
        for mode in both::modes(env) {
            let holder = env.held(&[&["-q", "--name", "x"], mode].concat());
            for life in lives {
                peer.order(&format!("try a {key} {life}"));
                peer.says("busy a");
            }
            peer.order(&format!("wait a {key} {}", lives[0]));
            peer.is_silent();
            holder.release().silently(0);
            peer.says("held a");
            env.assert_busy("x");
            peer.release("a");
            env.assert_free("x");
        }
    }

    /// Expects that dlock waits for the client in every mode, and then holds. `lives` may follow the key in the order: the
    /// lifetime of the lock.
    #[track_caller]
    pub(crate) fn keeps_dlock_waiting(&self, lives: &[&str]) {
        let (env, mut peer, key) = (&self.env, self.peer(), self.key());
        for life in lives {
            peer.order(&format!("wait a {key} {life}"));
            peer.says("held a");
            both::assert_foreign(env);
            let mut next = env.hold(&["--name", "x"]);
            until("it waits", || next.running.err_so_far().contains("waiting for x").then_some(()));
            assert!(!next.has_started(), "dlock waits");
            peer.release("a");
            next.await_start();
            assert_eq!(next.release().code(), Some(0));
            env.assert_free("x");
        }
    }

    /// Counts with both sides up to `pairs` times: the client adds one to the number in a file `times` times, and dlock
    /// as often, each time under the lock.
    #[track_caller]
    pub(crate) fn count(&self, pairs: u32, times: u32) {
        let (env, key) = (&self.env, self.key());
        let file = env.write("count", "0\n");
        let mut all = Vec::new();
        for _ in 0..pairs {
            let mut command = env.command(&self.words[0]);
            command.args(&self.words[1..]).args(["count", &key]).arg(&file).arg(times.to_string());
            all.push(env.start(&mut command));
            let add = "read n <count; echo $((n+1)) >count";
            let script =
                format!("for _ in {{1..{times}}}; do run -q --name x -- sh -c '{add}' || exit; done");
            all.push(env.start(&mut env.bash(&script)));
        }
        finish_all(all);
        assert_eq!(env.await_line("count"), (2 * pairs * times).to_string());
    }
}

/// A foreign client that obeys line by line.
pub(crate) struct Peer {
    child: Child,
    orders: ChildStdin,
    said: Receiver<String>,
}

impl Peer {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a program that starts");
        let orders = child.stdin.take().expect("piped");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, said) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, orders, said }
    }

    pub(crate) fn order(&mut self, line: &str) {
        writeln!(self.orders, "{line}").expect("it reads");
    }

    #[track_caller]
    pub(crate) fn says(&mut self, line: &str) {
        assert_eq!(self.said.recv_timeout(SOON).as_deref(), Ok(line));
    }

    #[track_caller]
    pub(crate) fn is_silent(&mut self) {
        let said = self.said.recv_timeout(BLINK);
        assert!(said.is_err(), "it waits, but says {said:?}");
    }

    #[track_caller]
    pub(crate) fn release(&mut self, name: &str) {
        self.order(&format!("release {name}"));
        self.says(&format!("released {name}"));
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
