//! The search for deadlocks, tried. This crate's harness knows no `#[test]`: [`crate::meta`] runs it.

use std::num::NonZeroU32;
use std::time::Duration;

use dlock::lock::{ClaimId, Holder, LockName, Mode, Request};

use super::deadlock::cycle;

fn claim(id: u8, names: &[&str], mode: Mode, ancestors: &[u8]) -> Request {
    Request {
        names: names.iter().map(|n| LockName::new(*n).expect("valid")).collect(),
        id: ClaimId::from_bytes([id; 16]),
        mode,
        ttl: Duration::from_secs(30),
        holder: Holder::default(),
        ancestors: ancestors.iter().map(|a| ClaimId::from_bytes([*a; 16])).collect(),
        supersede: false,
    }
}

fn closes(claims: &[Request]) -> Option<Vec<usize>> {
    let claims: Vec<&Request> = claims.iter().collect();
    cycle(&claims).map(|path| path.into_iter().map(|(_, to)| to).collect())
}

pub(crate) fn sees_exactly_the_waits_that_never_end() {
    use Mode::{Exclusive as X, Shared as S};
    let two = Mode::Slots(NonZeroU32::new(2).expect("positive"));
    let own_shared = [claim(1, &["a"], S, &[]), claim(2, &["a"], X, &[1])];
    assert_eq!(closes(&own_shared), Some(vec![0, 1]));
    let crossed = [
        claim(1, &["a"], X, &[]),
        claim(2, &["b"], X, &[]),
        claim(3, &["b"], X, &[1]),
        claim(4, &["a"], X, &[2]),
    ];
    assert_eq!(closes(&crossed[..3]), None);
    assert_eq!(closes(&crossed), Some(vec![0, 2, 1, 3]));
    let siblings = [claim(1, &["a"], S, &[]), claim(2, &["b"], X, &[1]), claim(3, &["b"], X, &[1])];
    assert_eq!(closes(&siblings), None);
    let any_slot = [claim(1, &["a"], two, &[]), claim(2, &["a"], two, &[]), claim(3, &["a"], two, &[1])];
    assert_eq!(closes(&any_slot), None, "the other slot comes free");
    let no_slot = [claim(1, &["a"], two, &[]), claim(2, &["a"], two, &[1]), claim(3, &["a"], two, &[1, 2])];
    assert_eq!(closes(&no_slot), Some(vec![0, 1, 2]));
}
