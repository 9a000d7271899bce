//! The files: which are in the directory, and which survive a crash, a kill, a lost file and a failed write.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::FileConfig;
use super::contents;
use super::entries::Stored;
use super::header;
use super::storage::QueueFile;
use super::testing::*;
use crate::backend::{Backend, Evict};
use crate::clock;
use crate::lock::{ClaimId, ErrorKind, Mode, Request};

/// Opens the queue of `a`.
fn queue_of(f: &Fixture) -> Arc<QueueFile> {
    QueueFile::open(f.backend.made(), &name("a"), true).expect("opens").expect("there")
}

/// Makes the queue file of `a` unreadable, as one of a newer dlock. Returns what it was.
fn damage(f: &Fixture) -> Vec<u8> {
    let path = f.temp.path().join(".a.queue");
    let before = std::fs::read(&path).expect("there");
    let mut other = before.clone();
    other[6] = b'2';
    let at = header::HEADER - header::SUM;
    let sum = format!("{:016x}\n", header::checksum(&other[..at]));
    other[at..header::HEADER].copy_from_slice(sum.as_bytes());
    std::fs::write(&path, other).expect("written");
    before
}

#[tokio::test]
async fn unreadable_queue_is_an_error_and_not_a_free_lock() {
    let f = fixture();
    let claim = enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await;
    let before = damage(&f);
    let other = open(&f.temp);
    let id = ClaimId::from_bytes([1; 16]);
    assert_eq!(other.inspect(&name("a"), soon()).await.expect_err("unread").kind, ErrorKind::Corrupt);
    other.evict(&name("a"), id, Evict::Force, &holder("x"), soon()).await.expect_err("unread");
    other.enter(&request(2, &["a"], Mode::Exclusive), soon()).await.expect_err("unread");
    other.last_success(&name("a"), soon()).await.expect_err("unread");
    std::fs::write(f.temp.path().join(".a.queue"), before).expect("written");
    held(&claim).await;
    leave(&claim).await;
}

#[tokio::test]
async fn hold_survives_an_unreadable_queue_and_can_be_released() {
    let f = fixture();
    let claim = enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await;
    held(&claim).await;
    let behind = enter(&f.backend, &request(2, &["a"], Mode::Exclusive)).await;
    assert_eq!(waits(&behind).await, 1);
    let before = damage(&f);
    claim.renew(soon()).await.expect("its files are there");
    claim.leave(false, soon()).await.expect_err("its record stays");
    std::fs::write(f.temp.path().join(".a.queue"), before).expect("written");
    held(&behind).await;
}

#[tokio::test]
async fn unwritten_change_of_a_long_queue_hides_no_entry() {
    let f = fixture();
    let mut claims = Vec::new();
    for id in 0..40 {
        claims.push(enter(&f.backend, &request(id, &["a"], Mode::Exclusive)).await);
    }
    held(&claims[0]).await;
    let mut queues = contents::read(&[queue_of(&f)], soon()).await.expect("reads");
    let before = queues[0].header.clone();
    queues[0].entries.remove(0);
    queues[0].write().expect("written");
    assert_ne!(queues[0].header.start, before.start, "beside the old text");
    // As if its process had been killed before it wrote the header.
    queues[0].file.write_header(&before).expect("written");
    drop(queues);
    let status = f.backend.inspect(&name("a"), soon()).await.expect("status");
    assert_eq!((status.holders.len(), status.waiters.len()), (1, 39));
    leave(&claims[0]).await;
    held(&claims[1]).await;
}

/// A call that ends by its deadline, or is dropped, leaves a thread that waits for the guard.
#[tokio::test]
async fn late_calls_for_a_guard_leave_no_lock() {
    let f = fixture();
    leave(&enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await).await;
    let (held, other, third) = (queue_of(&f), queue_of(&f), queue_of(&f));
    let guard = held.guard(soon()).await.expect("free");
    for _ in 0..3 {
        other.guard(clock::now() + Duration::from_millis(5)).await.expect_err("late");
    }
    assert_eq!(Arc::strong_count(&other.file), 2, "one thread");
    drop(guard);
    // The next call gets it after the thread, and keeps it.
    let guard = other.guard(soon()).await.expect("released");
    third.guard(clock::now() + Duration::from_millis(5)).await.expect_err("it is locked");
    drop(guard);
    drop(third.guard(soon()).await.expect("free"));
}

#[tokio::test]
async fn queue_file_gives_its_room_back() {
    let f = fixture();
    let length = || std::fs::metadata(f.temp.path().join(".a.queue")).expect("there").len();
    let mut claims = Vec::new();
    for id in 0..100 {
        claims.push(enter(&f.backend, &request(id, &["a"], Mode::Shared)).await);
    }
    let most = length();
    // It is never empty.
    for id in 100..200 {
        leave(&claims.remove(0)).await;
        claims.push(enter(&f.backend, &request(id, &["a"], Mode::Shared)).await);
    }
    assert!(length() <= 2 * most, "{} after {most}", length());
    for claim in claims {
        held(&claim).await;
        leave(&claim).await;
    }
    assert!(length() <= 4096, "{}", length());
}

/// Returns the names of the regular files in `directory` whose mode `made` sets after they have their final name.
async fn modes_set(directory: &Path, made: impl Future<Output = ()>) -> Vec<String> {
    use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
    let events = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).expect("an instance");
    add_watch(&events, directory, WatchFlags::ATTRIB).expect("a watch");
    made.await;
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(&events, &mut buffer);
    let mut names = Vec::new();
    while let Ok(event) = reader.next() {
        let name = event.file_name().expect("a name").to_str().expect("UTF-8").to_owned();
        if directory.join(&name).symlink_metadata().is_ok_and(|found| found.is_file()) {
            names.push(name);
        }
    }
    names
}

#[tokio::test]
async fn a_file_has_the_rights_of_its_directory_before_its_name() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    for (rights, wanted) in [(0o775, 0o664), (0o777, 0o666)] {
        let f = fixture();
        // Only root may. The directory of another user has the group that its files get anyway.
        drop(chown(f.temp.path(), None, Some(54_871)));
        let group = std::fs::metadata(f.temp.path()).expect("there").gid();
        std::fs::set_permissions(f.temp.path(), std::fs::Permissions::from_mode(rights)).expect("chmod");
        let backend = open(&f.temp);
        let mut claims = Vec::new();
        let used = async {
            leave(&enter(&backend, &request(1, &["a"], slots(2))).await).await;
            for id in [1, 2] {
                claims.push(enter(&backend, &request(id, &["a"], Mode::Exclusive)).await);
            }
        };
        assert_eq!(modes_set(f.temp.path(), used).await, [""; 0]);
        let second = format!(".{}", ClaimId::from_bytes([2; 16]));
        assert_eq!(files(&f), [&second, ".a.fifo", ".a.queue", ".a.slot.1", "a"]);
        for file in files(&f) {
            let found = std::fs::metadata(f.temp.path().join(&file)).expect("there");
            let is_queue = file == ".a.queue";
            assert_eq!((found.permissions().mode() & 0o7777, found.len() > 0), (wanted, is_queue), "{file}");
            assert_eq!(found.gid(), group, "{file}");
        }
    }
}

#[tokio::test]
async fn a_file_system_without_unnamed_files_has_the_rights_too() {
    use std::os::unix::fs::PermissionsExt;
    let f = fixture();
    std::fs::set_permissions(f.temp.path(), std::fs::Permissions::from_mode(0o777)).expect("chmod");
    let backend = open(&f.temp);
    backend.made().make("b").expect("made");
    assert_eq!(backend.made().make("b"), Err(rustix::io::Errno::EXIST));
    let found = std::fs::metadata(f.temp.path().join("b")).expect("there");
    assert_eq!(found.permissions().mode() & 0o7777, 0o666);
}

#[tokio::test]
async fn c03_a_lost_header_costs_no_order() {
    let f = fixture();
    let claim = enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await;
    let before = token(&held(&claim).await);
    leave(&claim).await;
    let file = std::fs::OpenOptions::new().write(true).open(f.temp.path().join(".a.queue")).expect("there");
    (&file).write_all(&[0; 1024]).expect("written");
    let claim = enter(&f.backend, &request(2, &["a"], Mode::Exclusive)).await;
    assert!(token(&held(&claim).await) > before);
}

#[tokio::test]
async fn c03_after_another_boot_tokens_leave_a_gap() {
    let f = fixture();
    let claim = enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await;
    held(&claim).await;
    leave(&claim).await;
    let queue = queue_of(&f);
    let mut header = queue.read().expect("reads").0;
    header.boot = "another".to_owned();
    queue.write_header(&header).expect("written");
    for given in 0..2 {
        let claim = enter(&f.backend, &request(2, &["a"], Mode::Exclusive)).await;
        assert_eq!(token(&held(&claim).await), header.next + header::LOST + given);
        leave(&claim).await;
    }
}

#[tokio::test]
async fn entries_without_their_header_do_not_count() {
    let f = fixture();
    let claim = enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await;
    let path = f.temp.path().join(".a.queue");
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).expect("there");
    file.write_all(&[b'x'; 9000]).expect("written");
    let behind = enter(&f.backend, &request(2, &["a"], Mode::Exclusive)).await;
    assert_eq!(waits(&behind).await, 1);
    leave(&claim).await;
    held(&behind).await;
}

#[tokio::test]
async fn permanent_fifo_serves_only_the_first_of_an_empty_queue() {
    let f = fixture();
    let first = enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await;
    assert_eq!(files(&f), [".a.fifo", ".a.queue", "a"]);
    let second = enter(&f.backend, &request(2, &["a"], Mode::Exclusive)).await;
    assert_eq!(files(&f).len(), 4, "{:?}", files(&f));
    // The end of the first is seen through the FIFO, though it is not unlinked.
    drop(first);
    held(&second).await;
    // While it is free the queue is not empty, so it is not used.
    let third = enter(&f.backend, &request(3, &["a"], Mode::Exclusive)).await;
    assert_eq!(files(&f).len(), 5, "{:?}", files(&f));
    assert_eq!(waits(&third).await, 1);
    leave(&second).await;
    held(&third).await;
    leave(&third).await;
    assert_eq!(files(&f), [".a.fifo", ".a.queue", "a"]);
}

#[tokio::test]
async fn permanent_fifo_in_use_is_bypassed() {
    let f = fixture();
    leave(&enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await).await;
    let path = f.temp.path().join(".a.fifo");
    let other = std::fs::File::options().read(true).write(true).open(path).expect("it is there");
    other.try_lock().expect("it is free");
    let claim = enter(&f.backend, &request(2, &["a"], Mode::Exclusive)).await;
    held(&claim).await;
    assert_eq!(files(&f).len(), 4, "{:?}", files(&f));
    leave(&claim).await;
    assert_eq!(files(&f), [".a.fifo", ".a.queue", "a"]);
}

#[tokio::test]
async fn failed_entry_supersedes_no_waiter() {
    let f = fixture();
    let asks = |id| Request { supersede: true, ..request(id, &["a"], Mode::Exclusive) };
    let first = enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await;
    held(&first).await;
    let waiter = enter(&f.backend, &asks(2)).await;
    assert_eq!(waits(&waiter).await, 1);
    // Its FIFO cannot be created.
    let path = f.temp.path().join(format!(".{}", ClaimId::from_bytes([3; 16])));
    std::fs::create_dir(path).expect("made");
    f.backend.enter(&asks(3), soon()).await.expect_err("no FIFO");
    assert_eq!(waits(&waiter).await, 1);
    leave(&first).await;
    held(&waiter).await;
}

#[tokio::test]
async fn future_dated_success_is_unknown_and_replaceable() {
    let f = fixture();
    let succeed = async |id| {
        let claim = enter(&f.backend, &request(id, &["a"], Mode::Exclusive)).await;
        held(&claim).await;
        claim.leave(true, soon()).await.expect("leaves");
        f.backend.last_success(&name("a"), soon()).await.expect("read")
    };
    assert!(succeed(1).await.is_some());
    let queue = queue_of(&f);
    let mut header = queue.read().expect("reads").0;
    header.success += Duration::from_secs(3600);
    queue.write_header(&header).expect("written");
    assert_eq!(f.backend.last_success(&name("a"), soon()).await.expect("read"), None);
    assert!(succeed(2).await.is_some());
}

/// A process that was forked a moment ago, and executes its program in the next, has the FIFO too.
#[tokio::test]
async fn dropped_claim_ends_although_a_forked_process_has_its_fifo() {
    use std::os::unix::fs::FileTypeExt as _;
    let f = fixture();
    let first = enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await;
    held(&first).await;
    let this = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty());
    let this = this.expect("a pidfd");
    let mut forked = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").expect("a list").map_while(Result::ok) {
        let number = entry.file_name().to_str().and_then(|number| number.parse().ok()).expect("a number");
        let is_fifo = std::fs::metadata(entry.path()).is_ok_and(|found| found.file_type().is_fifo());
        if is_fifo && std::fs::read_link(entry.path()).is_ok_and(|path| path.starts_with(f.temp.path())) {
            let flags = rustix::process::PidfdGetfdFlags::empty();
            forked.push(rustix::process::pidfd_getfd(&this, number, flags).expect("a descriptor"));
        }
    }
    assert!(!forked.is_empty(), "the claim has a FIFO");
    drop((first, f.backend));
    let backend = open(&f.temp);
    held(&enter(&backend, &request(1, &["a"], Mode::Exclusive)).await).await;
}

/// The FIFO of such an entry is not known, so its claim may live.
#[tokio::test]
async fn entry_with_an_unreadable_id_is_not_removed() {
    let f = fixture();
    let claim = enter(&f.backend, &request(1, &["b", "a"], Mode::Exclusive)).await;
    held(&claim).await;
    let id = ClaimId::from_bytes([1; 16]).to_string();
    let entry = async |old: &str, new: &str| {
        let mut queues = contents::read(&[queue_of(&f)], soon()).await.expect("reads");
        let text = serde_json::to_string(&queues[0].entries).expect("JSON").replace(old, new);
        queues[0].entries = serde_json::from_str(&text).expect("entries");
        queues[0].write().expect("written");
        queues[0].entries.len()
    };
    assert_eq!(entry(&id, "other").await, 1);
    let failed = f.backend.enter(&request(2, &["a"], Mode::Exclusive), soon()).await;
    assert_eq!(failed.expect_err("unread").kind, ErrorKind::Corrupt);
    assert_eq!(entry("other", &id).await, 1);
    leave(&claim).await;
}

/// Both name the files of one lock alike, and those of the other differently.
#[tokio::test]
async fn claims_with_and_without_a_prefix_see_each_other_live() {
    let f = fixture();
    let (directory, prefix) = (Some(f.temp.path().to_owned()), Some(String::new()));
    let prefixed = TestBackend::of(&FileConfig { directory, prefix, ..FileConfig::default() });
    let first = enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await;
    let second = enter(&prefixed, &request(2, &["x y", "a"], Mode::Exclusive)).await;
    let third = enter(&f.backend, &request(3, &["a"], Mode::Exclusive)).await;
    assert_eq!(waits(&third).await, 2);
    leave(&first).await;
    held(&second).await;
    leave(&second).await;
    held(&third).await;
}

#[tokio::test]
async fn next_claim_removes_the_entry_of_a_past_holder() {
    let f = fixture();
    let first = enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await;
    held(&first).await;
    let second = enter(&f.backend, &request(2, &["a"], Mode::Exclusive)).await;
    assert_eq!(waits(&second).await, 1);
    leave(&first).await;
    held(&second).await;
    second.leave(true, soon()).await.expect("leaves");
    let stored = async || {
        let queues = contents::read(&[queue_of(&f)], soon()).await.expect("reads");
        queues[0].entries.iter().filter_map(Stored::id).collect::<Vec<_>>()
    };
    assert_eq!(stored().await, [ClaimId::from_bytes([2; 16])]);
    let status = f.backend.inspect(&name("a"), soon()).await.expect("status");
    assert_eq!((status.holders.len(), status.waiters.len()), (0, 0));
    assert!(f.backend.last_success(&name("a"), soon()).await.expect("known").is_some());
    assert_eq!(files(&f), [".a.fifo", ".a.queue", "a"]);
    let third = enter(&f.backend, &request(3, &["a"], Mode::Exclusive)).await;
    held(&third).await;
    assert_eq!(stored().await, [ClaimId::from_bytes([3; 16])]);
    leave(&third).await;
    assert!(stored().await.is_empty());
}
