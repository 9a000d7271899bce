//! A swarm of dlocks. The enemy kills and stops their processes while it freezes and restarts their service. They hold
//! by `run`, by `acquire` and by `elect`, also for ever.
//!
//! At most one process of each dlock is hurt at a time: if all of them are, only the lease and the token protect.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::oracle::{self, Oracle};
use crate::servers::{Need, Site};
use crate::site;
use crate::support::chance::{Random, length, seed};
use crate::support::running::CROWD;
use crate::support::wait::{let_pass, until_true};
use crate::support::way::Way;
use crate::support::{Finished, Running, TestEnv, process, quiet};

/// The number of dlocks that run at any time.
const SWARM: usize = 8;
/// The time in which the enemy works.
const LENGTH: Duration = Duration::from_secs(8);
/// The additional time for a slow machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The lengths of stops and freezes: shorter and longer than the leases.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(50), Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5)];

struct One {
    way: Way,
    running: Running,
}

struct Enemy<'a> {
    site: &'a dyn Site,
    random: Random,
    /// The dlocks of which a process was hurt. If that process is stopped, its PID and the end of the stop.
    hurt: BTreeMap<i32, Option<(i32, Instant)>>,
    frozen_until: Option<Instant>,
}

impl Enemy<'_> {
    /// Ends the stops and freezes that have lasted long enough. Forgets the dlocks that run again or have ended.
    fn relent(&mut self, swarm: &[One]) {
        let now = Instant::now();
        if self.frozen_until.take_if(|until| *until <= now).is_some() {
            self.site.thaw();
        }
        self.hurt.retain(|whose, stopped| match *stopped {
            Some((pid, until)) if until <= now => {
                process::signal(pid, Signal::CONT);
                false
            }
            // The holder of a lock for a script may outlive the script.
            Some(_) => true,
            None => swarm.iter().any(|one| one.running.pid() == *whose),
        });
    }

    fn strike(&mut self, swarm: &[One]) {
        let pause = PAUSES[self.random.below(PAUSES.len())];
        match self.random.below(40) {
            // Rarely; otherwise there would never be a holder.
            0 if self.frozen_until.is_none() && self.site.kind().keeps_data() => self.site.restart(),
            1 if self.frozen_until.is_none() => {
                self.site.freeze();
                self.frozen_until = Some(Instant::now() + pause);
            }
            blow => {
                let Some(one) = self.random.pick(swarm) else { return };
                let whose = one.running.pid();
                let mut processes = one.way.processes(&one.running);
                if one.way == Way::Acquire {
                    // The script. While it is stopped, only SIGKILL can end it.
                    processes.push(whose);
                }
                let Some(victim) = self.random.pick(&processes).copied() else { return };
                if self.hurt.contains_key(&whose) {
                    return;
                }
                let (signal, mark) = match blow {
                    2..=7 => (Signal::KILL, None),
                    8..=13 => (Signal::STOP, Some((victim, Instant::now() + pause))),
                    14..=16 => return process::signal(whose, Signal::TERM),
                    _ => return,
                };
                self.hurt.insert(whose, mark);
                process::signal(victim, signal);
            }
        }
    }

    fn make_peace(&mut self, env: &TestEnv) {
        if self.frozen_until.take().is_some() {
            self.site.thaw();
        }
        for process in env.processes() {
            process::signal(process.pid, Signal::CONT);
        }
    }
}

/// Expects an end that the manual allows. It may exit 71 if the enemy killed one of its processes before the command
/// started.
#[track_caller]
fn judge(way: Way, ended: &Finished) {
    let of_its_own = match (way, ended.code(), ended.signal()) {
        // The script exits with the status of `acquire`.
        (Way::Acquire, Some(code), _) => [0, 69, 71, 75, 76, 128 + 9, 128 + 15].contains(&code),
        (_, Some(code), _) => [0, 69, 71, 75, 76, 124].contains(&code),
        (_, None, signal) => matches!(signal, Some(9 | 15)),
    };
    assert!(of_its_own, "{way:?} ended with {:?}: {}", ended.status, ended.err);
}

#[test]
fn no_two_trees_overlap_under_kills_freezes_and_restarts() {
    let _load = quiet::loading();
    let site = site::start();
    let env = TestEnv::on(site.part());
    let oracle = Oracle::new(&env);
    let has_shared = site.kind().lacks(Need::Shared).is_none();
    let mut enemy = Enemy { site: &*site, random: Random(seed()), hurt: BTreeMap::new(), frozen_until: None };
    let mut swarm: Vec<One> = Vec::new();
    let (begun, length) = (Instant::now(), length(LENGTH));
    while begun.elapsed() < length || oracle.holds().len() < 30 {
        assert!(begun.elapsed() < length + PATIENCE, "{} holds: too little happened", oracle.holds().len());
        for one in swarm.extract_if(.., |one| one.running.has_ended()) {
            judge(one.way, &one.running.finish());
        }
        while swarm.len() < SWARM {
            let (way, mut command) = oracle::hold(&env, &mut enemy.random, "3s", has_shared);
            swarm.push(One { way, running: env.start(&mut command) });
        }
        enemy.relent(&swarm);
        enemy.strike(&swarm);
        assert_eq!(oracle.overlap(), None, "both hold exclusively and live");
        let_pass(Duration::from_millis(u64::try_from(enemy.random.below(200)).expect("small")));
    }
    enemy.make_peace(&env);
    for one in swarm {
        if one.way == Way::Forever {
            one.running.signal(Signal::TERM);
        }
        judge(one.way, &one.running.finish_within(CROWD));
    }
    assert_eq!(oracle.violations(), "");
    // On a Redlock a token is best effort.
    if site.kind().has_queue() {
        assert_eq!(oracle.disorder().first(), None);
    }
    eprintln!("{} holds", oracle.holds().len());
    until_true("an empty process table", || env.processes().is_empty());
    until_true("a free lock", || env.holders("x") + env.waiters("x") == 0);
}
