//! Sharing a lock with `flock(1)`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::testing::*;
use crate::backend::Backend;
use crate::lock::{ErrorKind, Mode};

/// Starts `flock(1)` on the lock file of `a` and returns once it has the lock. It releases the lock when its standard
/// input ends.
fn flock(f: &Fixture, mode: &str) -> Child {
    let mut child = start(
        Command::new("flock")
            .args([mode, "--no-fork"])
            .arg(f.temp.path().join("a"))
            .args(["sh", "-c", "echo got; read x"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped()),
    );
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("read");
    assert_eq!(line, "got\n");
    child
}

fn let_go(mut child: Child) {
    drop(child.stdin.take());
    child.wait().expect("waited");
}

#[tokio::test]
async fn a_shared_flock_1_mixes_with_shared_claims_only() {
    let f = fixture();
    let child = flock(&f, "-s");
    let shared = enter(&f.backend, &request(1, &["a"], Mode::Shared)).await;
    held(&shared).await;
    let slot = f.backend.enter(&request(2, &["a"], slots(1)), soon()).await;
    assert_eq!(slot.expect_err("another kind").kind, ErrorKind::Mismatch);
    leave(&shared).await;
    let exclusive = enter(&f.backend, &request(3, &["a"], Mode::Exclusive)).await;
    assert_eq!(waits(&exclusive).await, 1);
    // Given up while a thread waits for the file: the thread must not keep the lock.
    leave(&exclusive).await;
    let_go(child);
    let again = enter(&f.backend, &request(4, &["a"], Mode::Exclusive)).await;
    held(&again).await;
}
