//! The service of the running test, and the instances that tests share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::servers::{Kind, Order, Server, Site, redis};
use crate::support::{Service, TestEnv};

/// Tests restart services, and so many of them want one of a kind.
const ORDER: Order = Order { keeps: true, in_all: 16, clients: 0 };

/// The service of the running test, if its name says one.
pub(crate) fn kind_of_this_test() -> Option<&'static Kind> {
    Kind::named(std::thread::current().name()?.split("::").next()?.strip_prefix("on_")?)
}

/// The service of the running test.
pub(crate) fn kind() -> &'static Kind {
    kind_of_this_test().expect("a test of a service")
}

/// Says of a service that cannot be had how to get it.
fn demand(kind: &Kind) {
    if let Some(reason) = (kind.missing)() {
        panic!("{reason}; tests/run installs it");
    }
}

/// One that the running test has to itself.
pub(crate) fn start() -> Arc<dyn Site> {
    start_for(0)
}

/// The same for so many clients at once.
pub(crate) fn start_for(clients: usize) -> Arc<dyn Site> {
    demand(kind());
    (kind().start)(&Order { clients, ..ORDER })
}

/// The one that most tests of a kind share.
pub(crate) fn shared() -> &'static dyn Site {
    demand(kind());
    &**kind().shared(&ORDER)
}

/// A part of it for the running test.
pub(crate) fn part() -> Service {
    shared().part()
}

/// Takes the claim that holds the lock `name` of `environment` away, behind the back of who holds it.
pub(crate) fn lose(env: &TestEnv, name: &str) {
    let claim = env.status(name)["holders"][0]["claim"].as_str().expect("somebody holds it").to_owned();
    shared().lose(env.service(), name, &claim);
}

/// The nodes of a Redlock that tests share which do nothing to them; each with a database of its own.
pub(crate) fn shared_nodes() -> (&'static [Server], u64) {
    static SHARED: OnceLock<Vec<Server>> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(1);
    (SHARED.get_or_init(nodes), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The nodes of a Redlock, old enough to have a say.
pub(crate) fn nodes() -> Vec<Server> {
    redis::old_nodes(&ORDER)
}
