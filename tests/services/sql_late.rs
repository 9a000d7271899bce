//! Requests that arrive at a database after their sender has continued elsewhere.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use super::sql::Database;
use crate::site;
use crate::support::wait::until_true;
use crate::support::TestEnv;

/// The fate of the first request that changes a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The relay keeps it back and cuts the client's connection.
    KeptBack,
    /// The relay passes it on, and passes neither its answer nor anything after it.
    Unanswered,
}

/// The first request, and the server's end of its connection.
struct Late {
    request: Vec<u8>,
    server: TcpStream,
    /// Receives a message when the server has answered.
    answered: Receiver<()>,
}

impl Late {
    /// Passes the request on and waits until the server has executed it.
    fn arrive(mut self) {
        self.server.write_all(&self.request).expect("the server still listens");
        self.answered.recv_timeout(Duration::from_secs(20)).expect("the server answers");
    }
}

/// Starts a relay to the port `to` that does this to the first request. Returns its port and the channel of the request
/// that it keeps back.
fn relay(to: u16, fate: Fate) -> (u16, Receiver<Late>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listens");
    let port = listener.local_addr().expect("bound").port();
    let (tell, late) = channel();
    thread::spawn(move || {
        let mut first = Some(tell);
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, to))).expect("connects");
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            connect(client, server, first.take().map(|tell| (tell, fate)));
        }
    });
    (port, late)
}

/// Returns whether `sent` ends with the end of its first message, or is no text request. The length of a request is
/// behind its letter in PostgreSQL, and in front of its number and kind in MySQL.
fn is_whole(sent: &[u8]) -> bool {
    match sent {
        [b'Q', a, b, 0..=127, d, ..] if [*a, *b] == [0, 0] => {
            sent.len() > usize::from(sent[3]) * 256 + usize::from(*d)
        }
        [a, b, c, 0, 3, ..] => {
            sent.len() >= 4 + usize::from(*a) + usize::from(*b) * 256 + usize::from(*c) * 65_536
        }
        _ => true,
    }
}

fn connect(client: TcpStream, server: TcpStream, victim: Option<(Sender<Late>, Fate)>) {
    let (mut answers, mut asker) =
        (server.try_clone().expect("one more"), client.try_clone().expect("one more"));
    let (done, answered) = channel();
    let mute = Arc::new(AtomicBool::new(false));
    let muted = Arc::clone(&mute);
    thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        // The loop ends with either side. If the client is cut off, it ends with the next bytes of the server.
        while let Ok(got @ 1..) = answers.read(&mut buffer) {
            if !muted.load(Ordering::SeqCst) && asker.write_all(&buffer[..got]).is_err() {
                break;
            }
        }
        let _ = done.send(());
    });
    thread::spawn(move || {
        let (mut from, mut to, mut buffer) = (client, server, vec![0; 65_536]);
        while let Ok(mut got @ 1..) = from.read(&mut buffer) {
            // A request may arrive in parts.
            while victim.is_some() && !is_whole(&buffer[..got]) {
                match from.read(&mut buffer[got..]) {
                    Ok(more @ 1..) => got += more,
                    _ => return,
                }
            }
            let request = &buffer[..got];
            if let Some((tell, fate)) = &victim
                && request.windows(11).any(|part| part == b"INSERT INTO")
            {
                if *fate == Fate::Unanswered {
                    mute.store(true, Ordering::SeqCst);
                    to.write_all(request).expect("the server listens");
                    continue;
                }
                let request = request.to_vec();
                from.shutdown(Shutdown::Both).expect("cuts");
                // The test may have ended.
                let _ = tell.send(Late { request, server: to, answered });
                return;
            }
            if to.write_all(request).is_err() {
                return;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// Returns the same part of the service, reached through a relay.
fn behind(env: &TestEnv, fate: Fate) -> (TestEnv, Receiver<Late>) {
    let service = env.service();
    let port = service.endpoint.rsplit(':').next().and_then(|end| end.split('/').next()?.parse().ok());
    let port = port.expect("a port");
    let (relay, late) = relay(port, fate);
    (TestEnv::on(service.through(relay, port)), late)
}

/// Returns a database that has its tables.
fn database() -> TestEnv {
    let env = TestEnv::on(site::part());
    env.finish(&mut env.run(["--name", "x", "-q", "--", "true"])).silently(0);
    env
}

#[test]
fn first_request_arriving_after_a_refusal_stays_out() {
    let env = database();
    let holder = env.held(&["--name", "x", "-q", "--slots", "2"]);
    let (other, late) = behind(&env, Fate::KeptBack);
    other.finish(&mut other.run(["--name", "x", "-w", "20s", "--", "true"])).failed(64, &["does not mix"]);
    assert_eq!(holder.release().code(), Some(0));
    late.recv_timeout(Duration::from_secs(5)).expect("it was kept back").arrive();
    env.assert_free("x");
}

/// Linux resends the unsent data of a closed socket for 102.2 s: eight times, with a pause that doubles from 0.2 s.
#[test]
fn claim_stays_out_while_a_closed_connection_delivers() {
    let database = Database::start();
    let env = database.env();
    let prefix = env.service().prefix.clone().expect("a prefix");
    env.finish(&mut env.run(["--name", "x", "-q", "--", "true"])).silently(0);
    let (other, _late) = behind(&env, Fate::KeptBack);
    other.finish(&mut other.run(["--name", "x", "-w", "20s", "-q", "--", "true"])).silently(0);
    let kept = database.ask(&format!("SELECT lease_until - since FROM {prefix}claim WHERE seq = 0"));
    let kept: u64 = kept.trim().parse().expect("one note");
    assert!(kept >= 102_200_000, "{kept} microseconds");
}

#[test]
fn first_request_arriving_after_the_run_stays_out() {
    let env = database();
    let (other, late) = behind(&env, Fate::KeptBack);
    other.finish(&mut other.run(["--name", "x", "-w", "20s", "-q", "--", "true"])).silently(0);
    late.recv_timeout(Duration::from_secs(5)).expect("it was kept back").arrive();
    env.assert_free("x");
}

#[test]
fn hold_found_after_a_lost_answer_gets_a_new_ttl() {
    let env = database();
    let (other, _late) = behind(&env, Fate::Unanswered);
    let mut holder = other.hold(&["--name", "x", "-w", "40s", "--ttl", "12s"]);
    until_true("the first request was done", || env.holders("x") == 1);
    let token = env.status("x")["holders"][0]["token"].clone();
    holder.await_start();
    let entry = env.status("x")["holders"][0].clone();
    assert_eq!(entry["token"], token, "it is the same hold");
    let left = entry["ttl_ms"].as_u64().expect("a length");
    assert!(left > 11_000, "the command starts with {left} ms left, and dlock counts a whole ttl");
    assert_eq!(holder.release().code(), Some(0));
    env.assert_free("x");
}

#[test]
fn superseded_waiter_leaves_when_newcomers_answer_is_lost() {
    let env = database();
    // It may have received no notification: it polls when it renews.
    let holder = env.held(&["--name", "x", "-q", "--ttl", "5m"]);
    let older = ["--name", "x", "--supersede", "--ttl", "12s", "--", "true"];
    let older = env.start(&mut env.run(older));
    env.await_waiters("x", 1);
    let (other, _late) = behind(&env, Fate::Unanswered);
    let newer = other.hold(&["--name", "x", "--supersede", "-w", "40s", "--ttl", "12s", "-q"]);
    let ended = older.finish_within(Duration::from_secs(30));
    assert_eq!(ended.code(), Some(75), "{}", ended.err);
    assert!(ended.err.contains("superseded by"), "{}", ended.err);
    assert_eq!(holder.release().code(), Some(0));
    assert_eq!(newer.release().code(), Some(0));
    env.assert_free("x");
}
