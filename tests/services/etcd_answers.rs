//! etcd: answers of several members in turn, and answers of a member that lags behind.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::etcd::env;
use crate::servers::etcd::Etcd;
use crate::support::wait::{let_pass, until_true};
use crate::support::{Service, TestEnv};

/// Starts a relay to `port` that passes each answer through `change`. Returns its port. It ends with the process.
pub(crate) fn relay(port: u16, change: impl Fn(&mut [u8]) + Clone + Send + 'static) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listens");
    let own = listener.local_addr().expect("bound").port();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connects");
            // Without this option a relay answers later than a server would.
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            pass(&client, &server, |_| ());
            pass(&server, &client, change.clone());
        }
    });
    own
}

/// Passes on what one side sends. If it hangs up, the relay closes the other side.
fn pass(from: &TcpStream, to: &TcpStream, change: impl Fn(&mut [u8]) + Send + 'static) {
    let [mut from, mut to] = [from, to].map(|socket| socket.try_clone().expect("a descriptor"));
    thread::spawn(move || {
        let mut buffer = [0; 16_384];
        while let Ok(got @ 1..) = from.read(&mut buffer) {
            change(&mut buffer[..got]);
            if to.write_all(&buffer[..got]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// Returns the id of the only member as it is in the header of each answer, after the number of its field.
fn member(etcd: &Etcd) -> Vec<u8> {
    let said = etcd.ask(&["endpoint", "status", "-w", "fields"]);
    let id = said.lines().find_map(|line| line.strip_prefix("\"MemberID\" : ")).expect("an id");
    let mut left: u64 = id.parse().expect("a number");
    let mut bytes = vec![2 << 3];
    while left > 0x7f {
        bytes.push(u8::try_from(left & 0x7f).expect("seven bits") | 0x80);
        left >>= 7;
    }
    bytes.push(u8::try_from(left).expect("seven bits"));
    bytes
}

/// The newcomer learns of its arrival after the holder and the waiter before it have left.
#[test]
fn a_late_answer_to_an_arrival_gives_no_token_of_the_past() {
    let etcd = Etcd::start();
    let slow = relay(etcd.server().port(), |_| thread::sleep(Duration::from_millis(150)));
    let env = env(etcd.endpoint());
    let slow = TestEnv::on(Service { endpoint: format!("http://127.0.0.1:{slow}"), ..env.service().clone() });
    let token = |env: &TestEnv| env.read("token").trim().parse::<u64>().expect("a token");
    let tell = ["--", "sh", "-c", "echo $DLOCK_TOKEN >token"];
    for way in [&["-q", "--name", "x", "--supersede"][..], &["-q", "--name", "x"]] {
        let holder = env.held(&["--name", "x"]);
        let waiter = env.start(env.run(["-q", "--name", "x"]).args(tell));
        env.await_waiters("x", 1);
        let newcomer = slow.start(slow.run(way).args(tell));
        env.await_waiters("x", 2);
        holder.release().silently(0);
        waiter.finish().silently(0);
        newcomer.finish().silently(0);
        assert!(token(&slow) > token(&env), "{} after {}", token(&slow), token(&env));
    }
}

/// A balancer may send each request to another member.
#[test]
fn a_renewal_counts_whichever_members_answer() {
    const TTL: Duration = Duration::from_secs(9);
    let etcd = Etcd::start();
    let member = member(&etcd);
    let (changed, next) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU8::new(0)));
    let count = Arc::clone(&changed);
    let other_member = move |answer: &mut [u8]| {
        let found = |answer: &[u8]| answer.windows(member.len()).position(|bytes| bytes == member);
        while let Some(at) = found(answer) {
            // Neither the previous id nor the true one.
            answer[at + 1] ^= next.fetch_add(1, Ordering::Relaxed) % 100 + 1;
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    let port = relay(etcd.server().port(), other_member);
    let env = env(format!("http://127.0.0.1:{port}"));
    // Both renew. Without renewals their leases would have expired.
    let holder = env.held(&["--name", "x", "--ttl", "9s"]);
    let waiter = env.start(&mut env.run(["-q", "--name", "x", "--ttl", "9s", "--", "true"]));
    env.await_waiters("x", 1);
    let_pass(TTL);
    for ended in [holder.release(), waiter.finish()] {
        assert_eq!(ended.code(), Some(0), "{}", ended.err);
    }
    let changed = changed.load(Ordering::Relaxed);
    assert!(changed > 20, "{changed} answers seemed to be another member's");
}

/// Returns where the answer to a request for a lease of 15 s has the 15, after the lease's number.
fn seconds(answer: &[u8]) -> Option<usize> {
    let is_behind_a_number = |at: usize| {
        let length = answer[..at].iter().rev().skip(1).take_while(|byte| **byte & 0x80 != 0).count() + 1;
        at > length && answer[at - 1] & 0x80 == 0 && answer[at - length - 1] == 2 << 3
    };
    (1..answer.len()).find(|at| answer[at - 1..=*at] == [3 << 3, 15] && is_behind_a_number(at - 1))
}

/// Starts an etcd behind a relay. The relay answers as many keep-alives as the number says like a leader that does not
/// know the lease.
fn forgetful(etcd: &Etcd) -> (TestEnv, Arc<AtomicUsize>) {
    let left = Arc::new(AtomicUsize::new(0));
    let forgets = Arc::clone(&left);
    let port = relay(etcd.server().port(), move |answer| {
        if let Some(at) = seconds(answer)
            && forgets.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
        {
            answer[at] = 0;
        }
    });
    (env(format!("http://127.0.0.1:{port}")), left)
}

/// A leader elected a moment ago may not have reached the lease in its log.
#[test]
fn lease_unknown_to_a_new_leader_is_looked_up_again() {
    let etcd = Etcd::start();
    let (env, forgets) = forgetful(&etcd);
    let has_forgotten = || forgets.load(Ordering::Relaxed) == 0;
    let holder = env.held(&["--name", "x", "--ttl", "15s"]);
    forgets.store(3, Ordering::Relaxed);
    until_true("renewals of a lease that is not known", has_forgotten);
    holder.release().silently(0);
    let words = ["--detach", "--name", "x", "--ttl", "15s", "--format", "json"];
    let printed = env.finish(&mut env.verb("acquire", words)).silently(0).text();
    let printed: serde_json::Value = serde_json::from_str(&printed).expect("JSON from acquire");
    let claim = printed["DLOCK_CLAIM"].as_str().expect("a claim");
    forgets.store(3, Ordering::Relaxed);
    env.finish(&mut env.verb("renew", [claim, "--name", "x"])).silently(0);
    assert!(has_forgotten(), "it was not renewed");
}
