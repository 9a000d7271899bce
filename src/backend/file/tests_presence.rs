//! Files of a hold that are removed, replaced or moved, and directories out of reach.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use super::FileConfig;
use super::testing::*;
use crate::lock::{ClaimState, LossReason, Mode, Request};

/// Waits until the files of a new hold are watched.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(400)).await;
}

async fn lost(claim: &TestClaim, hold: &ClaimState, file: &str) {
    let state = next(claim, hold).await;
    let ClaimState::Lost(LossReason::Replaced(why)) = state else { panic!("{state:?}") };
    assert!(why.contains(file), "{why}");
}

/// Creates a lock directory `locks` in `app/one`, reached through the links `current` and `app/current`, and another
/// one in `app/two`.
fn releases() -> (TempDir, TestBackend) {
    let temp = TempDir::new();
    for release in ["one", "two"] {
        fs::create_dir_all(temp.path().join("app").join(release).join("locks")).expect("a directory");
    }
    symlink("one", temp.path().join("app/current")).expect("a link");
    symlink(temp.path().join("app/x/.."), temp.path().join("current")).expect("a link");
    fs::create_dir(temp.path().join("app/x")).expect("a directory");
    let directory = Some(temp.path().join("current/current/locks"));
    let backend = TestBackend::of(&FileConfig { directory, ..FileConfig::default() });
    (temp, backend)
}

/// Replaces the link at `link` by one to `target`.
fn switch(link: &Path, target: &str) {
    let next = link.with_extension("next");
    symlink(target, &next).expect("a link");
    fs::rename(&next, link).expect("switched");
}

#[tokio::test]
async fn hold_with_a_redirected_path_is_lost_at_the_next_renewal() {
    let ways: [fn(&Path); 4] = [
        |at| switch(&at.join("app/current"), "two"),
        |at| {
            fs::remove_file(at.join("app/current")).expect("removed");
            symlink("two", at.join("app/current")).expect("a link");
        },
        |at| {
            fs::rename(at.join("app/one"), at.join("app/old")).expect("moved");
            fs::rename(at.join("app/two"), at.join("app/one")).expect("moved");
        },
        |at| {
            fs::rename(at.join("app"), at.join("old")).expect("moved");
            fs::create_dir_all(at.join("app/x")).expect("a directory");
            fs::create_dir_all(at.join("app/current/locks")).expect("a directory");
        },
    ];
    for way in ways {
        let (temp, backend) = releases();
        let claim = enter(&backend, &request(1, &["a"], Mode::Exclusive)).await;
        let hold = state(&claim).await;
        settle().await;
        claim.renew(soon()).await.expect("renews");
        way(temp.path());
        claim.renew(soon()).await.expect("no error");
        lost(&claim, &hold, ".a.queue").await;
    }
}

#[tokio::test]
async fn other_claims_do_not_wake_a_settled_hold() {
    let f = fixture();
    let claim = enter(&f.backend, &request(1, &["a"], Mode::Shared)).await;
    let hold = state(&claim).await;
    settle().await;
    let quiet = tokio::time::timeout(Duration::from_millis(200), claim.changed(Some(&hold)));
    let others = async {
        for id in 2..20 {
            leave(&enter(&f.backend, &request(id, &["b"], Mode::Exclusive)).await).await;
            // Created and removed beside the lock directory.
            drop(TempDir::new());
        }
    };
    let (quiet, ()) = tokio::join!(quiet, others);
    quiet.expect_err("nothing changed");
}

#[tokio::test]
async fn unreachable_directory_is_tolerated_and_a_replaced_one_lost() {
    let f = fixture();
    let (at, away) = (f.temp.path().to_owned(), f.temp.path().with_extension("away"));
    let claim = enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await;
    let hold = state(&claim).await;
    settle().await;
    fs::rename(&at, &away).expect("moved");
    assert!(claim.renew(soon()).await.expect_err("out of reach").is_transient());
    fs::rename(&away, &at).expect("moved back");
    claim.renew(soon()).await.expect("renews");
    fs::rename(&at, &away).expect("moved");
    fs::create_dir(&at).expect("another one");
    claim.renew(soon()).await.expect("no error");
    lost(&claim, &hold, ".a.queue").await;
    fs::remove_dir_all(&away).expect("removed");
}

#[tokio::test]
async fn waiter_fails_when_its_directory_is_moved_away() {
    for other in [false, true] {
        let f = fixture();
        let (at, away) = (f.temp.path().to_owned(), f.temp.path().with_extension("away"));
        let first = enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await;
        let waiter = enter(&f.backend, &request(2, &["a"], Mode::Exclusive)).await;
        let seen = state(&waiter).await;
        fs::rename(&at, &away).expect("moved");
        if other {
            fs::create_dir(&at).expect("another one");
        }
        leave(&first).await;
        let error = waiter.changed(Some(&seen)).await.expect_err("no lock there");
        // It is not known whether the lock is free while the directory is out of reach.
        let told = error.reason.to_string().contains("lock directory");
        assert!(told && error.is_transient() != other, "{error}");
        leave(&waiter).await;
        fs::remove_dir_all(&away).expect("removed");
        let _ = fs::create_dir(&at);
    }
}

/// Its close reports the end of a claim to the next one only if no other process has it open for writing.
#[tokio::test]
async fn a_fifo_kept_open_by_others_delays_the_next_claim() {
    let f = fixture();
    let first = enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await;
    let request = Request { ttl: Duration::from_secs(3), ..request(2, &["a"], Mode::Exclusive) };
    let second = enter(&f.backend, &request).await;
    let waits = state(&second).await;
    let fifo = f.temp.path().join(".a.fifo");
    let _open = fs::OpenOptions::new().read(true).write(true).open(fifo).expect("opens");
    let leaves = async {
        settle().await;
        leave(&first).await;
    };
    let (state, ()) = tokio::join!(next(&second, &waits), leaves);
    assert!(matches!(state, ClaimState::Held(_)), "{state:?}");
}
