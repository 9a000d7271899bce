//! The service that foreign clients and dlock share.

use crate::servers::{Kind, Order, Site};
use crate::support::TestEnv;

/// These tests do not disturb a service.
const ORDER: Order = Order { keeps: true, in_all: 1, clients: 0 };

/// Returns the service that all tests share.
pub(crate) fn site(kind: &Kind) -> &'static dyn Site {
    &**kind.shared(&ORDER)
}

/// Returns the first of its ports.
pub(crate) fn port(kind: &Kind) -> u16 {
    site(kind).ports()[0]
}

/// Returns an environment in a part of the service that no other test uses. If there is no such service, prints the
/// reason and returns `None`.
pub(crate) fn env(kind: &Kind) -> Option<TestEnv> {
    if let Some(reason) = (kind.missing)() {
        crate::skip(kind.name, &reason);
        return None;
    }
    Some(TestEnv::on(site(kind).part()))
}

/// Returns the name of the environment's lock x for clients that do not use prefixes.
pub(crate) fn key(env: &TestEnv) -> String {
    format!("{}x", env.service().prefix.as_deref().expect("a prefix"))
}
