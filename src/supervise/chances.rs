//! The chances of a keeper that is late where no lease runs out.
//!
//! The guard instant is there for a keeper that hangs or is stopped. With a lease it is the deadline as well. Without
//! one the kernel keeps the lock, and an instant that has passed may mean no more than that everything stood still:
//! the front cannot tell a keeper that was frozen with it from one that does nothing. So it moves the instant on by a
//! step, several times, each counted from when the front itself ran. A keeper that runs needs one; one that stays
//! stopped while the front runs has used them up after a quarter of the ttl.

use std::time::Duration;

use super::shared::Shared;
use crate::clock::now;
use crate::lock::Moment;

/// What a keeper still has when its time has run out: so many chances until it speaks again, and how long each is while
/// it is on its way into or out of the queue. They are counted from when the front ran: if the machine stands still the
/// keeper does too.
pub const CHANCES: (u32, Duration) = (8, Duration::from_millis(100));

/// What the front has given of them.
#[derive(Debug)]
pub struct Chances {
    left: u32,
    /// The instant to which the guard instant was moved last.
    given: Moment,
}

impl Default for Chances {
    fn default() -> Self {
        Self { left: CHANCES.0, given: Moment::NEVER }
    }
}

impl Chances {
    /// Gives the keeper, which is late, another chance if it has any left; whether it has.
    pub fn give(&mut self, shared: &Shared) -> bool {
        let (step, at) = (shared.guard_step(), shared.guard_until());
        if step.is_zero() {
            return false;
        }
        if at != self.given {
            // The keeper has spoken since.
            self.left = CHANCES.0;
        }
        let Some(left) = self.left.checked_sub(1) else { return false };
        let next = now() + step;
        // If not, the keeper has just spoken.
        if shared.postpone_guard(at, next) {
            (self.left, self.given) = (left, next);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keeper_with_a_lease_has_none() {
        let shared = Shared::new().expect("a page");
        shared.set_guard_until(now());
        assert!(!Chances::default().give(&shared));
    }

    #[test]
    fn they_are_used_up_unless_the_keeper_speaks() {
        let shared = Shared::new().expect("a page");
        shared.set_guard_step(Duration::from_nanos(1));
        let mut chances = Chances::default();
        for _ in 0..2 {
            shared.set_guard_until(now());
            for _ in 0..CHANCES.0 {
                let before = shared.guard_until();
                assert!(chances.give(&shared) && shared.guard_until() > before);
            }
            assert!(!chances.give(&shared));
        }
    }
}
