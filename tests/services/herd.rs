//! What one hand-over costs the service, in short lines and in longer ones.

use std::time::{Duration, Instant};

use crate::site::{Kind, MAX_TTL, Site};
use crate::support::Bed;
use crate::support::running::CROWD;

/// So long that no renewal falls into a run, where that can be had.
const TTL: &str = "10m";
/// A session that has nothing to say says so to its server every 1.5 s; nobody else sends anything unasked.
const PING: Duration = Duration::from_millis(1_500);

/// Has so many wait and run one after another. The requests for each hand-over, and those that were only signs of life
/// at most.
fn cost(site: &Site, waiters: u32) -> (f64, f64) {
    let bed = Bed::on(site.part());
    let holder = bed.held(&["--name", "x", "--ttl", TTL]);
    let queue: Vec<_> = (0..waiters)
        .map(|_| bed.start(&mut bed.run(["-q", "--name", "x", "--ttl", TTL, "--", "true"])))
        .collect();
    bed.await_waiters("x", usize::try_from(waiters).expect("few"));
    let before = site.requests();
    let begun = Instant::now();
    // It may have told of risks of the service.
    assert_eq!(holder.release().code(), Some(0));
    for one in queue {
        // Sixty that start at once may have told that nobody answers yet.
        assert_eq!(one.finish_within(CROWD).code(), Some(0));
    }
    let requests = site.requests() - before;
    let times = |every: Duration| begun.elapsed().as_secs_f64() / every.as_secs_f64() + 1.0;
    let pings = match site.kind() {
        Kind::Zk => times(PING),
        // No ttl there is long; a renewal is a few commands at each node.
        Kind::Redlock => times(MAX_TTL / 3) * 30.0,
        // Who has just entered the line may have yet to ask to be told.
        Kind::Mysql | Kind::Postgres => 1.0,
        _ => 0.0,
    };
    (f64::from(u32::try_from(requests).expect("few")) / f64::from(waiters), pings)
}

#[test]
fn requests_for_one_hand_over_do_not_grow_with_the_line() {
    let site = Site::start();
    // The first contact of a service with a client may cost more.
    cost(&site, 1);
    let (short, _) = cost(&site, 10);
    let (long, pings) = cost(&site, 60);
    // One request of every waiter at each hand-over would be some thirty more for each.
    assert!(long <= short * 1.15 + 0.5 + pings, "{long} for 60 waiters, {short} for 10, up to {pings} signs of life");
    // A look, a release, and what has to be read and watched between them; commands inside scripts count on Redis.
    let most = match site.kind() {
        Kind::Etcd => 3.1,
        Kind::Redis => 80.0,
        Kind::Redlock => 800.0,
        Kind::Memcached | Kind::Zk => 7.0,
        Kind::Mysql | Kind::Postgres => 2.0,
    };
    assert!(short <= most + 1.0, "{short} for each hand-over");
}
