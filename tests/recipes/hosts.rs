//! Programs that start jobs on hosts: cron, systemd, Ansible, supervisors.

use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::page::{RecipeEnv, field, is_installed};
use crate::support::scripts::Tree;
use crate::support::wait::until_true;

/// Returns the command of the one job in a crontab, as cron starts it.
fn cron(place: &RecipeEnv, crontab: &str) -> Command {
    let mut command = place.command("/bin/sh");
    command.env_remove("LANG").env("SHELL", "/bin/sh").env("LOGNAME", "ops");
    for line in crontab.lines() {
        let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_uppercase());
        if let Some((name, value)) = line.split_once('=').filter(|(name, _)| is_name(name)) {
            command.env(name, value);
        } else {
            let mut words = line.splitn(6, ' ');
            assert!(words.by_ref().take(5).all(|time| !time.is_empty()));
            let job = words.next().expect("a command");
            // cron would take it for the end of the line.
            assert!(!job.contains('%'));
            command.args(["-c", job]);
        }
    }
    command
}

#[test]
fn cron_job_is_skipped_silently_while_the_last_one_runs() {
    let place = RecipeEnv::new();
    let crontab = place.recipe("cron");
    let gate = place.gated("sync");
    let first = place.env.start(&mut cron(&place, &crontab));
    place.await_up("sync", 1);
    let skipped = place.env.finish(&mut cron(&place, &crontab)).silently(0);
    assert_eq!(skipped.text(), "", "cron would mail this");
    gate.write("4");
    first.finish().silently(4);
    gate.open();
    place.env.finish(&mut cron(&place, &crontab)).silently(0);
    place.await_up("sync", 2);
    place.assert_over("sync");
}

fn seconds(text: &str) -> u64 {
    text.strip_suffix('s').and_then(|number| number.parse().ok()).expect("seconds")
}

#[test]
fn a_unit_is_accepted_and_stopped_and_runs_once_for_all_hosts() {
    if !is_installed("systemd-analyze") {
        return;
    }
    let place = RecipeEnv::new();
    let unit = place.recipe("systemd-service");
    let gate = place.gated("report");
    let files = [("report.service", unit.clone()), ("report.timer", place.recipe("systemd-timer"))];
    let files = files.map(|(name, text)| place.env.write(name, &text));
    let mut verify = place.command("systemd-analyze");
    let said = place.env.finish(verify.args(["verify", "--man=no"]).args(files)).silently(0);
    assert_eq!(said.text(), "");
    let line = field(&unit, "ExecStart=");
    let grace = line.split_once("--grace ").and_then(|(_, rest)| rest.split(' ').next());
    assert!(seconds(grace.expect("a grace period")) < seconds(field(&unit, "TimeoutStopSec=")));
    assert_eq!(field(&unit, "KillMode="), "mixed");

    // systemd stops it: SIGTERM to the main process alone.
    let main = place.start_words(line);
    place.await_up("report", 1);
    main.signal(Signal::TERM);
    assert_eq!(
        main.finish_within(Duration::from_secs(seconds(field(&unit, "TimeoutStopSec=")))).signal(),
        Some(15)
    );
    place.env.await_no_process();
    assert_eq!(place.env.holders("report"), 0);

    // On two hosts: the second one waits, and finds nothing left to do.
    let first = place.start_words(line);
    place.await_up("report", 2);
    let second = place.start_words(line);
    place.env.await_waiters("report", 1);
    gate.open();
    first.finish().silently(0);
    assert_eq!(second.finish().code(), Some(0));
    place.env.await_no_process();
    assert_eq!(place.env.read("report.up").lines().count(), 2);
}

#[test]
fn a_task_of_ansible_runs_on_two_hosts_at_a_time() {
    let place = RecipeEnv::new();
    let recipe = place.recipe("ansible");
    let gate = place.gated("restart");
    let hosts: Vec<_> = (0..3).map(|_| place.start_words(field(&recipe, "cmd:"))).collect();
    place.await_up("restart", 2);
    place.env.await_waiters("restart-web", 1);
    assert_eq!(place.env.read("restart.up").lines().count(), 2);
    gate.open();
    place.await_up("restart", 3);
    gate.open();
    gate.open();
    for host in hosts {
        assert_eq!(host.finish().code(), Some(0));
    }
    place.env.await_no_process();
    assert_eq!((place.env.holders("restart-web"), place.env.waiters("restart-web")), (0, 0));
}

#[test]
fn the_end_of_the_parent_ends_the_command() {
    let place = RecipeEnv::new();
    let recipe = place.recipe("pdeathsig");
    // The tree ignores every signal to stop, and some of it is in other sessions.
    let (tree, words) = Tree::words(&place.env, "tree");
    place.runs("worker", &words);
    let parent = place.start_shell(&format!("{recipe} &\nwait"));
    tree.await_grown(&place.env);
    place.env.assert_busy("worker");
    parent.signal(Signal::KILL);
    until_true("the end of the tree", || tree.members().is_empty());
    assert_eq!(parent.finish().signal(), Some(9));
    place.assert_over("worker");
}
