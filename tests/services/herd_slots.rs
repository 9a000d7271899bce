//! The cost of a hand-over on a lock with slots.

use super::herd::cost_in_any_line;

#[test]
fn requests_for_a_slot_hand_over_do_not_grow_with_the_queue() {
    cost_in_any_line(&["--slots", "2"], 2);
}
