//! The requests that one hand-over costs the service, in short queues and in longer ones.

use std::time::{Duration, Instant};

use crate::servers::Site;
use crate::site;
use crate::support::TestEnv;
use crate::support::running::CROWD;
use crate::support::test_env::Holder;
use crate::support::wait::{let_pass, until_true};

/// So long that no renewal falls into a run, if the service grants that.
const TTL: &str = "10m";

/// The number of waiters that start together.
const AT_ONCE: u32 = 60;

/// The time for one hold and the hand-over to the next waiter.
const A_TURN: Duration = Duration::from_millis(500);

/// Returns the numbers of waiters: a short queue first, then longer ones. `DLOCK_TEST_WAITERS` overrides them,
/// separated by commas.
fn sizes() -> Vec<u32> {
    let given = std::env::var("DLOCK_TEST_WAITERS").unwrap_or_else(|_| "10,60".to_owned());
    given.split(',').map(|size| size.trim().parse().expect("numbers")).collect()
}

/// Returns whether the waiters send no more than the requests that may always occur. A waiter that does not listen yet
/// polls every half second.
fn is_at_rest(site: &dyn Site, waiters: u32) -> bool {
    let (before, begun) = (site.requests(), Instant::now());
    let_pass(Duration::from_millis(700));
    let requests = f64::from(u32::try_from(site.requests() - before).expect("few"));
    // The query of the count is one request.
    requests <= (site.kind().facts.besides)(begun.elapsed()) * f64::from(waiters) + 4.0
}

/// Queues so many waiters behind `holders` and lets them run one after another. Returns the requests for each
/// hand-over, and the number of unrelated requests that may be among them all.
fn cost(site: &dyn Site, mode: &[&str], holders: usize, waiters: u32) -> (f64, f64) {
    let env = TestEnv::on(site.part());
    let options = [&["--name", "x", "--ttl", TTL][..], mode].concat();
    let holders: Vec<Holder> = (0..holders).map(|_| env.held(&options)).collect();
    let words = [&["-q"], &options[..], &["--", "true"]].concat();
    let mut queue = Vec::new();
    for n in 1..=waiters {
        queue.push(env.start(&mut env.run(&words)));
        if n % AT_ONCE == 0 || n == waiters {
            env.await_waiters("x", queue.len());
        }
    }
    until_true("every waiter watches", || is_at_rest(site, waiters));
    let before = site.requests();
    let begun = Instant::now();
    for holder in holders {
        // dlock may have warned of risks of the service.
        assert_eq!(holder.release().code(), Some(0));
    }
    for one in queue {
        // Some of so many simultaneous starters may have reported that no server answers yet.
        assert_eq!(one.finish_within(CROWD.max(A_TURN * waiters)).code(), Some(0));
    }
    let requests = site.requests() - before;
    let besides = (site.kind().facts.besides)(begun.elapsed());
    (f64::from(u32::try_from(requests).expect("few")) / f64::from(waiters), besides)
}

/// Returns the cost of a hand-over in the shortest queue. Longer queues must not cost more.
fn cost_in_any_line(mode: &[&str], holders: usize) -> f64 {
    let sizes = sizes();
    let most = sizes.iter().max().map_or(0, |most| usize::try_from(*most).expect("few"));
    let site = site::start_for(most + holders);
    // The first contact of a service with a client may cost more.
    cost(&*site, mode, holders, 1);
    let (short, _) = cost(&*site, mode, holders, sizes[0]);
    eprintln!("{short} requests for each hand-over with {} waiters", sizes[0]);
    for waiters in &sizes[1..] {
        let (long, besides) = cost(&*site, mode, holders, *waiters);
        eprintln!("{long} with {waiters}, {besides} of which may have come besides");
        // If every waiter sent one request at each hand-over, each hand-over would cost half as many more as there are
        // waiters.
        assert!(long <= short * 1.15 + 0.5 + besides, "{long} for {waiters} waiters, {short} for {}", sizes[0]);
    }
    short
}

#[test]
fn requests_for_one_hand_over_do_not_grow_with_the_queue() {
    let cost = cost_in_any_line(&[], 1);
    assert!(cost <= site::kind().facts.hand_over + 1.0, "{cost} for each hand-over");
}

#[test]
fn requests_for_a_slot_hand_over_do_not_grow_with_the_queue() {
    cost_in_any_line(&["--slots", "2"], 2);
}
