//! The promises of `acquire` and `elect`, and the promises that they share with `run`, whatever happens to the service or
//! to a process of dlock.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::servers::Site;
use crate::site;
use crate::support::bounds::slack;
use crate::support::gate::Gate;
use crate::support::process::{is_alive, is_stopped};
use crate::support::scene::Scene;
use crate::support::scripts::{Overlap, Tree};
use crate::support::wait::{let_pass, until_true};
use crate::support::way::Way;
use crate::support::{Running, TestEnv, process, quiet, until, within};

/// Logs its name, PID and token, and waits at its gate.
const TURN: &str = r#"echo "$1 $$ $DLOCK_TOKEN" >>turns; read -r code <"$1.gate"; exit "${code:-0}""#;

/// A claim by one way, whose command is [`TURN`].
pub(super) struct One {
    way: Way,
    name: String,
    running: Running,
    gate: Gate,
}

impl One {
    pub(super) fn start(env: &TestEnv, way: Way, name: &str, ttl: &str) -> Self {
        let gate = env.gate(&format!("{name}.gate"));
        let options = ["-q", "--name", "x", "--ttl", ttl, "--grace", "100ms"];
        // A candidate with `--forever` reports each campaign.
        let options = if way == Way::Forever { &options[1..] } else { &options };
        let running = env.start(&mut way.command(env, options, &["sh", "-c", TURN, "sh", name]));
        Self { way, name: name.to_owned(), running, gate }
    }

    /// Returns the PID and the token of its `n`th turn, from 1.
    #[track_caller]
    pub(super) fn turn(&self, env: &TestEnv, n: usize) -> (i32, u64) {
        let Self { way, name, running, .. } = self;
        until(&format!("turn {n} of {name} ({way:?}), which said {:?}", running.err_so_far()), || {
            let text = env.read("turns");
            let its = text.lines().filter_map(|line| line.strip_prefix(&format!("{name} ")));
            let (pid, token) = its.skip(n - 1).find_map(|words| words.split_once(' '))?;
            Some((pid.parse().ok()?, token.parse().ok()?))
        })
    }

    /// Lets its command end. An election with `--forever` gets SIGTERM during its pause: before that, the signal would
    /// belong to the term, which ends with the status of its command.
    #[track_caller]
    pub(super) fn end(self, env: &TestEnv) {
        self.turn(env, 1);
        self.gate.write("7");
        if self.way == Way::Forever {
            until_true("the end of a term", || self.running.err_so_far().contains("campaigning again for x"));
            self.running.signal(Signal::TERM);
        }
        let ended = self.running.finish();
        let as_it_should = match self.way {
            Way::Forever => ended.signal() == Some(Signal::TERM.as_raw()),
            _ => ended.code() == Some(7),
        };
        assert!(as_it_should, "{:?}: {:?}, {}", self.way, ended.status, ended.err);
    }
}

/// Starts a holder for each way. Each has an environment of its own. All run in parallel, since they mostly wait.
fn one_of_each(site: &dyn Site, ttl: &str) -> Vec<(TestEnv, One)> {
    let mut all = Vec::new();
    for way in Way::ALL {
        let env = TestEnv::on(site.part());
        let one = One::start(&env, way, "one", ttl);
        one.turn(&env, 1);
        all.push((env, one));
    }
    all
}

/// Takes the lock away. Returns the time limit for the end of its command, counted from then on.
fn lose_x(ttl: Duration, env: &TestEnv) -> (Instant, Duration) {
    site::lose(env, "x");
    (Instant::now(), (site::kind().facts.news_within)(ttl / 3) + Duration::from_millis(500))
}

#[test]
fn removed_claim_ends_the_tree_and_the_next_token_is_higher() {
    let _alone = quiet::measuring();
    // So long that the tree's end in time cannot be mistaken for the expiry of the lease.
    let ttl = site::kind().ttl(Duration::from_secs(21));
    let lease = format!("{}ms", ttl.as_millis());
    for way in [Way::Run, Way::Acquire, Way::Elect] {
        let env = TestEnv::new();
        let (tree, words) = Tree::words(&env, "tree");
        let options = ["-q", "--name", "x", "--ttl", &lease];
        let holder = env.start(&mut way.command(&env, &options, &words));
        let members = tree.await_grown(&env);
        let token =
            env.status("x")["holders"][0]["token"].as_str().expect("a token").parse::<u64>().expect("digits");
        let (overlap, words) = Overlap::words(&env, &members);
        let (lost, limit) = lose_x(ttl, &env);
        until_true("the end of the tree", || members.iter().all(|p| !is_alive(p.pid)));
        within(lost.elapsed(), limit);
        let ended = holder.finish();
        if way == Way::Acquire {
            assert_eq!(ended.signal(), Some(9), "{}", ended.err);
        } else {
            ended.failed(76, &["lost x"]);
        }
        env.finish(env.run(["--name", "x", "--"]).args(words)).silently(0);
        overlap.assert_none(&env);
        let next = env.held(&["--name", "x"]);
        assert!(next.token() > token, "{} after {token}", next.token());
        next.release().silently(0);
        env.await_no_process();
    }
}

#[test]
fn short_freeze_and_restart_leave_holders_and_waiters_alone() {
    let site = site::start();
    // Longer than a ZooKeeper takes to restart on a busy machine.
    let ttl = format!("{}s", site.kind().ttl(Duration::from_secs(40)).as_secs());
    let all = one_of_each(&*site, &ttl);
    let mut behind = Vec::new();
    for (env, one) in &all {
        behind.push(One::start(env, one.way, "behind", &ttl));
        env.await_waiters("x", 1);
    }
    site.freeze();
    let_pass(Duration::from_millis(1_500));
    site.thaw();
    if site.kind().keeps_data() {
        site.restart();
    }
    for ((env, one), behind) in all.into_iter().zip(behind) {
        let (command, token) = one.turn(&env, 1);
        assert!(is_alive(command), "{:?} was ended by a blip: {}", one.way, one.running.err_so_far());
        let shown = env.status("x");
        assert_eq!(shown["holders"][0]["token"], token.to_string(), "{shown}");
        one.end(&env);
        let (_, next) = behind.turn(&env, 1);
        // On a Redlock it is best effort.
        assert!(next > token || !site.kind().has_queue(), "{next} after {token}");
        behind.end(&env);
        env.await_no_process();
    }
}

#[test]
fn long_freeze_ends_every_tree_before_the_next_grant() {
    const TTL: Duration = Duration::from_secs(6);
    let _alone = quiet::measuring();
    let site = site::start();
    let options = ["-q", "--ttl", "6s"];
    let all = Way::ALL.map(|way| (way, Scene::of(TestEnv::on(site.part()), way, &options, &options)));
    let frozen = Instant::now();
    site.freeze();
    until_true("the end of the trees", || all.iter().all(|(_, scene)| !scene.is_alive()));
    // The last renewal was sent before the freeze.
    within(frozen.elapsed(), TTL);
    for (way, scene) in &all {
        if *way == Way::Forever {
            scene.running.signal(Signal::TERM);
        }
    }
    site.thaw();
    for (way, scene) in all {
        let ended = scene.conclude();
        // It is about to campaign again, or is still ending its term.
        let told = way == Way::Forever && ended.signal() == Some(Signal::TERM.as_raw());
        if !told {
            way.lost(ended, "x");
        }
    }
}

#[test]
fn process_stopped_for_a_lease_lets_no_two_commands_run() {
    const TTL: Duration = Duration::from_secs(9);
    let pairs = Way::ALL.into_iter().flat_map(|way| [(way, false), (way, true)]);
    let all = pairs.map(|(way, keeper)| {
        let env = TestEnv::new();
        let (tree, words) = Tree::words(&env, "tree");
        let options = ["-q", "--name", "x", "--ttl", "9s", "--grace", "0"];
        let holder = env.start(&mut way.command(&env, &options, &words));
        let members = tree.await_grown(&env);
        let (front, its_keeper) = until("the pair", || way.pair(&holder));
        if keeper {
            process::await_started(its_keeper);
        }
        let stopped = if keeper { its_keeper } else { front };
        process::signal(stopped, Signal::STOP);
        until_true("a stopped process", || is_stopped(stopped));
        let (overlap, words) = Overlap::words(&env, &members);
        let waiter = env.start(env.run(options).arg("--").args(words));
        (way, keeper, env, members, overlap, stopped, holder, waiter)
    });
    let all: Vec<_> = all.collect();
    let_pass(TTL);
    for (way, keeper, env, members, overlap, stopped, holder, waiter) in all {
        if keeper {
            // The front stopped the tree, and the waiter ran after it.
            let ended = holder.finish();
            match way {
                Way::Acquire => assert_eq!(ended.signal(), Some(9), "{}", ended.err),
                _ => drop(ended.failed(76, &["the command was stopped"])),
            }
        } else {
            // The keeper guards alone.
            assert!(members.iter().all(|one| is_alive(one.pid)), "{way:?}: a stopped front ended the tree");
            process::signal(stopped, Signal::CONT);
            process::signal(stopped, Signal::KILL);
            holder.finish();
        }
        assert_eq!(waiter.finish().code(), Some(0));
        overlap.assert_none(&env);
        env.await_no_process();
    }
}

#[test]
fn both_processes_killed_at_once_free_the_lock_within_the_lease() {
    // Both must be killed before they stop the command for want of a renewal, also on a busy machine.
    let ttl = Duration::from_secs(6);
    for way in Way::ALL {
        let env = TestEnv::new();
        let one = One::start(&env, way, "one", "6s");
        let (command, _) = one.turn(&env, 1);
        let (front, keeper) = until("the pair", || way.pair(&one.running));
        if !process::kill_at_once(&[front, keeper]) {
            return;
        }
        if way == Way::Acquire {
            // No process is left to stop the script, as the manual states.
            one.gate.write("7");
            assert_eq!(one.running.finish().code(), Some(7));
        } else {
            until_true("the command's death with its keeper", || !is_alive(command));
        }
        let spare =
            if way == Way::Run { slack().max(Duration::from_secs(1)) } else { Duration::from_secs(5) };
        let most = ttl + site::kind().facts.abandoned_bound + spare;
        let wait = format!("{}ms", most.as_millis());
        env.finish(&mut env.run(["-q", "-w", &wait, "--name", "x", "--", "true"])).silently(0);
    }
}
