//! The table of the machine, cell by cell.

use std::time::Duration;

use super::*;
use crate::lock::{Error, ErrorKind, FencingToken, Granted, Holder};

const fn at(ms: u64) -> Moment {
    Moment::from_nanos(1_000_000_000_000 + ms * 1_000_000)
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn plan() -> Plan {
    Plan {
        started: at(0),
        wait: Wait::Forever,
        ttl: ms(30_000),
        grace: ms(5000),
        max_run: None,
        hold_at_least: Duration::ZERO,
        whole_tree: false,
    }
}

fn held() -> Event {
    let token = FencingToken::new(7).expect("not zero");
    let names = vec![Granted { token, slot: None }];
    Event::State(ClaimState::Held(Grant { names, counts_from: at(0) }))
}

fn waiting() -> Event {
    Event::State(ClaimState::Waiting { ahead: Some(1), holder: None })
}

fn lost() -> Event {
    Event::State(ClaimState::Lost(LossReason::SessionEnded))
}

fn asked() -> Event {
    Event::State(ClaimState::AskedToLeave { by: Holder::default() })
}

fn signal(signal: Signal) -> Event {
    Event::Signal { signal, everybody: false }
}

fn from_terminal(signal: Signal) -> Event {
    Event::Signal { signal, everybody: true }
}

fn window(end: u64) -> Event {
    Event::Renewed(Window { terminate_at: at(end - 2000), kill_at: at(end - 1000), guard_at: at(end - 500) })
}

fn refused(kind: ErrorKind) -> Event {
    Event::Refused(Error::new(kind, "memory", "enter the line", "why"))
}

/// A machine that got so far, with a lease that is renewed until 20 s.
fn machine(plan: Plan, events: Vec<Event>) -> Machine {
    let mut machine = Machine::new(plan);
    for event in events {
        machine.on(event, at(10));
    }
    machine
}

fn waiting_machine(plan: Plan) -> Machine {
    machine(plan, vec![Event::Entered, waiting()])
}

fn running_machine(plan: Plan) -> Machine {
    let machine = machine(plan, vec![Event::Entered, window(20_000), held(), Event::Go]);
    assert_eq!(*machine.phase(), Phase::Running);
    machine
}

fn exited(status: u8) -> Event {
    Event::CommandEnded(Outcome::Exited(status))
}

const LEAVE: [Action; 1] = [Action::Leave { succeeded: false }];

#[track_caller]
fn ends_as(mut machine: Machine, wanted: impl Fn(&Verdict) -> bool) {
    machine.on(Event::Left, at(19_999));
    assert_eq!(*machine.phase(), Phase::Over);
    let verdict = machine.into_verdict().expect("a verdict");
    assert!(wanted(&verdict), "{verdict:?}");
}

#[test]
fn an_ordinary_run_asks_the_front_before_it_starts_the_command() {
    let mut m = Machine::new(plan());
    assert_eq!(m.on(Event::Entered, at(1)), []);
    assert_eq!(m.on(waiting(), at(2)), []);
    m.on(window(20_000), at(3));
    assert_eq!(m.on(held(), at(3)), [Action::Ask]);
    assert_eq!(m.on(Event::Go, at(4)), [Action::Spawn]);
    assert_eq!(m.held_at(), Some(at(3)));
    assert_eq!(m.on(Event::MarksGone, at(5)), []);
    assert_eq!(m.on(exited(3), at(5)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Ran(Outcome::Exited(3))));
}

#[test]
fn only_a_status_of_zero_is_recorded_as_a_success() {
    for (status, succeeded) in [(0, true), (1, false)] {
        let mut m = running_machine(plan());
        m.on(Event::MarksGone, at(20));
        assert_eq!(m.on(exited(status), at(20)), [Action::Leave { succeeded }]);
    }
}

#[test]
fn one_attempt_leaves_when_somebody_is_ahead() {
    let mut m = machine(Plan { wait: Wait::Once, ..plan() }, vec![Event::Entered]);
    assert_eq!(m.on(waiting(), at(20)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Busy(None)));
}

#[test]
fn one_attempt_gives_the_service_a_sixth_of_the_ttl_and_at_most_five_seconds() {
    for (ttl, limit) in [(6000, 1000), (60_000, 5000)] {
        let plan = Plan { wait: Wait::Once, ttl: ms(ttl), ..plan() };
        assert_eq!(Machine::new(plan).wake_at(), at(limit));
    }
}

#[test]
fn a_wait_ends_on_time() {
    let mut m = waiting_machine(Plan { wait: Wait::AtMost(ms(700)), ..plan() });
    assert_eq!(m.wake_at(), at(700));
    assert_eq!(m.on(Event::Tick, at(699)), []);
    assert_eq!(m.on(Event::Tick, at(700)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::WaitOver(None)));
}

#[test]
fn a_service_that_never_answers_is_given_up_after_a_minute() {
    let mut m = Machine::new(plan());
    assert_eq!(m.on(refused(ErrorKind::Unavailable), at(100)), []);
    assert_eq!(m.wake_at(), at(350));
    assert_eq!(m.on(Event::Tick, at(350)), [Action::Enter]);
    assert_eq!(m.on(refused(ErrorKind::Unavailable), at(59_800)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Failed(e) if e.kind == ErrorKind::Unavailable));
}

#[test]
fn a_full_service_is_waited_for_as_long_as_the_wait_is() {
    let mut m = Machine::new(plan());
    for time in [100, 59_800, 90_000, 7_200_000] {
        assert_eq!(m.on(refused(ErrorKind::Full), at(time)), []);
        assert_eq!(m.wake_at(), at(time + 250));
        assert_eq!(m.on(Event::Tick, at(time + 250)), [Action::Enter]);
    }
    // It may be gone for a while as well.
    assert_eq!(m.on(refused(ErrorKind::Unavailable), at(7_300_000)), []);
    // That it is full is no busy lock.
    let mut m = Machine::new(Plan { wait: Wait::AtMost(ms(700)), ..plan() });
    assert_eq!(m.on(refused(ErrorKind::Full), at(100)), []);
    assert_eq!(m.on(Event::Tick, at(700)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::NotReached(Some(e)) if e.kind == ErrorKind::Full));
    let mut m = Machine::new(Plan { wait: Wait::Once, ..plan() });
    assert_eq!(m.on(refused(ErrorKind::Full), at(100)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Failed(e) if e.kind == ErrorKind::Full));
}

#[test]
fn an_attempt_that_is_never_answered_is_no_busy_lock() {
    for wait in [Wait::Forever, Wait::Once, Wait::AtMost(ms(700))] {
        let mut m = Machine::new(Plan { wait, ..plan() });
        assert_eq!(m.on(Event::Tick, at(60_000)), LEAVE);
        ends_as(m, |v| matches!(v, Verdict::NotReached(None)));
    }
    let mut m = Machine::new(Plan { wait: Wait::AtMost(ms(700)), ..plan() });
    m.on(refused(ErrorKind::Unavailable), at(100));
    assert_eq!(m.on(Event::Tick, at(700)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::NotReached(Some(e)) if e.kind == ErrorKind::Unavailable));
}

#[test]
fn one_attempt_whose_entry_is_lost_was_not_acquired() {
    let mut m = machine(Plan { wait: Wait::Once, ..plan() }, vec![Event::Entered]);
    assert_eq!(m.on(lost(), at(20)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Busy(None)));
}

#[test]
fn a_refusal_with_a_reason_is_final() {
    for kind in [ErrorKind::Denied, ErrorKind::Mismatch, ErrorKind::Deadlock, ErrorKind::Unwritable] {
        let mut m = Machine::new(plan());
        assert_eq!(m.on(refused(kind), at(1)), LEAVE);
        assert!(!m.may_have_entered());
        ends_as(m, |v| matches!(v, Verdict::Failed(e) if e.kind == kind));
    }
}

#[test]
fn before_the_command_runs_an_ending_signal_leaves_the_line() {
    for ending in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        for event in [signal(ending), from_terminal(ending)] {
            let mut m = waiting_machine(plan());
            assert_eq!(m.on(event, at(20)), LEAVE);
            assert_eq!(m.on(Event::Go, at(21)), [], "the command is never started afterwards");
            ends_as(m, |v| matches!(v, Verdict::Signalled(s) if *s == ending));
        }
        let mut asking = machine(plan(), vec![Event::Entered, window(20_000), held()]);
        assert_eq!(asking.on(signal(ending), at(20)), LEAVE);
        assert_eq!(asking.on(Event::Go, at(21)), []);
    }
}

#[test]
fn other_signals_mean_nothing_while_waiting() {
    let mut m = waiting_machine(plan());
    assert_eq!(m.on(signal(Signal::CONT), at(20)), []);
    assert_eq!(*m.phase(), Phase::Waiting);
}

#[test]
fn a_suspended_wait_leaves_the_line() {
    let mut m = waiting_machine(plan());
    assert_eq!(m.on(Event::Suspend, at(20)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Suspended));
}

#[test]
fn a_waiter_whose_entry_is_lost_joins_again() {
    let mut m = waiting_machine(plan());
    assert_eq!(m.on(lost(), at(20)), [Action::EnterAgain(LossReason::SessionEnded)]);
    assert_eq!(*m.phase(), Phase::Entering);
}

#[test]
fn a_hold_lost_before_the_start_joins_again() {
    let mut m = machine(plan(), vec![Event::Entered, window(20_000), held()]);
    assert_eq!(m.on(lost(), at(20)), [Action::EnterAgain(LossReason::SessionEnded)]);
    assert_eq!(m.held_at(), None);
}

#[test]
fn a_claim_that_is_refused_while_it_waits_leaves() {
    for kind in [ErrorKind::Mismatch, ErrorKind::Deadlock] {
        let mut m = waiting_machine(plan());
        assert_eq!(m.on(refused(kind), at(20)), LEAVE);
        ends_as(m, |v| matches!(v, Verdict::Failed(error) if error.kind == kind));
    }
}

#[test]
fn a_superseded_or_broken_waiter_leaves() {
    let mut m = waiting_machine(plan());
    let by = Holder::default();
    assert_eq!(m.on(Event::State(ClaimState::Superseded { by }), at(20)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Superseded(_)));
    let mut m = waiting_machine(plan());
    assert_eq!(m.on(asked(), at(20)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Broken { ran: false, .. }));
}

#[test]
fn a_front_that_does_not_answer_in_time_gets_no_command() {
    let mut m = machine(plan(), vec![Event::Entered, window(20_000), held()]);
    assert_eq!(m.wake_at(), at(18_000));
    m.on(window(40_000), at(10_000));
    assert_eq!(m.wake_at(), at(18_000), "a renewal does not keep others waiting for it");
    assert_eq!(m.on(Event::Tick, at(18_000)), LEAVE);
    let mut m = machine(plan(), vec![Event::Entered, window(20_000), held()]);
    assert_eq!(m.on(Event::Go, at(18_001)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Suspended));
}

#[test]
fn a_run_that_turned_out_unneeded_is_skipped() {
    let mut m = machine(plan(), vec![Event::Entered, window(20_000), held()]);
    assert_eq!(m.on(Event::Unneeded(ms(9)), at(20)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Skipped(_)));
}

#[test]
fn a_command_that_cannot_be_executed_releases() {
    let mut m = running_machine(plan());
    assert_eq!(m.on(Event::NotExecuted(std::io::ErrorKind::NotFound.into()), at(20)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::NotExecuted(_)));
}

#[test]
fn a_signal_goes_to_the_command_once() {
    let mut m = running_machine(plan());
    let usr1 = Signal::new(10).expect("exists");
    assert_eq!(m.on(signal(usr1), at(20)), [Action::Pass(usr1)]);
    assert_eq!(m.on(from_terminal(usr1), at(20)), []);
    assert_eq!(m.on(from_terminal(Signal::INT), at(20)), [], "Ctrl-C has reached it already");
    assert_eq!(*m.phase(), Phase::Running, "and starts no grace");
}

#[test]
fn an_ending_signal_starts_the_grace() {
    let mut m = running_machine(plan());
    assert_eq!(m.on(signal(Signal::INT), at(1000)), [Action::PassToGroup(Signal::INT)]);
    assert_eq!(m.wake_at(), at(6000));
    assert_eq!(m.on(Event::Tick, at(5999)), []);
    assert_eq!(m.on(Event::Tick, at(6000)), [Action::KillTree]);
    assert_eq!(m.on(Event::CommandEnded(Outcome::Signaled(Signal::KILL)), at(6001)), []);
    assert_eq!(m.on(Event::TreeGone, at(6002)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Interrupted(Outcome::Signaled(Signal::KILL))));
}

#[test]
fn what_left_the_group_is_terminated_when_the_command_has_ended() {
    let mut m = running_machine(plan());
    m.on(signal(Signal::TERM), at(1000));
    assert_eq!(m.on(exited(0), at(1100)), [Action::TerminateTree]);
    assert_eq!(m.on(Event::Tick, at(6000)), [Action::KillTree]);
    assert_eq!(m.on(Event::TreeGone, at(6001)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Interrupted(Outcome::Exited(0))));
}

#[test]
fn a_second_ending_signal_kills_unless_it_is_the_same_one_again() {
    let mut m = running_machine(plan());
    m.on(signal(Signal::TERM), at(1000));
    assert_eq!(m.on(signal(Signal::CONT), at(1100)), [Action::Pass(Signal::CONT)]);
    assert_eq!(m.on(signal(Signal::TERM), at(1200)), []);
    assert_eq!(m.on(signal(Signal::HUP), at(1201)), [Action::KillTree]);
    assert_eq!(m.on(signal(Signal::HUP), at(3000)), [], "once is enough");
}

#[test]
fn a_loss_kills_at_once() {
    let mut m = running_machine(plan());
    assert_eq!(m.on(lost(), at(20)), [Action::KillTree]);
    assert_eq!(m.on(Event::TreeGone, at(21)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Lost { reason: LossReason::SessionEnded, .. }));
}

#[test]
fn a_loss_overrides_a_grace() {
    let mut m = running_machine(plan());
    m.on(signal(Signal::TERM), at(20));
    assert_eq!(m.on(lost(), at(30)), [Action::KillTree]);
    m.on(Event::TreeGone, at(31));
    ends_as(m, |v| matches!(v, Verdict::Lost { .. }));
}

#[test]
fn a_lease_that_runs_out_terminates_and_then_kills_before_its_end() {
    let mut m = running_machine(plan());
    assert_eq!(m.wake_at(), at(18_000));
    assert_eq!(m.on(Event::Tick, at(18_000)), [Action::PassToGroup(Signal::TERM)]);
    assert_eq!(m.wake_at(), at(19_000));
    assert_eq!(m.on(Event::Tick, at(19_000)), [Action::KillTree]);
    m.on(Event::TreeGone, at(19_001));
    ends_as(m, |v| matches!(v, Verdict::Lost { reason: LossReason::Expired, .. }));
}

#[test]
fn a_renewal_moves_the_deadline() {
    let mut m = running_machine(plan());
    m.on(window(40_000), at(10_000));
    assert_eq!(m.wake_at(), at(38_000));
    assert_eq!(m.on(Event::Tick, at(19_000)), []);
}

#[test]
fn a_grace_longer_than_the_lease_is_fine_while_renewals_succeed() {
    let mut m = running_machine(Plan { grace: ms(60_000), ..plan() });
    m.on(signal(Signal::TERM), at(1000));
    m.on(window(40_000), at(10_000));
    assert_eq!(m.on(Event::Tick, at(20_000)), []);
    assert_eq!(m.on(Event::Tick, at(39_000)), [Action::KillTree], "but never longer than the lease");
}

#[test]
fn a_break_terminates_with_the_grace() {
    let mut m = running_machine(plan());
    assert_eq!(m.on(asked(), at(1000)), [Action::PassToGroup(Signal::TERM)]);
    assert_eq!(m.on(Event::Tick, at(6000)), [Action::KillTree]);
    m.on(Event::TreeGone, at(6001));
    ends_as(m, |v| matches!(v, Verdict::Broken { ran: true, .. }));
}

#[test]
fn max_run_counts_from_the_hold() {
    let mut m = running_machine(Plan { max_run: Some(ms(2000)), ..plan() });
    assert_eq!(m.wake_at(), at(2010));
    assert_eq!(m.on(Event::Tick, at(2010)), [Action::PassToGroup(Signal::TERM)]);
    m.on(exited(0), at(2020));
    m.on(Event::TreeGone, at(2020));
    ends_as(m, |v| matches!(v, Verdict::MaxRun));
}

#[test]
fn a_dead_front_ends_the_tree() {
    let mut m = running_machine(plan());
    assert_eq!(m.on(Event::FrontGone, at(20)), [Action::KillTree]);
    assert_eq!(m.on(Event::TreeGone, at(21)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Abandoned));
    let mut m = waiting_machine(plan());
    assert_eq!(m.on(Event::FrontGone, at(20)), LEAVE);
}

#[test]
fn nested_runs_keep_the_hold() {
    let mut m = running_machine(plan());
    assert_eq!(m.on(exited(0), at(20)), []);
    assert!(m.waits_for_marks());
    assert_eq!(m.on(Event::MarksGone, at(30)), [Action::Leave { succeeded: true }]);
}

#[test]
fn a_whole_tree_keeps_the_hold() {
    let mut m = running_machine(Plan { whole_tree: true, ..plan() });
    m.on(Event::MarksGone, at(20));
    assert_eq!(m.on(exited(5), at(20)), []);
    assert_eq!(m.on(Event::TreeGone, at(40)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Ran(Outcome::Exited(5))));
}

#[test]
fn a_signal_ends_what_a_whole_tree_left() {
    let mut m = running_machine(Plan { whole_tree: true, ..plan() });
    m.on(Event::MarksGone, at(20));
    m.on(exited(5), at(20));
    let actions = m.on(signal(Signal::TERM), at(100));
    assert_eq!(actions, [Action::PassToGroup(Signal::TERM), Action::TerminateTree]);
    assert_eq!(m.on(Event::Tick, at(5100)), [Action::KillTree]);
    m.on(Event::TreeGone, at(5101));
    ends_as(m, |v| matches!(v, Verdict::Interrupted(Outcome::Exited(5))));
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
        ends_as(m, |v| matches!(v, Verdict::Ran(Outcome::Exited(4))));
    }
}

#[test]
fn a_loss_after_the_command_has_ended_keeps_its_status() {
    let mut m = running_machine(Plan { hold_at_least: ms(60_000), ..plan() });
    m.on(Event::MarksGone, at(20));
    m.on(exited(4), at(20));
    assert_eq!(m.on(lost(), at(30)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Ran(Outcome::Exited(4))));
}

#[test]
fn a_loss_ends_what_a_whole_tree_left() {
    let mut m = running_machine(Plan { whole_tree: true, ..plan() });
    m.on(Event::MarksGone, at(20));
    m.on(exited(0), at(20));
    assert_eq!(m.on(lost(), at(30)), [Action::KillTree]);
    m.on(Event::TreeGone, at(31));
    ends_as(m, |v| matches!(v, Verdict::Lost { .. }));
}

#[test]
fn processes_that_may_not_be_signalled_keep_the_hold_unless_it_is_lost() {
    let mut m = running_machine(plan());
    m.on(signal(Signal::TERM), at(20));
    m.on(Event::Tick, at(5020));
    assert_eq!(m.on(Event::TreeDenied(vec![9]), at(5021)), []);
    let mut m = running_machine(plan());
    m.on(lost(), at(20));
    assert_eq!(m.on(Event::TreeDenied(vec![9]), at(21)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Lost { left, .. } if left == &[9]));
}
