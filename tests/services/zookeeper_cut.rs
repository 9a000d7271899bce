//! A member of an ensemble that is cut off from the others. The holder knows only this member.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::zookeeper::absent;
use crate::servers::proxy::{Conduct, Proxy};
use crate::servers::zookeeper::{self, Setup, TICK};
use crate::servers::{Server, free_port};
use crate::support::process::is_alive;
use crate::support::scripts::{Overlap, Tree};
use crate::support::wait::until_true;
use crate::support::{TestEnv, quiet, until, within};

const TTL: Duration = Duration::from_secs(6);

/// Three servers. Each reaches the others only through relays.
struct Ensemble {
    servers: Vec<Server>,
    /// The source, the destination and the relay.
    relays: Vec<(usize, usize, Proxy)>,
}

impl Ensemble {
    /// `patience` is the number of ticks for which a silent member believes that all is well.
    fn start(patience: u32) -> Self {
        let [clients, quorums, elections] = [(); 3].map(|()| [(); 3].map(|()| free_port()));
        let mut relays = Vec::new();
        let mut servers = Vec::new();
        for (own, clients) in clients.into_iter().enumerate() {
            // A leader without its followers waits for so many ticks before it elects again.
            let mut lines = vec!["initLimit=10".to_owned(), format!("syncLimit={patience}")];
            for other in 0..3 {
                let (mut quorum, mut election) = (quorums[other], elections[other]);
                if own != other {
                    for port in [&mut quorum, &mut election] {
                        let relay = Proxy::to(*port);
                        *port = relay.port();
                        relays.push((own, other, relay));
                    }
                }
                lines.push(format!("server.{}=127.0.0.1:{quorum}:{election}", other + 1));
            }
            let id = u32::try_from(own + 1).ok();
            servers.push(zookeeper::start_on(clients, &Setup { lines, id, ..Setup::default() }));
        }
        for server in &servers {
            zookeeper::await_service(server.port());
        }
        Self { servers, relays }
    }

    /// Returns the first member in the mode `mode`.
    fn first(&self, mode: &str) -> usize {
        until(mode, || (0..3).find(|n| self.mode(*n).as_deref() == Some(mode)))
    }

    /// Returns the mode that the member reports. Returns `None` while it does not serve.
    fn mode(&self, member: usize) -> Option<String> {
        let mut text = String::new();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.servers[member].port())).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(1))).expect("sets");
        stream.write_all(b"srvr").ok()?;
        stream.read_to_string(&mut text).ok()?;
        text.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
    }

    /// Applies `conduct` to all relays between `member` and the others.
    fn part(&self, member: usize, conduct: Conduct) {
        for (_, _, relay) in self.relays.iter().filter(|(from, to, _)| *from == member || *to == member) {
            relay.set(conduct);
        }
    }

    fn address(&self, member: usize) -> String {
        format!("zk://127.0.0.1:{}", self.servers[member].port())
    }
}

fn dlock(env: &TestEnv, verb: &str, at: &str, options: &[&str], words: &[String]) -> Command {
    let mut command = env.dlock([verb, "--backend", "zk", "--endpoint", at]);
    command.args(options).args(words);
    command
}

/// Cuts off the first member in the mode `mode`. Returns the mode that it reported when the holder's tree had ended, or
/// an empty text if it did not serve.
fn cut_off(mode: &str, patience: u32) -> String {
    // Nine servers that elect leaders in parallel may not finish on two processors.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _alone = quiet::measuring();
    let ensemble = Ensemble::start(patience);
    let member = ensemble.first(mode);
    let (near, far) = (ensemble.address(member), ensemble.address((member + 1) % 3));
    let env = TestEnv::new();
    let options = ["--quiet", "--ttl", "6s", "--name", "x", "--"];
    let (tree, words) = Tree::words(&env, "tree");
    let holder = env.start(&mut dlock(&env, "run", &near, &options[1..], &words));
    let members = tree.await_grown(&env);
    let (overlap, words) = Overlap::words(&env, &members);
    let waiter = env.start(&mut dlock(&env, "run", &far, &options, &words));
    until("a waiter", || {
        let seen = env.finish(&mut dlock(&env, "status", &far, &["--json", "x"], &[])).text();
        let line: serde_json::Value = serde_json::from_str(&seen).ok()?;
        (line["waiters"].as_array().map(Vec::len) == Some(1)).then_some(())
    });
    let cut = Instant::now();
    // The connections stay open.
    ensemble.part(member, Conduct::Hole);
    until_true("the end of the tree", || members.iter().all(|p| !is_alive(p.pid)));
    let took = cut.elapsed();
    within(took, TTL);
    let believed = ensemble.mode(member);
    // The member with the greater number tells the others its real address, so some election messages bypass the
    // relays. While this member takes part, the others may elect for minutes. The test no longer needs it. A relay in a
    // hole would not pass on its end.
    ensemble.servers[member].down();
    ensemble.part(member, Conduct::Refuse);
    holder.finish().lost_its_lease("x");
    // They elect a leader first. On a busy machine three servers may take long.
    let ended = waiter.finish_within(Duration::from_secs(90));
    assert_eq!(ended.code(), Some(0), "the others give the lock on: {}", ended.err);
    overlap.assert_none(&env);
    env.await_no_process();
    believed.unwrap_or_default()
}

#[test]
fn unaware_cut_off_follower_keeps_no_tree_alive() {
    if absent() {
        return;
    }
    let ticks = u32::try_from(TTL.as_millis() / TICK.as_millis()).expect("small");
    assert_eq!(cut_off("follower", ticks * 4), "follower", "it noticed, and the hazard did not come about");
}

#[test]
fn aware_cut_off_follower_keeps_no_tree_alive() {
    if absent() {
        return;
    }
    assert_eq!(cut_off("follower", 4), "", "it serves on");
}

#[test]
fn cut_off_leader_keeps_no_tree_alive() {
    if absent() {
        return;
    }
    assert_ne!(cut_off("leader", 4), "leader", "it leads on");
}
