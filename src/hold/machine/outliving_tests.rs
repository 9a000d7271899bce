//! Processes that outlive the command and keep the hold, or that dlock cannot kill.

use super::*;
use crate::supervise::signals::Signal;
use crate::supervise::tree_state::TreeState;

#[test]
fn nested_runs_are_asked_for_when_nothing_else_keeps_the_hold() {
    let long = Plan { hold_at_least: ms(1000), ..plan() };
    let mut whole = running_machine(Plan { whole_tree: true, ..plan() });
    whole.on(exited(0), at(20));
    assert!(!whole.waits_for_marks(), "the tree comes first");
    assert_eq!(whole.on(Event::TreeGone, at(30)), []);
    assert!(whole.waits_for_marks());

    let mut held = running_machine(long);
    held.on(exited(0), at(20));
    assert!(!held.waits_for_marks(), "the time comes first");
    assert_eq!(held.on(Event::Tick, at(1010)), []);
    assert!(held.waits_for_marks());
    assert_eq!(held.on(Event::MarksGone, at(1011)), [Action::Leave { succeeded: true }]);
}

#[test]
fn cut_short_hold_checks_for_nested_runs() {
    let ends = [signal(Signal::TERM), from_terminal(Signal::INT), asked(), lost(), Event::FrontGone];
    let mut m = running_machine(Plan { hold_at_least: ms(60_000), ..plan() });
    m.on(exited(0), at(20));
    for event in &ends {
        assert!(m.depends_on_marks(event, at(30)), "{event:?}");
    }
    assert!(m.depends_on_marks(&Event::Tick, at(18_000)), "the lease runs out");
    m.on(window(90_000), at(30));
    assert!(m.depends_on_marks(&Event::Tick, at(60_010)), "the time is over");
    for event in [Event::Tick, signal(Signal::CONT), Event::TreeGone, window(40_000)] {
        assert!(!m.depends_on_marks(&event, at(30)), "{event:?}");
    }
    m.on(Event::MarksGone, at(40));
    assert!(!m.depends_on_marks(&asked(), at(50)), "it is known");
    let mut whole = running_machine(Plan { hold_at_least: ms(60_000), whole_tree: true, ..plan() });
    whole.on(exited(0), at(20));
    assert!(!whole.depends_on_marks(&asked(), at(30)), "a process is there");
}

/// An event that ends a hold, and the verdict that follows.
type End = (fn() -> Event, u64, fn(&Verdict) -> bool);

const ENDS: [End; 4] = [
    (|| signal(Signal::TERM), 100, |v| matches!(v, Verdict::Interrupted(ExitStatus::Exited(0)))),
    (asked, 100, |v| matches!(v, Verdict::Broken { ran: true, .. })),
    (|| Event::Tick, 2010, |v| matches!(v, Verdict::MaxRun)),
    (|| Event::FrontGone, 100, |v| matches!(v, Verdict::Abandoned)),
];

#[test]
fn outside_nested_runs_keep_the_hold_of_an_ended_command() {
    for (event, when, verdict) in ENDS {
        let mut m = running_machine(Plan { max_run: Some(ms(2000)), ..plan() });
        assert_ne!(m.on(event(), at(when)), []);
        m.on(exited(0), at(2020));
        assert!(!m.waits_for_marks(), "the tree comes first");
        assert_eq!(m.on(Event::TreeGone, at(2030)), []);
        assert!(m.waits_for_marks());
        assert_eq!(m.wake_at(), at(19_000), "no process is left to be killed, but the lease may run out");
        assert_eq!(m.on(signal(Signal::INT), at(3000)), []);
        assert_eq!(m.on(Event::Tick, at(8000)), []);
        assert_eq!(m.on(Event::MarksGone, at(9000)), LEAVE);
        ends_as(m, verdict);
    }
}

#[test]
fn outside_nested_runs_keep_the_hold_on_a_later_end_request() {
    for (event, when, verdict) in ENDS {
        let mut m = running_machine(Plan { max_run: Some(ms(2000)), ..plan() });
        m.on(exited(0), at(20));
        m.on(Event::TreeGone, at(30));
        assert_eq!(m.on(event(), at(when)), [], "no process is left that could be killed");
        assert!(m.waits_for_marks());
        assert!(m.wake_at() > at(when), "and nothing is due");
        assert_eq!(m.on(Event::MarksGone, at(9000)), LEAVE);
        ends_as(m, verdict);
    }
}

#[test]
fn lock_lost_under_outside_nested_runs_is_left() {
    for (event, when) in [(lost as fn() -> Event, 18_040), (|| Event::Tick, 19_000)] {
        let mut m = running_machine(plan());
        m.on(exited(0), at(20));
        m.on(Event::TreeGone, at(30));
        assert_eq!(m.on(Event::Tick, at(18_000)), [], "no process is left that could be killed");
        assert!(m.waits_for_marks());
        assert_eq!(m.on(event(), at(when)), LEAVE);
        ends_as(m, |v| matches!(v, Verdict::Lost { tree: TreeState::Gone, .. }));
        let mut m = running_machine(plan());
        m.on(signal(Signal::TERM), at(15));
        m.on(exited(0), at(20));
        m.on(Event::TreeGone, at(30));
        assert_eq!(m.on(event(), at(when)), LEAVE);
        ends_as(m, |v| matches!(v, Verdict::Lost { tree: TreeState::Gone, .. }));
    }
}

#[test]
fn a_whole_tree_keeps_the_hold() {
    let mut m = running_machine(Plan { whole_tree: true, ..plan() });
    m.on(Event::MarksGone, at(20));
    assert_eq!(m.on(exited(5), at(20)), []);
    assert_eq!(m.on(Event::TreeGone, at(40)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Ran(ExitStatus::Exited(5))));
}

#[test]
fn signal_ends_the_rest_of_a_whole_tree() {
    let mut m = running_machine(Plan { whole_tree: true, ..plan() });
    m.on(Event::MarksGone, at(20));
    m.on(exited(5), at(20));
    let actions = m.on(signal(Signal::TERM), at(100));
    assert_eq!(actions, [Action::PassToGroup(Signal::TERM), Action::TerminateTree]);
    assert_eq!(m.on(Event::Tick, at(5100)), [Action::KillTree]);
    m.on(Event::TreeGone, at(5101));
    ends_as(m, |v| matches!(v, Verdict::Interrupted(ExitStatus::Exited(5))));
}

#[test]
fn hold_at_least_holds_until_then_or_until_a_signal() {
    let long = Plan { hold_at_least: ms(1000), ..plan() };
    let mut m = running_machine(long);
    m.on(Event::MarksGone, at(20));
    assert_eq!(m.on(exited(0), at(20)), []);
    assert_eq!(m.wake_at(), at(1010));
    assert_eq!(m.on(Event::Tick, at(1010)), [Action::Leave { succeeded: true }]);
    for event in [signal(Signal::TERM), from_terminal(Signal::INT)] {
        let mut m = running_machine(long);
        m.on(Event::MarksGone, at(20));
        m.on(exited(4), at(20));
        assert_eq!(m.on(event, at(30)), LEAVE);
        ends_as(m, |v| matches!(v, Verdict::Ran(ExitStatus::Exited(4))));
    }
}

#[test]
fn hold_cut_short_after_the_command_keeps_its_status() {
    for (event, why) in
        [(lost(), CutShort::Lost(LossReason::SessionEnded)), (asked(), CutShort::Broken(Holder::default()))]
    {
        let mut m = running_machine(Plan { hold_at_least: ms(60_000), ..plan() });
        m.on(Event::MarksGone, at(20));
        m.on(exited(4), at(20));
        assert!(m.command.is_some());
        assert_eq!(m.on(event, at(30)), LEAVE);
        assert_eq!(m.cut_short, Some(why));
        ends_as(m, |v| matches!(v, Verdict::Ran(ExitStatus::Exited(4))));
    }
}

#[test]
fn unsignallable_processes_keep_the_hold_until_a_loss() {
    let mut m = running_machine(plan());
    m.on(signal(Signal::TERM), at(20));
    m.on(Event::Tick, at(5020));
    assert_eq!(m.on(Event::TreeRemains(alive(9)), at(5021)), []);
    assert_eq!(m.on(Event::TreeRemains(TreeState::Unknown), at(6021)), []);
    let mut m = running_machine(plan());
    m.on(lost(), at(20));
    assert_eq!(m.on(Event::TreeRemains(alive(9)), at(21)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Lost { tree, .. } if *tree == alive(9)));
}

#[test]
fn late_renewed_lease_is_kept_over_unkillable_processes() {
    let mut m = running_machine(plan());
    assert_eq!(m.on(Event::Tick, at(18_000)), [Action::PassToGroup(Signal::TERM)]);
    assert_eq!(m.on(window(40_000), at(18_100)), []);
    assert_eq!(m.on(Event::Tick, at(19_000)), [Action::KillTree], "what was begun is carried out");
    assert_eq!(m.on(Event::TreeRemains(alive(9)), at(19_001)), [], "there is a lease to renew");
    assert_eq!(m.on(window(60_000), at(30_000)), []);
    assert_eq!(m.on(Event::TreeRemains(alive(9)), at(39_500)), []);
    assert!(m.keeps_what_remains(at(39_500)));
    assert_eq!(m.wake_at(), at(59_000), "it may run out again");
    let mut ended = running_machine(plan());
    ended.on(Event::MarksGone, at(20));
    ended.on(Event::Tick, at(18_000));
    ended.on(window(40_000), at(18_100));
    ended.on(Event::Tick, at(19_000));
    assert_eq!(ended.on(Event::TreeRemains(alive(9)), at(19_001)), []);
    assert_eq!(ended.on(Event::TreeGone, at(30_000)), LEAVE);
    ends_as(ended, |v| matches!(v, Verdict::Lost { reason: LossReason::Expired, tree: TreeState::Gone }));
    assert_eq!(m.on(Event::Tick, at(59_000)), [Action::KillTree]);
    assert_eq!(m.on(Event::TreeRemains(alive(9)), at(59_001)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Lost { reason: LossReason::Expired, tree } if *tree == alive(9)));
}

#[test]
fn expiring_lease_over_unkillable_processes_is_lost() {
    for event in [signal(Signal::TERM), asked()] {
        let mut m = running_machine(plan());
        m.on(event, at(20));
        assert_eq!(m.on(Event::Tick, at(5020)), [Action::KillTree]);
        assert_eq!(m.on(Event::TreeRemains(alive(9)), at(5021)), []);
        assert_eq!(m.wake_at(), at(19_000));
        assert_eq!(m.on(Event::Tick, at(19_000)), [Action::KillTree]);
        assert!(m.wake_at() > at(60_000), "the round tells");
        assert_eq!(m.on(Event::TreeRemains(alive(9)), at(19_001)), LEAVE);
        ends_as(m, |v| matches!(v, Verdict::Lost { tree, .. } if *tree == alive(9)));
    }
}

#[test]
fn late_renewed_lease_is_kept_for_outside_nested_runs() {
    let mut m = running_machine(plan());
    m.on(Event::Tick, at(18_000));
    m.on(window(40_000), at(18_100));
    assert_eq!(m.on(exited(0), at(18_200)), [Action::TerminateTree]);
    assert_eq!(m.on(Event::TreeGone, at(18_300)), []);
    assert!(m.waits_for_marks());
    assert_eq!(m.wake_at(), at(39_000), "it may run out again");
    assert_eq!(m.on(Event::Tick, at(30_000)), []);
    assert_eq!(m.on(Event::MarksGone, at(30_001)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Lost { reason: LossReason::Expired, tree: TreeState::Gone }));
}

#[test]
fn lost_lock_is_not_released_over_possible_survivors() {
    let mut m = running_machine(plan());
    m.on(Event::MarksGone, at(20));
    m.on(lost(), at(20));
    assert!(!m.keeps_what_remains(at(21)), "there is nothing left to keep");
    m.on(Event::TreeRemains(alive(9)), at(21));
    assert!(!m.may_give_back(), "the tree");
    let mut nested = running_machine(plan());
    nested.on(lost(), at(20));
    assert_eq!(nested.on(Event::TreeGone, at(21)), LEAVE);
    assert!(!nested.may_give_back(), "nested runs elsewhere");
    let mut empty = running_machine(plan());
    empty.on(lost(), at(20));
    empty.on(Event::MarksGone, at(21));
    assert_eq!(empty.on(Event::TreeGone, at(21)), LEAVE);
    assert!(empty.may_give_back());
}

#[test]
fn expiring_lease_terminates_then_kills_survivors() {
    for whole_tree in [true, false] {
        let mut m = running_machine(Plan { whole_tree, ..plan() });
        if whole_tree {
            m.on(Event::MarksGone, at(20));
        }
        m.on(exited(0), at(20));
        assert_eq!(m.wake_at(), at(18_000));
        assert_eq!(m.on(Event::Tick, at(18_000)), [Action::TerminateTree]);
        assert_eq!(m.wake_at(), at(19_000));
        assert_eq!(m.on(Event::Tick, at(19_000)), [Action::KillTree]);
        assert_eq!(m.on(Event::TreeGone, at(19_001)), LEAVE);
        ends_as(m, |v| matches!(v, Verdict::Lost { reason: LossReason::Expired, .. }));
        let mut late = running_machine(Plan { whole_tree, ..plan() });
        late.on(exited(0), at(20));
        assert_eq!(late.on(Event::Tick, at(19_000)), [Action::KillTree], "there is no time left");
    }
}

fn alive(pid: i32) -> TreeState {
    TreeState::Alive([pid].into_iter().collect())
}

fn killed() -> Event {
    Event::CommandEnded(ExitStatus::Signaled(Signal::KILL))
}

#[test]
fn rest_of_a_killed_command_is_ended_before_the_release() {
    let mut m = running_machine(plan());
    m.on(Event::MarksGone, at(20));
    assert_eq!(m.on(killed(), at(20)), [Action::TerminateTree]);
    assert_eq!(m.on(Event::Tick, at(5020)), [Action::KillTree]);
    assert_eq!(m.on(Event::TreeGone, at(5021)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Ran(ExitStatus::Signaled(Signal::KILL))));
}

#[test]
fn hold_at_least_applies_to_a_killed_command() {
    let mut m = running_machine(Plan { hold_at_least: ms(60_000), ..plan() });
    m.on(Event::MarksGone, at(20));
    m.on(killed(), at(20));
    assert_eq!(m.on(Event::TreeGone, at(21)), []);
    assert_eq!(m.on(Event::Tick, at(60_010)), LEAVE);
    let mut m = running_machine(Plan { hold_at_least: ms(60_000), ..plan() });
    m.on(Event::MarksGone, at(20));
    m.on(killed(), at(20));
    m.on(signal(Signal::TERM), at(21));
    assert_eq!(m.on(Event::TreeGone, at(22)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Ran(ExitStatus::Signaled(Signal::KILL))));
}

#[test]
fn break_while_stopping_the_rest_of_a_killed_command_counts() {
    let mut m = running_machine(Plan { hold_at_least: ms(60_000), ..plan() });
    m.on(Event::MarksGone, at(20));
    m.on(killed(), at(20));
    assert_eq!(m.on(asked(), at(30)), [], "the rest is being stopped already");
    assert_eq!(m.on(Event::Tick, at(5020)), [Action::KillTree]);
    assert_eq!(m.on(Event::TreeGone, at(5021)), LEAVE);
    assert_eq!(m.cut_short, Some(CutShort::Broken(Holder::default())));
    ends_as(m, |v| matches!(v, Verdict::Ran(ExitStatus::Signaled(Signal::KILL))));
}

#[test]
fn released_lock_waits_for_nested_runs_and_records_no_success() {
    let mut m = running_machine(plan());
    assert_eq!(m.on(Event::Released, at(20)), []);
    assert!(m.waits_for_marks());
    assert_eq!(m.on(Event::MarksGone, at(30)), [Action::Leave { succeeded: false }]);
    ends_as(m, |v| matches!(v, Verdict::Ran(ExitStatus::Exited(0))));
    let mut m = running_machine(plan());
    m.on(Event::MarksGone, at(20));
    assert_eq!(m.on(Event::Released, at(21)), [Action::Leave { succeeded: false }]);
}
