//! What the model finds.

use super::model::{End, World};
use super::model_claim::Comer;
use super::model_node::Rules;

const RULES: Rules = Rules { door: true, order_again: true, moves: false, by_name: true };
/// As they were: slots that are moved, by as many claims at a time as there are slots.
const MOVES: Rules = Rules { door: false, moves: true, ..RULES };

fn end(rules: Rules, slots: u32, claims: usize, schedule: u64) -> End {
    let comer = Comer { names: vec![0], within: None };
    World::new(rules, slots, vec![comer; claims], schedule << 20).run()
}

/// Twelve for one or more of three names, all sets of them.
fn of_several_names(rules: Rules, slots: u32, schedule: u64) -> End {
    let sets = [&[0][..], &[1], &[2], &[0, 1], &[1, 2], &[0, 2], &[0, 1, 2]];
    let comer = |set: &&[usize]| Comer { names: set.to_vec(), within: None };
    World::new(rules, slots, sets.iter().cycle().take(12).map(comer).collect(), schedule << 20).run()
}

/// Two for one name, each with another name within, and one for both names among them.
fn nested(rules: Rules, schedule: u64) -> End {
    let comer = |names: &[usize], within| Comer { names: names.to_vec(), within };
    let comers = vec![
        comer(&[0], None),
        comer(&[0], None),
        comer(&[0, 1], None),
        comer(&[1], Some(0)),
        comer(&[1], Some(1)),
    ];
    World::new(rules, 2, comers, schedule << 20).run()
}

#[track_caller]
fn all_end_well(slots: u32, claims: usize, schedules: u64) {
    for schedule in 0..schedules {
        let end = end(RULES, slots, claims, schedule);
        assert_eq!(end, End::Well, "schedule {schedule} of {claims} claims for {slots} slots");
    }
}

/// `DLOCK_TEST_SCHEDULES` says how many.
#[test]
fn every_schedule_ends_well() {
    let given = std::env::var("DLOCK_TEST_SCHEDULES").ok().and_then(|text| text.parse().ok());
    let schedules = given.unwrap_or(60);
    all_end_well(1, 4, schedules);
    all_end_well(2, 4, schedules);
    all_end_well(3, 6, schedules);
    all_end_well(3, 12, schedules / 6);
    for schedule in 0..schedules {
        for slots in 1..=3 {
            let end = of_several_names(RULES, slots, schedule);
            assert_eq!(end, End::Well, "schedule {schedule} of several names for {slots} slots");
        }
        assert_eq!(nested(RULES, schedule), End::Well, "schedule {schedule} of nested claims");
    }
}

#[test]
fn a_claim_that_waits_for_another_name_shuts_the_door() {
    let rules = Rules { by_name: false, ..RULES };
    let found = (0..100).find(|schedule| nested(rules, *schedule) == End::StoodStill);
    assert!(found.is_some(), "no schedule stood still");
}

/// One of the first schedules ends so.
#[track_caller]
fn finds(rules: Rules, slots: u32, claims: usize, defect: End, most: u64) {
    let found = (0..most).find(|schedule| end(rules, slots, claims, *schedule) == defect);
    assert!(found.is_some(), "{defect:?} was not found in {most} schedules");
}

#[test]
fn moves_without_a_door_stand_still() {
    finds(MOVES, 3, 6, End::StoodStill, 600);
}

#[test]
fn moves_let_tokens_fall() {
    finds(MOVES, 3, 6, End::TokenFell, 600);
}

#[test]
fn moves_give_one_slot_twice() {
    finds(MOVES, 2, 4, End::TwoOnOneSlot, 4_000);
}

#[test]
fn a_door_alone_is_not_enough() {
    finds(Rules { order_again: false, ..RULES }, 1, 4, End::StoodStill, 1_500);
}

#[test]
fn an_order_alone_is_not_enough() {
    finds(Rules { door: false, ..RULES }, 3, 6, End::StoodStill, 600);
}
