//! What one hand-over costs the service, in short lines and in longer ones.

use std::time::Instant;

use crate::servers::Site;
use crate::site;
use crate::support::TestEnv;
use crate::support::running::CROWD;

/// So long that no renewal falls into a run, where that can be had.
const TTL: &str = "10m";

/// Has so many wait and run one after another. The requests for each hand-over, and those that may have come besides.
fn cost(site: &dyn Site, waiters: u32) -> (f64, f64) {
    let env = TestEnv::on(site.part());
    let holder = env.held(&["--name", "x", "--ttl", TTL]);
    let queue: Vec<_> = (0..waiters)
        .map(|_| env.start(&mut env.run(["-q", "--name", "x", "--ttl", TTL, "--", "true"])))
        .collect();
    env.await_waiters("x", usize::try_from(waiters).expect("few"));
    let before = site.requests();
    let begun = Instant::now();
    // It may have told of risks of the service.
    assert_eq!(holder.release().code(), Some(0));
    for one in queue {
        // Sixty that start at once may have told that nobody answers yet.
        assert_eq!(one.finish_within(CROWD).code(), Some(0));
    }
    let requests = site.requests() - before;
    let besides = (site.kind().facts.besides)(begun.elapsed());
    (f64::from(u32::try_from(requests).expect("few")) / f64::from(waiters), besides)
}

#[test]
fn requests_for_one_hand_over_do_not_grow_with_the_queue() {
    let site = site::start();
    // The first contact of a service with a client may cost more.
    cost(&*site, 1);
    let (short, _) = cost(&*site, 10);
    let (long, besides) = cost(&*site, 60);
    // One request of every waiter at each hand-over would be some thirty more for each.
    assert!(long <= short * 1.15 + 0.5 + besides, "{long} for 60 waiters, {short} for 10, up to {besides} besides");
    assert!(short <= site.kind().facts.hand_over + 1.0, "{short} for each hand-over");
}
