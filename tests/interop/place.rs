//! Where foreign clients and dlock meet.

use crate::servers::{Kind, Order, Site};
use crate::support::Bed;

/// Nobody harms a service here.
const ORDER: Order = Order { keeps: true, in_all: 1 };

/// The service that all tests share.
pub(crate) fn site(kind: &Kind) -> &'static dyn Site {
    &**kind.shared(&ORDER)
}

/// The first of its ports.
pub(crate) fn port(kind: &Kind) -> u16 {
    site(kind).ports()[0]
}

/// A bed in a part of it that no other test uses; `None`, said aloud, where there is no such service.
pub(crate) fn bed(kind: &Kind) -> Option<Bed> {
    if let Some(reason) = (kind.missing)() {
        crate::skip(kind.name, &reason);
        return None;
    }
    Some(Bed::on(site(kind).part()))
}

/// What clients that know nothing of prefixes call the bed's lock x.
pub(crate) fn key(bed: &Bed) -> String {
    format!("{}x", bed.service().prefix.as_deref().expect("a prefix"))
}
