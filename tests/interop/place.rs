//! Where foreign clients and dlock meet.

use crate::servers::{Kind, Order, Site};
use crate::support::TestEnv;

/// Nobody harms a service here.
const ORDER: Order = Order { keeps: true, in_all: 1, clients: 0 };

/// The service that all tests share.
pub(crate) fn site(kind: &Kind) -> &'static dyn Site {
    &**kind.shared(&ORDER)
}

/// The first of its ports.
pub(crate) fn port(kind: &Kind) -> u16 {
    site(kind).ports()[0]
}

/// An environment in a part of it that no other test uses; `None`, said aloud, where there is no such service.
pub(crate) fn env(kind: &Kind) -> Option<TestEnv> {
    if let Some(reason) = (kind.missing)() {
        crate::skip(kind.name, &reason);
        return None;
    }
    Some(TestEnv::on(site(kind).part()))
}

/// What clients that know nothing of prefixes call the environment's lock x.
pub(crate) fn key(env: &TestEnv) -> String {
    format!("{}x", env.service().prefix.as_deref().expect("a prefix"))
}
