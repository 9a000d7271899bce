//! A swarm of dlocks, processes of which are killed and stopped while their service is frozen and restarted.
//!
//! One process of each dlock at most is hurt at a time: if all of them are, only the lease and the token protect.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::chance::{Random, length, seed};
use crate::oracle::Oracle;
use crate::site::{Kind, Site};
use crate::support::running::CROWD;
use crate::support::wait::{let_pass, until_true};
use crate::support::{Bed, Running, process, quiet};

/// How many dlocks run at any time.
const SWARM: usize = 8;
/// How long the enemy is at work.
const LENGTH: Duration = Duration::from_secs(20);
/// How much longer it may take a slow machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long something stays stopped or frozen: shorter and longer than the leases.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(50), Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5)];

struct Enemy<'a> {
    site: &'a Site,
    random: Random,
    /// The front of each dlock of which a process was hurt; if that is stopped, which, and until when.
    hurt: BTreeMap<i32, Option<(i32, Instant)>>,
    frozen_until: Option<Instant>,
}

impl Enemy<'_> {
    /// Ends what has lasted long enough, and forgets whom nothing can happen to any more.
    fn relent(&mut self, swarm: &[Running]) {
        let now = Instant::now();
        if self.frozen_until.take_if(|until| *until <= now).is_some() {
            self.site.thaw();
        }
        self.hurt.retain(|front, stopped| {
            if let Some((pid, _)) = stopped.filter(|(_, until)| *until <= now) {
                process::signal(pid, Signal::CONT);
                return false;
            }
            swarm.iter().any(|one| one.pid() == *front)
        });
    }

    fn strike(&mut self, swarm: &[Running]) {
        let pause = PAUSES[self.random.below(PAUSES.len())];
        match self.random.below(40) {
            // Rarely, or nobody would ever hold.
            0 if self.frozen_until.is_none() => self.site.restart(),
            1 if self.frozen_until.is_none() => {
                self.site.freeze();
                self.frozen_until = Some(Instant::now() + pause);
            }
            blow => {
                let Some(front) = self.random.pick(swarm).map(Running::pid) else { return };
                let victim = if self.random.below(2) == 0 { Some(front) } else { process::keeper_of(front) };
                let Some(victim) = victim.filter(|_| !self.hurt.contains_key(&front)) else { return };
                let (signal, mark) = match blow {
                    2..=7 => (Signal::KILL, None),
                    8..=13 => (Signal::STOP, Some((victim, Instant::now() + pause))),
                    14..=16 => return process::signal(front, Signal::TERM),
                    _ => return,
                };
                self.hurt.insert(front, mark);
                process::signal(victim, signal);
            }
        }
    }

    fn make_peace(&mut self, bed: &Bed) {
        if self.frozen_until.take().is_some() {
            self.site.thaw();
        }
        for process in bed.processes() {
            process::signal(process.pid, Signal::CONT);
        }
    }
}

fn locker(bed: &Bed, random: &mut Random) -> Running {
    let (flag, mode) = if random.below(4) == 0 { ("-s", "shared") } else { ("-x", "exclusive") };
    let mut command = bed.run(["-q", "--name", "x", "--ttl", "3s", "--grace", "200ms", flag]);
    if random.below(6) == 0 {
        command.args(["--wait", "500ms"]);
    }
    bed.start(command.arg("--").args(Oracle::words(mode)))
}

#[test]
fn whatever_is_killed_stopped_frozen_or_restarted_no_two_trees_overlap() {
    let _load = quiet::loading();
    let site = Site::start();
    let bed = Bed::on(site.part());
    let oracle = Oracle::new(&bed);
    let mut enemy =
        Enemy { site: &site, random: Random(seed()), hurt: BTreeMap::new(), frozen_until: None };
    let mut swarm: Vec<Running> = Vec::new();
    let (begun, length) = (Instant::now(), length(LENGTH));
    while begun.elapsed() < length || oracle.holds().len() < 30 {
        assert!(begun.elapsed() < length + PATIENCE, "{} holds: too little happened", oracle.holds().len());
        swarm.retain_mut(|one| !one.has_ended());
        while swarm.len() < SWARM {
            swarm.push(locker(&bed, &mut enemy.random));
        }
        enemy.relent(&swarm);
        enemy.strike(&swarm);
        assert_eq!(oracle.overlap(), None, "both hold exclusively and live");
        let_pass(Duration::from_millis(u64::try_from(enemy.random.below(200)).expect("small")));
    }
    enemy.make_peace(&bed);
    for one in swarm {
        one.finish_within(CROWD);
    }
    assert_eq!(oracle.violations(), "");
    // On a Redlock a token is best effort.
    if site.kind() != Kind::Redlock {
        assert_eq!(oracle.disorder().first(), None);
    }
    eprintln!("{} holds", oracle.holds().len());
    until_true("an empty process table", || bed.processes().is_empty());
    until_true("a free lock", || bed.holders("x") + bed.waiters("x") == 0);
}
