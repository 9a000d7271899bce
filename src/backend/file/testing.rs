//! Fixtures of the tests.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::FileConfig;
use super::directory::Directory;
use super::store::FileStore;
use crate::backend::{Backend, Claim};
use crate::clock::{self, Clock};
use crate::lock::{ClaimId, ClaimState, Grant, Holder, LockName, Mode, Moment, Request};
use crate::queue::Queues;

/// A directory that is removed at the end.
pub(super) struct TempDir(PathBuf);

impl TempDir {
    pub(super) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("dlock-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a temporary directory can be made");
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(super) const PLENTY: Duration = Duration::from_secs(20);

/// The queues of a store, and the store.
pub(super) struct TestBackend {
    store: Arc<FileStore>,
    queues: Queues,
}

impl TestBackend {
    pub(super) fn of(config: &FileConfig) -> Self {
        let store = Arc::new(FileStore::open(config));
        let queues = Queues::new(Arc::clone(&store) as _, Clock::Boot);
        Self { store, queues }
    }

    pub(super) fn made(&self) -> &Arc<Directory> {
        self.store.made().expect("there")
    }
}

impl std::ops::Deref for TestBackend {
    type Target = Queues;

    fn deref(&self) -> &Queues {
        &self.queues
    }
}

pub(super) struct Fixture {
    pub(super) temp: TempDir,
    pub(super) backend: TestBackend,
}

pub(super) fn fixture() -> Fixture {
    let temp = TempDir::new();
    let backend = open(&temp);
    Fixture { temp, backend }
}

pub(super) fn open(temp: &TempDir) -> TestBackend {
    let directory = Some(temp.path().to_owned());
    TestBackend::of(&FileConfig { directory, ..FileConfig::default() })
}

pub(super) fn name(text: &str) -> LockName {
    LockName::new(text).expect("valid")
}

pub(super) fn holder(text: &str) -> Holder {
    Holder { host: "h".to_owned(), pid: 1, user: text.to_owned(), ..Holder::default() }
}

pub(super) fn soon() -> Moment {
    clock::now() + PLENTY
}

pub(super) fn request(id: u8, names: &[&str], mode: Mode) -> Request {
    Request {
        names: names.iter().map(|n| name(n)).collect(),
        id: ClaimId::from_bytes([id; 16]),
        mode,
        ttl: Duration::from_secs(30),
        holder: holder(&format!("u{id}")),
        ancestors: Vec::new(),
        supersede: false,
    }
}

pub(super) fn slots(n: u32) -> Mode {
    Mode::Slots(NonZeroU32::new(n).expect("positive"))
}

pub(super) type TestClaim = Arc<dyn Claim>;

pub(super) async fn enter(backend: &TestBackend, request: &Request) -> TestClaim {
    backend.enter(request, soon()).await.expect("enters")
}

pub(super) async fn state(claim: &TestClaim) -> ClaimState {
    claim.changed(None).await.expect("a state")
}

pub(super) async fn waits(claim: &TestClaim) -> u32 {
    match state(claim).await {
        ClaimState::Waiting { ahead, .. } => ahead.expect("known"),
        other => panic!("{other:?}"),
    }
}

/// Waits for the hold, skipping the states of waiting.
pub(super) async fn held(claim: &TestClaim) -> Grant {
    let hold = async {
        let mut state = state(claim).await;
        while let ClaimState::Waiting { .. } = state {
            state = claim.changed(Some(&state)).await.expect("a state");
        }
        state
    };
    match tokio::time::timeout(PLENTY, hold).await.expect("in time") {
        ClaimState::Held(grant) => grant,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn next(claim: &TestClaim, seen: &ClaimState) -> ClaimState {
    tokio::time::timeout(PLENTY, claim.changed(Some(seen))).await.expect("in time").expect("a state")
}

pub(super) async fn leave(claim: &TestClaim) {
    claim.leave(false, soon()).await.expect("leaves");
}

pub(super) fn token(grant: &Grant) -> u64 {
    grant.names[0].token.get()
}

pub(super) fn files(fixture: &Fixture) -> Vec<String> {
    let read = std::fs::read_dir(fixture.temp.path()).expect("readable");
    let mut files: Vec<_> =
        read.map(|f| f.expect("readable").file_name().to_string_lossy().into_owned()).collect();
    files.sort();
    files
}
