//! Scripts, elections and deploys.

use rustix::process::Signal;

use crate::page::RecipeEnv;
use crate::support::process;
use crate::support::terminal::front_of;
use crate::support::{Running, until};

#[test]
fn script_with_two_locks_releases_only_the_first() {
    let place = RecipeEnv::new();
    let script = place.program("script", &place.recipe("two-locks"));
    let (build, publish) = (place.gated("build"), place.gated("publish"));
    let running = place.env.start(&mut place.command(&script));
    place.await_up("build", 1);
    assert_eq!((place.env.holders("build"), place.env.holders("publish")), (1, 0));
    build.open();
    place.await_up("publish", 1);
    assert_eq!((place.env.holders("build"), place.env.holders("publish")), (0, 1));
    publish.write("5");
    running.finish().silently(5);
    place.assert_over("publish");
    place.env.assert_free("build");
}

#[test]
fn a_migration_runs_until_it_has_succeeded_once_and_all_go_on() {
    let place = RecipeEnv::new();
    let script = place.program("script", &place.recipe("migrate"));
    let (migrate, serve) = (place.gated("migrate"), place.gated("serve"));
    let mut instances: Vec<Running> = (0..3).map(|_| place.env.start(&mut place.command(&script))).collect();
    place.await_up("migrate", 1);
    place.env.await_waiters("migrate-v42", 2);
    migrate.write("3");
    place.await_up("migrate", 2);
    let failed = until("the end of an instance", || instances.iter_mut().position(Running::has_ended));
    assert_eq!(instances.swap_remove(failed).finish().code(), Some(3));
    assert!(!place.env.exists("serve.up"), "no pod continues before it has succeeded");
    migrate.open();
    place.await_up("serve", 2);
    serve.open();
    serve.open();
    for instance in instances {
        assert_eq!(instance.finish().code(), Some(0));
    }
    assert_eq!(place.env.read("migrate.up").lines().count(), 2);
    place.env.await_no_process();
    assert_eq!((place.env.holders("migrate-v42"), place.env.waiters("migrate-v42")), (0, 0));
}

#[test]
fn a_spare_leads_when_the_leader_is_killed() {
    let place = RecipeEnv::new();
    let (stand, ask) = (place.recipe("leader"), place.recipe("leader-ask"));
    place.endless("serve");
    let first = place.start_shell(&stand);
    let old = place.await_up("serve", 1)[0];
    let second = place.start_shell(&stand);
    place.env.await_waiters("frontend", 1);
    let asked = place.start_words(&ask).finish().silently(0).text();
    let host = place.env.finish(&mut place.command("hostname")).text();
    assert_eq!(asked, host);
    process::signal(front_of(old), Signal::KILL);
    let new = place.await_up("serve", 2)[1];
    assert!(!process::is_alive(old));
    assert_ne!(first.finish().code(), Some(0));
    process::signal(front_of(new), Signal::TERM);
    assert_ne!(second.finish().code(), Some(0));
    place.assert_over("frontend");
}

#[test]
fn the_newest_deploy_replaces_those_before_it() {
    let place = RecipeEnv::new();
    let recipe = place.recipe("replace");
    place.endless("deploy");
    let first = place.start_words(&recipe);
    let old = place.await_up("deploy", 1)[0];
    let second = place.start_words(&recipe);
    let new = place.await_up("deploy", 2)[1];
    assert!(!process::is_alive(old));
    first.finish().failed(76, &["replaced under deploy by"]);
    process::signal(front_of(new), Signal::TERM);
    assert_eq!(second.finish().signal(), Some(15));
    place.assert_over("deploy");
}
