//! The search for a wait that would never end.

use crate::lock::{LockName, Request, queue};

/// The cycle of waits that the last of `claims`, given in order of arrival, closes: each step as the claim
/// that is waited for and the lock on which, if on one; ends with the last claim itself.
///
/// A claim ends if nothing that must end before it stays, and no claim that runs inside it does. Whoever
/// cannot end by that rule is stuck; with slots, where any one of several may free the way, following single
/// edges would see deadlocks that are none.
pub(super) fn cycle(claims: &[&Request]) -> Option<Vec<(Option<LockName>, usize)>> {
    let new = claims.len().checked_sub(1)?;
    let stuck = stuck(claims);
    let mut path = Vec::new();
    let mut seen = vec![false; claims.len()];
    (stuck[new] && walk(claims, &stuck, new, new, &mut seen, &mut path)).then(|| {
        path.reverse();
        path
    })
}

fn stuck(claims: &[&Request]) -> Vec<bool> {
    let mut stuck = vec![true; claims.len()];
    loop {
        let free = (0..claims.len()).find(|i| stuck[*i] && can_end(claims, &stuck, *i));
        match free {
            Some(i) => stuck[i] = false,
            None => return stuck,
        }
    }
}

fn can_end(claims: &[&Request], stuck: &[bool], index: usize) -> bool {
    let holds = claims[index].names.iter().all(|name| {
        let ahead = (0..=index).filter(|i| stuck[*i] && claims[*i].names.contains(name));
        let modes: Vec<_> = ahead.map(|i| claims[i].mode).collect();
        queue::held(&modes) == modes.len()
    });
    let alone = (0..claims.len()).all(|i| !stuck[i] || !claims[i].ancestors.contains(&claims[index].id));
    holds && alone
}

/// Walks from `from` along what it waits for until it comes back to `new`; leaves the steps in `path`, the
/// last one first.
fn walk(
    claims: &[&Request],
    stuck: &[bool],
    from: usize,
    new: usize,
    seen: &mut [bool],
    path: &mut Vec<(Option<LockName>, usize)>,
) -> bool {
    for (name, to) in edges(claims, stuck, from) {
        if to == new || (!std::mem::replace(&mut seen[to], true) && walk(claims, stuck, to, new, seen, path))
        {
            path.push((name, to));
            return true;
        }
    }
    false
}

fn edges(claims: &[&Request], stuck: &[bool], from: usize) -> Vec<(Option<LockName>, usize)> {
    let mut edges = Vec::new();
    for name in &claims[from].names {
        let queue: Vec<usize> = (0..=from).filter(|i| claims[*i].names.contains(name)).collect();
        let modes: Vec<_> = queue.iter().map(|i| claims[*i].mode).collect();
        let blockers = queue::blockers(&modes, queue.len() - 1);
        edges.extend(blockers.into_iter().map(|at| (Some(name.clone()), queue[at])));
    }
    let inside = (0..claims.len()).filter(|i| claims[*i].ancestors.contains(&claims[from].id));
    edges.extend(inside.map(|i| (None, i)));
    edges.retain(|(_, to)| stuck[*to]);
    edges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{ClaimId, Holder, Mode};
    use std::num::NonZeroU32;
    use std::time::Duration;

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

    #[test]
    fn sees_exactly_the_waits_that_never_end() {
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
        let no_slot =
            [claim(1, &["a"], two, &[]), claim(2, &["a"], two, &[1]), claim(3, &["a"], two, &[1, 2])];
        assert_eq!(closes(&no_slot), Some(vec![0, 1, 2]));
    }
}
