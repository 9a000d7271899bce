//! A member of an etcd cluster that is cut off from the others. The holder knows only this member.

use std::time::{Duration, Instant};

use crate::cut_off::CutOff;
use crate::etcd_faults::locks_at;
use crate::servers::etcd::Cluster;
use crate::support::{quiet, within};

const TTL: Duration = Duration::from_secs(8);

/// Cuts off the leader, or a follower. Returns whether the member reported the lease as renewed after the cut.
fn cut_off(leads: bool) -> bool {
    let _alone = quiet::measuring();
    let cluster = Cluster::start_apart();
    let leader = cluster.leader(0);
    let member = if leads { leader } else { (leader + 1) % 3 };
    let others = [(member + 1) % 3, (member + 2) % 3];
    // A follower passes renewals to the leader on a path that the relays cannot tell apart, and that path is cut, too.
    // The waiter then uses the leader alone.
    let far = if leads { others.map(|n| cluster.endpoint(n)).join(",") } else { cluster.endpoint(leader) };
    let (near, far) = (locks_at(cluster.endpoint(member)), locks_at(far));
    let scene = CutOff::start(near, far, "8s");
    let lease = cluster.lease_of_first(member, "locks/x/");
    cluster.cut(member);
    let cut = Instant::now();
    let renewed = cluster.renews(member, &lease);
    scene.await_tree_gone();
    let took = cut.elapsed();
    // The last valid renewal was sent before the cut.
    within(took, TTL);
    scene.conclude();
    renewed
}

#[test]
fn cut_off_leader_keeps_no_tree_alive_despite_renewals() {
    assert!(cut_off(true), "it knew at once, and the hazard did not come about");
}

#[test]
fn cut_off_follower_keeps_no_tree_alive() {
    assert!(!cut_off(false), "it reached the leader, and was not cut off");
}
