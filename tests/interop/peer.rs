//! Programs that hold locks as they are told.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// How long anything may take that has to happen.
const SOON: Duration = Duration::from_secs(20);
/// How long one looks on before believing that nothing happens.
const BLINK: Duration = Duration::from_millis(300);

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
