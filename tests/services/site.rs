//! The service of the running test, and the instances that tests share.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::servers::{Kind, Order, Server, Site, redis};
use crate::support::{Finished, Service, TestEnv};

/// Many tests of a kind start a service of their own, because they restart it.
const ORDER: Order = Order { keeps: true, in_all: 16, clients: 0 };

/// Returns the service that the name of the running test contains.
pub(crate) fn kind_of_this_test() -> Option<&'static Kind> {
    Kind::named(std::thread::current().name()?.split("::").next()?.strip_prefix("on_")?)
}

/// Returns the service of the running test.
pub(crate) fn kind() -> &'static Kind {
    kind_of_this_test().expect("a test of a service")
}

/// Prints how to install a service that is missing.
fn demand(kind: &Kind) {
    if let Some(reason) = (kind.missing)() {
        panic!("{reason}; tests/run installs it");
    }
}

/// Starts one for the running test alone.
pub(crate) fn start() -> Arc<dyn Site> {
    start_for(0)
}

/// Starts one for so many clients at once.
pub(crate) fn start_for(clients: usize) -> Arc<dyn Site> {
    demand(kind());
    (kind().start)(&Order { clients, ..ORDER })
}

/// Returns the one that most tests of a kind share.
pub(crate) fn shared() -> &'static dyn Site {
    demand(kind());
    &**kind().shared(&ORDER)
}

/// Returns a part of it for the running test.
pub(crate) fn part() -> Service {
    shared().part()
}

/// Runs `true` under the lock x with these variables.
pub(crate) fn run_with(env: &TestEnv, variables: &[(&str, &Path)]) -> Finished {
    let mut command = env.run(["--try", "--name", "x", "--", "true"]);
    env.finish(command.envs(variables.iter().copied()))
}

/// Returns the output of `doctor` with the wrapped lines joined.
pub(crate) fn looked(env: &TestEnv) -> String {
    let text = env.finish(&mut env.verb("doctor", [] as [&str; 0])).silently(0).text();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Removes the claim that holds the lock `name` of `env` without its holder's knowledge.
pub(crate) fn lose(env: &TestEnv, name: &str) {
    let claim = env.status(name)["holders"][0]["claim"].as_str().expect("a claim holds it").to_owned();
    shared().lose(env.service(), name, &claim);
}

/// Returns the nodes of a Redlock that tests share if they do not disturb them, and a database for this test.
pub(crate) fn shared_nodes() -> (&'static [Server], u64) {
    static SHARED: OnceLock<Vec<Server>> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(1);
    (SHARED.get_or_init(nodes), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Starts the nodes of a Redlock, old enough to vote.
pub(crate) fn nodes() -> Vec<Server> {
    redis::old_nodes(&ORDER)
}
