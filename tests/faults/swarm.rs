//! The swarm and its enemy.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::oracle::{self, Oracle};
use crate::support::chance::{Random, length, seed};
use crate::support::process::{self, Process};
use crate::support::wait::until_true;
use crate::support::way::{Way, served_by};
use crate::support::{Running, TestEnv};

/// The number of dlocks that run at any time.
const SWARM: usize = 12;
/// The time in which the enemy works.
const LENGTH: Duration = Duration::from_secs(8);
/// The additional time for a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that locks: dlock, or a wrapper that only looks like it.
type Locker = fn(&TestEnv, &mut Random) -> (Way, Command);

fn dlock(env: &TestEnv, random: &mut Random) -> (Way, Command) {
    oracle::hold(env, random, "1s", true)
}

/// Locks as dlock does but does not stop its command when it is killed. `etcdctl lock` behaves like this.
fn careless(env: &TestEnv, _: &mut Random) -> (Way, Command) {
    let mut command = env.command("flock");
    command.arg("-o").arg(env.locks().join("x")).args(Oracle::words("exclusive"));
    (Way::Run, command)
}

/// Runs the swarm against the enemy for `length`, and longer until `enough` accepts the number of injections. Returns
/// that number.
fn run_chaos(
    env: &TestEnv,
    random: &mut Random,
    locker: Locker,
    length: Duration,
    oracle: &Oracle<'_>,
    enough: impl Fn(usize) -> bool,
) -> usize {
    let mut swarm: Vec<(Way, Running)> = Vec::new();
    let mut enemy = Enemy::default();
    let begun = Instant::now();
    let mut injections = 0;
    while begun.elapsed() < length || !enough(injections) {
        assert!(begun.elapsed() < length + PATIENCE, "{injections} injections: too little happened");
        swarm.retain_mut(|(_, one)| !one.has_ended());
        while swarm.len() < SWARM {
            let (way, mut command) = locker(env, random);
            swarm.push((way, env.start(&mut command)));
        }
        injections += usize::from(enemy.strike(env, random));
        assert_eq!(oracle.overlap(), None, "both hold exclusively and live");
        std::thread::sleep(Duration::from_millis(u64::try_from(random.below(30)).expect("small")));
    }
    // Peace: all processes continue, and all end.
    for process in env.processes() {
        process::signal(process.pid, Signal::CONT);
    }
    for (way, one) in swarm {
        if way == Way::Forever {
            one.signal(Signal::TERM);
        }
        one.finish();
    }
    injections
}

/// Notes for the oracle that the enemy will kill the command `pid`. Returns the child that the command leaves behind.
fn fell(env: &TestEnv, pid: i32) -> Option<i32> {
    let mut felled = OpenOptions::new().append(true).open(env.path("felled")).expect("a list");
    felled.write_all(format!("{pid}\n").as_bytes()).expect("a longer list");
    env.read(&format!("tree.{pid}")).trim().parse().ok()
}

/// The processes that the enemy has hurt.
#[derive(Default)]
struct Enemy {
    /// The processes that it has stopped and not continued since. On a busy machine a process may take a stop later
    /// than the next strike, so its visible state does not count.
    stopped: BTreeSet<i32>,
    /// The scripts for which a process of dlock was hurt. If both were hurt, no process would stop the script's
    /// programs, and a lock file would be free.
    scripts: BTreeSet<i32>,
}

impl Enemy {
    /// Injects one fault into a random front, keeper or command.
    fn strike(&mut self, env: &TestEnv, random: &mut Random) -> bool {
        let processes: Vec<Process> = env.processes();
        self.stopped.retain(|pid| processes.iter().any(|p| p.pid == *pid));
        let injection = match random.below(10) {
            0..=3 => Signal::KILL,
            4..=5 => Signal::STOP,
            6..=8 => Signal::CONT,
            _ => Signal::TERM,
        };
        let victim = if injection == Signal::CONT {
            random.pick(&self.stopped.iter().copied().collect::<Vec<_>>()).copied()
        } else {
            // Fronts and keepers outnumber the one command. The enemy hits each kind equally often.
            let kinds = ["dlock", "lease-keeper", "bash", "flock"];
            let kind = kinds[random.below(kinds.len())];
            let those: Vec<_> = processes.iter().filter(|p| p.name == kind).map(|p| p.pid).collect();
            random.pick(&those).copied()
        };
        let Some(victim) = victim else { return false };
        if injection != Signal::CONT && served_by(victim).is_some_and(|script| !self.scripts.insert(script)) {
            return false;
        }
        // dlock stops the programs that a script leaves under its claim, however the script has ended.
        let is_command = processes.iter().any(|p| p.pid == victim && p.name == "bash")
            && !processes.iter().any(|p| served_by(p.pid) == Some(victim));
        if is_command && [Signal::KILL, Signal::TERM].contains(&injection) {
            let left = fell(env, victim);
            process::signal(victim, injection);
            if let Some(pid) = left {
                process::signal(pid, Signal::KILL);
            }
        } else {
            process::signal(victim, injection);
        }
        match injection {
            Signal::STOP => _ = self.stopped.insert(victim),
            Signal::CONT => _ = self.stopped.remove(&victim),
            _ => {}
        }
        true
    }
}

#[test]
fn under_random_kills_and_stops_no_two_trees_overlap() {
    let env = TestEnv::new();
    let oracle = Oracle::new(&env);
    let mut random = Random(seed());
    // The count does not depend on the speed of the machine.
    let enough = |injections| injections > 50 && oracle.holds().len() > 50;
    let injections = run_chaos(&env, &mut random, dlock, length(LENGTH), &oracle, enough);
    let holds = oracle.holds();
    eprintln!("{} holds, {injections} injections", holds.len());
    let violations = oracle.violations();
    assert_eq!(violations.lines().take(5).collect::<Vec<_>>(), [""; 0]);
    assert_eq!(oracle.disorder().first(), None);
    // The processes that the enemy's own victims left behind end by themselves.
    until_true("an empty process table", || env.processes().is_empty());
    env.assert_free("x");
}

#[test]
fn the_same_enemy_finds_a_careless_wrapper_out() {
    let env = TestEnv::new();
    let oracle = Oracle::new(&env);
    let mut random = Random(seed());
    let begun = Instant::now();
    let caught = loop {
        // Long compared with the time that the swarm takes to end.
        let round = Duration::from_secs(2);
        let env_ref = &env;
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run_chaos(env_ref, &mut random, careless, round, &oracle, |_| true)
        }));
        if ran.is_err() || !oracle.violations().is_empty() {
            break true;
        }
        // It takes some hundred injections. On a busy machine the enemy strikes only a few in a minute.
        if begun.elapsed() > PATIENCE * 5 {
            break false;
        }
    };
    assert!(caught, "an enemy that does not find this would find nothing");
}
