//! Kinds of claims that meet within milliseconds, and slots.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::zookeeper::absent;
use crate::servers::free_port;
use crate::servers::zookeeper::{self, Raw};
use crate::support::chance::rounds;
use crate::support::running::finish_all;
use crate::support::test_env::Holder;
use crate::support::wait::{let_pass, until_true};
use crate::support::{Service, TestEnv};

/// The number of pairs that start in parallel; `DLOCK_TEST_ROUNDS` overrides it.
const PAIRS: usize = 36;
/// Two claims within this many milliseconds may come between each other's steps.
const MOMENT: u64 = 12;

fn service(test: &str, prefix: Option<&str>) -> Service {
    let endpoint = format!("{}/{test}", zookeeper::endpoint());
    Service { backend: "zk", endpoint, prefix: prefix.map(str::to_owned) }
}

/// Returns environments with names as dlock writes them, and as foreign clients do.
pub(super) fn envs(test: &str) -> [TestEnv; 2] {
    [None, Some("/raw/")].map(|prefix| TestEnv::on(service(test, prefix)))
}

/// Returns whether it has started its command or has ended.
fn is_decided(holder: &mut Holder) -> bool {
    holder.has_started() || holder.running.has_ended()
}

#[test]
fn incompatible_kinds_never_run_together() {
    if absent() {
        return;
    }
    let kinds: [[&[&str]; 2]; 3] =
        [[&["--slots", "2"], &["-x"]], [&["--slots", "1"], &["--slots", "3"]], [&["-s"], &["--slots", "2"]]];
    let envs = envs("kinds");
    for round in 0..rounds(PAIRS) {
        let (env, name) = (&envs[round % 2], format!("x{round}"));
        let mut pair = kinds[round % kinds.len()];
        if round % 4 > 1 {
            pair.reverse();
        }
        let mut both = Vec::new();
        for kind in pair {
            both.push(env.hold(&[&["-q", "-n", "--name", &name], kind].concat()));
            let_pass(Duration::from_millis(u64::try_from(round * 5).expect("small") % MOMENT));
        }
        until_true("two that know whether they hold", || both.iter_mut().all(is_decided));
        let running = both.iter().filter(|one| one.has_started()).count();
        assert!(running < 2, "both of {pair:?} run in round {round}");
        for one in both {
            let started = one.has_started();
            let ended = one.release();
            let expected: &[Option<i32>] = if started { &[Some(0)] } else { &[Some(64), Some(75)] };
            assert!(expected.contains(&ended.code()), "{:?}: {}", ended.code(), ended.err);
        }
    }
}

#[test]
fn forty_simultaneous_starts_share_three_slots() {
    if absent() {
        return;
    }
    for env in envs("forty") {
        let script = r#"mkdir "slot$DLOCK_SLOT" || echo "twice: $DLOCK_SLOT" >>wrong
            set -- slot*; [ $# -le 3 ] || echo "too many: $*" >>wrong
            sleep 0.01; rmdir "slot$DLOCK_SLOT"; echo "$DLOCK_SLOT" >>slots"#;
        let words = ["-q", "--name", "x", "--slots", "3", "--", "sh", "-c", script];
        finish_all((0..40).map(|_| env.start(&mut env.run(words))));
        assert_eq!(env.read("wrong"), "");
        assert_eq!(env.read("slots").lines().count(), 40);
        assert!(env.read("slots").lines().all(|slot| ["1", "2", "3"].contains(&slot)));
    }
}

#[test]
fn half_entry_seen_by_curators_writers_counts_as_whole() {
    if absent() {
        return;
    }
    let env = TestEnv::on(service("half", None));
    // Far longer than the notification may take.
    let holder = env.held(&["--ttl", "60s", "--name", "x"]);
    let mut raw = Raw::connect(zookeeper::shared_port(), 0);
    let path = "/half/dlock/x";
    let node = raw.children(path).into_iter().find(|node| node.contains("__WRIT__")).expect("a node");
    raw.delete(&format!("{path}/{node}"));
    holder.running.finish_within(Duration::from_secs(5)).failed(76, &["lost x"]);
}

#[test]
fn waiter_without_permission_for_its_slot_warns() {
    if absent() {
        return;
    }
    let env = TestEnv::on(service("unslotted", None));
    let words = ["--name", "x", "--slots", "1"];
    let holder = env.held(&[&["-q"], &words[..]].concat());
    let mut waiter = env.hold(&words);
    env.await_waiters("x", 1);
    let path = "/unslotted/dlock/x";
    let mut raw = Raw::connect(zookeeper::shared_port(), 0);
    let number = |node: &String| node.rsplit('-').next().map(str::to_owned);
    let record =
        raw.children(path).into_iter().filter(|node| node.contains("-slots1-lock-")).max_by_key(number);
    let record = format!("{path}/{}", record.expect("that of the waiter"));
    raw.allow(&record, 25);
    holder.release().silently(0);
    let trouble = "cannot follow the queue of x (zk)";
    until_true("word of the trouble", || waiter.running.err_so_far().contains(trouble));
    raw.allow(&record, 31);
    waiter.await_start();
    assert_eq!(waiter.release().code(), Some(0));
}

#[test]
fn slots_are_handed_on_in_order_of_arrival() {
    if absent() {
        return;
    }
    for env in envs("order") {
        let three = ["-q", "--name", "x", "--slots", "3"];
        let mut holders: Vec<Holder> = (0..3).map(|_| env.held(&three)).collect();
        let mut slots: Vec<u32> = holders.iter().map(Holder::slot).collect();
        slots.sort_unstable();
        assert_eq!(slots, [1, 2, 3]);
        let mut waiters = Vec::new();
        for n in 1..5 {
            waiters.push(env.hold(&three));
            env.await_waiters("x", n);
        }
        // The second first, then the one after it, and so on.
        for _ in 0..4 {
            let ending = holders.remove(1);
            let slot = ending.slot();
            ending.release().silently(0);
            let mut next = waiters.remove(0);
            next.await_start();
            assert_eq!(next.slot(), slot, "the released one");
            assert!(waiters.iter().all(|one| !one.has_started()), "out of order");
            holders.insert(0, next);
        }
        for holder in holders {
            holder.release().silently(0);
        }
        env.assert_free("x");
    }
}

#[test]
fn unreadable_entry_of_another_user_is_waited_for() {
    if absent() {
        return;
    }
    let env = TestEnv::on(service("unreadable", None));
    let first = env.held(&["--name", "x"]);
    // Every user may use the directory of the lock. Ann's nodes are hers alone.
    let mut command = env.run(["-q", "--name", "x", "--user", "ann", "--", "sh", "-c", "echo ann >>order"]);
    let ann = env.start(command.env("DLOCK_PASSWORD", "secret"));
    env.await_waiters("x", 1);
    let last = env.start(&mut env.run(["-q", "--name", "x", "--", "sh", "-c", "echo last >>order"]));
    env.await_waiters("x", 2);
    first.release().silently(0);
    ann.finish().silently(0);
    last.finish().silently(0);
    assert_eq!(env.read("order"), "ann\nlast\n");
}

/// The requests that a waiter sends by itself.
#[test]
fn a_waiter_at_rest_renews_and_asks_nothing_else() {
    const PING: i32 = 11;
    const MULTI: i32 = 14;
    if absent() {
        return;
    }
    let tap = Tap::to(zookeeper::shared_port());
    for mode in [&["-x"][..], &["--slots", "1"]] {
        let test = format!("rest{}", mode.len());
        let env = TestEnv::on(service(&test, None));
        let holder = env.held(&[&["--name", "x"], mode].concat());
        let endpoint = format!("zk://127.0.0.1:{}/{test}", tap.port);
        let mut command = env.dlock(["run", "-q", "--endpoint", &endpoint, "--name", "x", "--ttl", "4s"]);
        let waiter = env.start(command.args(mode).args(["--", "true"]));
        env.await_waiters("x", 1);
        // The first renewal has followed, and with it the requests that began with the entry.
        let_pass(Duration::from_secs(1));
        tap.taken();
        // Four renewals, a second apart.
        let_pass(Duration::from_secs(4));
        let asked: Vec<i32> = tap.taken().into_iter().filter(|code| *code != PING).collect();
        assert!(asked.iter().all(|code| *code == MULTI) && (3..=5).contains(&asked.len()), "{asked:?}");
        holder.release().silently(0);
        waiter.finish().silently(0);
    }
}

/// A relay that logs the codes of the requests that pass.
struct Tap {
    port: u16,
    codes: Arc<Mutex<Vec<i32>>>,
}

impl Tap {
    fn to(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, free_port())).expect("listens");
        let port = listener.local_addr().expect("bound").port();
        let codes: Arc<Mutex<Vec<i32>>> = Arc::default();
        let noted = Arc::clone(&codes);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).expect("connects");
                // Without this option a relay answers later than a server would.
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                let (mut from, mut to) =
                    (server.try_clone().expect("one more"), client.try_clone().expect("one more"));
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                let codes = Arc::clone(&noted);
                std::thread::spawn(move || note(client, server, &codes));
            }
        });
        Self { port, codes }
    }

    /// Returns the codes since the last call.
    fn taken(&self) -> Vec<i32> {
        std::mem::take(&mut self.codes.lock().expect("not poisoned"))
    }
}

/// Passes frames on: a length, then a number and the code of a request. The greeting has neither.
fn note(mut client: TcpStream, mut server: TcpStream, codes: &Mutex<Vec<i32>>) {
    let mut greeted = false;
    loop {
        let mut length = [0; 4];
        if client.read_exact(&mut length).is_err() {
            break;
        }
        let mut body = vec![0; usize::try_from(i32::from_be_bytes(length)).expect("a length")];
        if client.read_exact(&mut body).is_err() {
            break;
        }
        if std::mem::replace(&mut greeted, true) {
            let code = body[4..8].try_into().expect("four");
            codes.lock().expect("not poisoned").push(i32::from_be_bytes(code));
        }
        if server.write_all(&[&length[..], &body].concat()).is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Both);
}
