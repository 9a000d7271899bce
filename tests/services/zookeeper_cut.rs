//! A member of an ensemble that is cut off from the others. The holder knows only this member.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cut_off::CutOff;
use crate::servers::Server;
use crate::servers::proxy::{Conduct, Proxy};
use crate::servers::zookeeper::{self, TICK};
use crate::support::{TestEnv, quiet, until, within};

const TTL: Duration = Duration::from_secs(6);

/// Three servers. Each reaches the others only through relays.
struct Ensemble {
    servers: Vec<Server>,
    /// The source, the destination and the relay.
    relays: Vec<(usize, usize, Proxy)>,
}

impl Ensemble {
    fn start(patience: u32) -> Self {
        let mut relays = Vec::new();
        let servers = zookeeper::start_ensemble(patience, |own, other, port| {
            if own == other {
                return port;
            }
            let relay = Proxy::to(port);
            let at = relay.port();
            relays.push((own, other, relay));
            at
        });
        Self { servers, relays }
    }

    /// Returns the first member in the mode `mode`.
    fn first(&self, mode: &str) -> usize {
        until(mode, || (0..3).find(|n| self.mode(*n).as_deref() == Some(mode)))
    }

    /// Returns the mode that the member reports. Returns `None` while it does not serve.
    fn mode(&self, member: usize) -> Option<String> {
        let text = zookeeper::said(self.servers[member].port(), *b"srvr").ok()?;
        text.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
    }

    /// Applies `conduct` to all relays between `member` and the others.
    fn part(&self, member: usize, conduct: Conduct) {
        for (_, _, relay) in self.relays.iter().filter(|(from, to, _)| *from == member || *to == member) {
            relay.set(conduct);
        }
    }

    /// Returns an environment that uses only this member.
    fn env(&self, member: usize) -> TestEnv {
        TestEnv::on(zookeeper::KIND.at(&[self.servers[member].port()]))
    }
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
    let scene = CutOff::start(ensemble.env(member), ensemble.env((member + 1) % 3), "6s");
    let cut = Instant::now();
    // The connections stay open.
    ensemble.part(member, Conduct::Hole);
    scene.await_tree_gone();
    let took = cut.elapsed();
    within(took, TTL);
    let believed = ensemble.mode(member);
    // The member with the greater number tells the others its real address, so some election messages bypass the
    // relays. While this member takes part, the others may elect for minutes. The test no longer needs it. A relay in a
    // hole would not pass on its end.
    ensemble.servers[member].down();
    ensemble.part(member, Conduct::Refuse);
    scene.conclude();
    believed.unwrap_or_default()
}

#[test]
fn unaware_cut_off_follower_keeps_no_tree_alive() {
    let ticks = u32::try_from(TTL.as_millis() / TICK.as_millis()).expect("small");
    assert_eq!(cut_off("follower", ticks * 4), "follower", "it noticed, and the hazard did not come about");
}

#[test]
fn aware_cut_off_follower_keeps_no_tree_alive() {
    assert_eq!(cut_off("follower", 4), "", "it serves on");
}

#[test]
fn cut_off_leader_keeps_no_tree_alive() {
    assert_ne!(cut_off("leader", 4), "leader", "it leads on");
}
