//! Freezes, limited queues, deploys that share locks, and monitors.

use crate::page::{RecipeEnv, ends_within};
use crate::servers::redis;
use crate::support::Running;

#[test]
fn limited_queue_refuses_the_next_one() {
    let place = RecipeEnv::new();
    let line = place.recipe("short-queue");
    let deploy = place.gated("deploy");
    let start = || place.start_words(&line);
    let first = start();
    place.await_up("deploy", 1);
    let mut others: Vec<Running> = (1..4).map(|_| start()).collect();
    place.env.await_waiters("deploy", 3);
    start().finish().failed(75, &["deploy-queue"]);
    assert!(others.iter_mut().all(|running| !running.has_ended()));
    for count in 2..=4 {
        deploy.open();
        place.await_up("deploy", count);
    }
    deploy.open();
    for running in others.into_iter().chain([first]) {
        assert_eq!(running.finish().code(), Some(0));
    }
    place.assert_over("deploy");
}

#[test]
fn freeze_stops_deploys_until_it_is_broken() {
    let place = RecipeEnv::new();
    let server = redis::start_with(&["--maxmemory-policy", "noeviction"]);
    let sh = |text: &str| {
        let mut command = place.command("sh");
        command.args(["-c", text]).env("DLOCK_ENDPOINT", redis::address(&server));
        place.env.finish(&mut command)
    };
    sh(&place.recipe("freeze")).silently(0);
    sh("dlock run --name deploy --try -- echo ran").failed(75, &["release freeze until Monday"]);
    let thawed = sh(&place.recipe("thaw"));
    assert_eq!(thawed.code(), Some(0), "{}", thawed.err);
    assert_eq!(sh("dlock run --name deploy --try -- echo ran").silently(0).text(), "ran\n");
}

#[test]
fn deploys_of_two_repositories_share_one_lock() {
    let place = RecipeEnv::new();
    let text = place.recipe("two-repositories");
    let deploy = place.gated("deploy");
    let start = |text: &str, project: &str| {
        place.env.start(place.command("sh").args(["-c", text]).env("CI_PROJECT_PATH", project))
    };
    let first = start(&text, "group/app");
    place.await_up("deploy", 1);
    assert_eq!(place.env.status("database")["holders"][0]["label"], "group/app");
    let second = start(&text.replace("--name app ", ""), "group/billing");
    place.env.await_waiters("database", 1);
    deploy.open();
    first.finish().silently(0);
    place.await_up("deploy", 2);
    deploy.open();
    assert_eq!(second.finish().code(), Some(0));
    place.assert_over("app");
}

#[test]
fn terraform_is_interrupted_and_has_its_time() {
    let place = RecipeEnv::new();
    place.program(
        "bin/terraform",
        "#!/bin/sh\ntrap 'echo unlocked; exit 0' INT\necho $$ >terraform.up\nsleep 1000 & wait\n",
    );
    let running = place.start_words(&place.recipe("terraform"));
    place.await_up("terraform", 1);
    let breaking = place.env.finish(&mut place.env.verb("break", ["terraform-prod", "--yes"]));
    assert_eq!(breaking.code(), Some(0), "{}", breaking.err);
    let ended = running.finish();
    assert_eq!((ended.code(), ended.text().as_str()), (Some(76), "unlocked\n"), "{}", ended.err);
    place.assert_over("terraform-prod");
}

#[test]
fn monitor_learns_the_status_of_each_run_and_of_no_busy_one() {
    let place = RecipeEnv::new();
    place.program("bin/curl", "#!/bin/sh\nfor word; do :; done\necho \"$word\" >>pings\n");
    let text = place.recipe("ping");
    let backup = place.gated("backup");
    let mut running = place.start_shell(&text);
    place.await_up("backup", 1);
    place.start_shell(&text).finish().failed(75, &["backup"]);
    backup.write("3");
    assert!(ends_within(&mut running, std::time::Duration::from_secs(20)));
    assert_eq!(running.finish().code(), Some(3));
    assert_eq!(place.env.read("pings"), "https://hc.example.com/backup/3\n");
    place.assert_over("backup");
}
