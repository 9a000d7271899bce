//! dlock with real services. The promises of one machine hold there too, whatever happens to the service.
//!
//! The tests of `tests/cli` and `tests/supervise` that depend on the decisions of a service run here again, once for
//! each service. Those of the program alone also run on Redis. The first part of a test's name is its service.

#![allow(clippy::print_stderr, reason = "a test that cannot run here says why")]
#![allow(clippy::duplicate_mod, reason = "the same tests, once for each service")]

mod causes;
mod cut_off;
mod etcd;
mod etcd_answers;
mod etcd_cluster;
mod etcd_cut;
mod etcd_faults;
mod etcd_proxies;
mod memcached;
mod mysql;
mod mysql_failover;
mod mysql_many;
#[path = "../faults/oracle.rs"]
mod oracle;
mod passed_over;
mod postgres;
mod postgres_many;
mod postgres_settings;
mod redis;
mod redis_holds;
mod redis_lacks;
mod redis_lua;
mod redis_many;
mod redis_moving;
mod redlock;
mod refused_waiter;
mod site;
mod sql_settings;
mod zookeeper;
mod zookeeper_cut;
mod zookeeper_grant;
mod zookeeper_kinds;
mod zookeeper_limit;
mod zookeeper_watch;

#[path = "../servers/mod.rs"]
mod servers;
#[path = "../support/mod.rs"]
mod support;

/// The tests of one service.
macro_rules! tests_of {
    ($service:ident $(, $(#[$place:meta])? $more:ident)*) => {
        #[path = "."]
        mod $service {
            #[path = "../cli/acquire.rs"]
            mod acquire;
            #[path = "../cli/breaking.rs"]
            mod breaking;
            #[path = "../cli/concurrency.rs"]
            mod concurrency;
            #[path = "../supervise/crash.rs"]
            mod crash;
            #[path = "../cli/deadlocks.rs"]
            mod deadlocks;
            mod doctor;
            #[path = "../cli/elections.rs"]
            mod elections;
            #[path = "../cli/look.rs"]
            mod look;
            #[path = "../cli/nested.rs"]
            mod nested;
            mod outage;
            mod promises;
            mod queued;
            #[path = "../cli/replace.rs"]
            mod replace;
            mod swarm;
            mod forgotten;
            #[path = "../supervise/waiting.rs"]
            mod waiting;
            mod ways;
            $($(#[$place])? mod $more;)*
        }
    };
}

tests_of!(on_etcd, addresses, alternatives, detached, forced, herd);
tests_of!(on_mysql, addresses, alternatives, detached, forced, herd, sql, sql_rows);
tests_of!(on_postgres, addresses, alternatives, detached, forced, herd, slots, sql, sql_rows);
tests_of!(
    on_redis,
    addresses,
    detached,
    #[path = "../cli/failures.rs"]
    failures,
    forced,
    herd,
    #[path = "../supervise/jobs.rs"]
    jobs,
    #[path = "../cli/options.rs"]
    options,
    #[path = "../cli/reports.rs"]
    reports,
    slots
);
tests_of!(on_zk, addresses, alternatives, herd, slots);

/// The tests of a service that has no queue, no shared locks and no claims on several names.
#[path = "."]
mod on_redlock {
    #[path = "../supervise/crash.rs"]
    mod crash;
    mod doctor;
    #[path = "../cli/elections.rs"]
    mod elections;
    mod forgotten;
    mod promises;
    mod swarm;
    mod ways;
}

/// The tests of a service that loses its data at a restart.
#[path = "."]
mod on_memcached {
    #[path = "../cli/acquire.rs"]
    mod acquire;
    mod addresses;
    #[path = "../cli/deadlocks.rs"]
    mod deadlocks;
    mod detached;
    #[path = "../cli/elections.rs"]
    mod elections;
    mod forced;
    mod forgotten;
    #[path = "../cli/nested.rs"]
    mod nested;
    mod outage;
    mod queued;
    #[path = "../cli/replace.rs"]
    mod replace;
    mod swarm;
    mod ways;
}

/// The locks of a test are in a part of the service named by the first part of the test's name. Without a service they
/// are in the test's own directory.
fn service(root: &std::path::Path) -> support::Service {
    if site::kind_of_this_test().is_some() { site::part() } else { support::Service::file(root) }
}
