//! Connections that a middlebox forgot: no more packets pass, and neither side is notified.

use std::fs;

use crate::servers::proxy::Proxy;
use crate::site;
use crate::support::wait::until_true;
use crate::support::{Running, TestEnv};

/// The state of an open connection in `/proc/net/tcp`, and its timer for probes after a silence.
const ESTABLISHED: &str = "01";
const PROBED: &str = "02:";

/// A part of the service, reached over relays to all of its servers and past them.
pub(super) struct Ways {
    pub(super) over: TestEnv,
    pub(super) past: TestEnv,
    pub(super) each: Vec<Proxy>,
}

impl Ways {
    pub(super) fn new() -> Self {
        let site = site::shared();
        let past = TestEnv::on(site.part());
        // So that everything exists that a first run creates.
        past.finish(&mut past.run(["--name", "x", "-q", "--", "true"])).silently(0);
        let mut service = past.service().clone();
        let each: Vec<Proxy> = site.ports().into_iter().map(Proxy::to).collect();
        for (port, way) in site.ports().into_iter().zip(&each) {
            service = service.through(way.port(), port);
        }
        Self { over: TestEnv::on(service), past, each }
    }
}

/// Returns the timers of the open connections of `pid`.
fn timers(pid: i32) -> Vec<String> {
    let own = fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors").flatten();
    let own: Vec<_> = own.filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
    let is_own = |inode: &str| own.iter().any(|link| *link == *format!("socket:[{inode}]"));
    let table = fs::read_to_string("/proc/net/tcp").expect("the connections");
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[3] == ESTABLISHED && is_own(row[9])).map(|row| row[5].to_owned()).collect()
}

fn await_probes(running: &Running) {
    let keeper = running.keeper();
    until_true(&format!("probes; the timers are {:?}", timers(keeper)), || {
        let timers = timers(keeper);
        !timers.is_empty() && timers.iter().all(|timer| timer.starts_with(PROBED))
    });
}

/// Not for ZooKeeper, whose client sends pings.
#[test]
fn a_silent_connection_is_probed() {
    if site::kind().name == "zk" {
        return;
    }
    let ways = Ways::new();
    let holder = ways.past.held(&["--name", "x", "--ttl", "10s"]);
    await_probes(&holder.running);
    let waiter = ways.past.start(&mut ways.past.run(["--name", "x", "--ttl", "10s", "-q", "--", "true"]));
    if site::kind().has_queue() {
        ways.past.await_waiters("x", 1);
    }
    await_probes(&waiter);
    holder.release().silently(0);
    waiter.finish().silently(0);
}

/// Not for Redlock, whose connections are short.
#[test]
fn release_replaces_a_silent_connection() {
    if !site::kind().has_queue() {
        return;
    }
    let ways = Ways::new();
    let holder = ways.over.held(&["--name", "x", "--ttl", "40s"]);
    ways.each.iter().for_each(Proxy::leave_behind);
    holder.release().silently(0);
    ways.past.assert_free("x");
}
