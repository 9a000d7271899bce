//! The search for a wait that would never end.

use dlock::lock::{LockName, Request, queue};

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
