//! The files: which are in the directory, and which survive a crash, a kill and a lost file.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use super::storage;
use super::testing::*;
use crate::backend::Backend;
use crate::clock;
use crate::lock::{ClaimId, Mode, Request};

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

/// Returns the names of the files in `directory` whose mode `made` sets after they have their final name.
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
        if directory.join(&name).symlink_metadata().is_ok_and(|found| !found.is_dir()) {
            names.push(name);
        }
    }
    names
}

#[tokio::test]
async fn a_file_has_the_rights_of_its_directory_before_its_name() {
    use std::os::unix::fs::PermissionsExt;
    for (rights, wanted) in [(0o775, 0o664), (0o777, 0o666)] {
        let f = fixture();
        std::fs::set_permissions(f.temp.path(), std::fs::Permissions::from_mode(rights)).expect("chmod");
        // A file that a kill left half made blocks nothing.
        std::fs::File::create(f.temp.path().join(".a.new")).expect("made");
        let backend = open(&f.temp);
        let mut claims = Vec::new();
        let used = async {
            leave(&enter(&backend, &request(1, &["a"], slots(2))).await).await;
            for id in [1, 2] {
                claims.push(enter(&backend, &request(id, &["a"], Mode::Exclusive)).await);
            }
        };
        assert_eq!(modes_set(f.temp.path(), used).await, [""; 0]);
        let second = format!(".a.{}", ClaimId::from_bytes([2; 16]));
        assert_eq!(files(&f), [&second, ".a.fifo", ".a.queue", ".a.slot.1", "a"]);
        for file in files(&f) {
            let found = std::fs::metadata(f.temp.path().join(&file)).expect("there");
            let is_queue = file == ".a.queue";
            assert_eq!((found.permissions().mode() & 0o7777, found.len() > 0), (wanted, is_queue), "{file}");
        }
    }
}

#[tokio::test]
async fn a_file_system_without_unnamed_files_has_whole_ones_too() {
    let f = fixture();
    let directory = f.backend.made();
    let made = async {
        directory.make_under_another_name("b").expect("made");
        std::fs::write(f.temp.path().join("b"), "kept").expect("written");
        directory.make_under_another_name("b").expect("there already");
    };
    assert_eq!(modes_set(f.temp.path(), made).await, [""; 0]);
    assert_eq!(files(&f), ["b"]);
    assert_eq!(std::fs::read_to_string(f.temp.path().join("b")).expect("there"), "kept");
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
async fn c03_after_another_boot_tokens_go_on_at_the_limit() {
    let f = fixture();
    let claim = enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await;
    held(&claim).await;
    leave(&claim).await;
    let queue = storage::QueueFile::open(f.backend.made(), &name("a"), true).expect("opens").expect("there");
    let mut header = queue.read().expect("reads").header;
    header.boot = "another".to_owned();
    queue.write_header(&header).expect("written");
    let claim = enter(&f.backend, &request(2, &["a"], Mode::Exclusive)).await;
    assert_eq!(token(&held(&claim).await), header.limit);
    let header = queue.read().expect("reads").header;
    assert!(header.boot == f.backend.made().boot() && header.limit > header.next);
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
async fn c03_tokens_rise_over_reservations() {
    let f = fixture();
    let mut last = 0;
    for _ in 0..1100 {
        let claim = enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await;
        let token = token(&held(&claim).await);
        assert!(token > last);
        last = token;
        leave(&claim).await;
    }
}

#[tokio::test]
async fn c11_slow_disk_under_the_own_guard_is_named() {
    let f = fixture();
    leave(&enter(&f.backend, &request(1, &["a"], Mode::Exclusive)).await).await;
    let directory = f.backend.made();
    let queue = storage::QueueFile::open(directory, &name("a"), true).expect("opens").expect("there");
    let _guard = queue.guard(soon()).await.expect("free");
    let late = queue.guard(clock::now() + Duration::from_millis(20)).await.expect_err("late");
    assert!(format!("{late:?}").contains("the disk of "), "{late:?}");
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
    let path = f.temp.path().join(format!(".a.{}", ClaimId::from_bytes([3; 16])));
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
    let directory = f.backend.made();
    let queue = storage::QueueFile::open(directory, &name("a"), true).expect("opens").expect("there");
    let mut header = queue.read().expect("reads").header;
    header.success += 3_600_000_000;
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
