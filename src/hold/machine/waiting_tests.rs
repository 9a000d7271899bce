//! Up to the start of the command.

use super::*;
use crate::supervise::signals::Signal;

#[test]
fn an_ordinary_run_asks_the_front_before_it_starts_the_command() {
    let mut m = Machine::new(plan());
    assert_eq!(m.on(Event::Entered, at(1)), []);
    assert_eq!(m.on(waiting(), at(2)), []);
    m.on(window(20_000), at(3));
    assert_eq!(m.on(held(), at(3)), [Action::Ask]);
    assert_eq!(m.on(Event::Go, at(4)), [Action::Spawn]);
    assert_eq!(m.held_at, Some(at(3)));
    assert_eq!(m.on(Event::MarksGone, at(5)), []);
    assert_eq!(m.on(exited(3), at(5)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Ran(ExitStatus::Exited(3))));
}

#[test]
fn postponed_attempt_waits_and_ends_as_any_wait() {
    let mut m = Machine::new(Plan { started: at(5000), ..plan() });
    assert_eq!(m.begin(true, at(10)), []);
    assert_eq!((m.wake_at(), m.give_up_at()), (at(5000), at(65_000)));
    assert_eq!(m.on(Event::Tick, at(4999)), []);
    assert_eq!(m.on(Event::Tick, at(5000)), [Action::Enter]);
    let mut m = Machine::new(Plan { started: at(5000), ..plan() });
    m.begin(true, at(10));
    assert!(!m.told_to_end);
    assert_eq!(m.on(signal(Signal::TERM), at(10)), LEAVE);
    assert!(m.told_to_end);
    ends_as(m, |v| matches!(v, Verdict::Signalled(_)));
    let mut m = running_machine(plan());
    m.on(from_terminal(Signal::INT), at(20));
    assert!(m.told_to_end, "Ctrl-C is for dlock as well");
}

#[test]
fn try_leaves_when_another_claim_is_ahead() {
    let mut m = machine(Plan { wait: Wait::Once, ..plan() }, vec![Event::Entered]);
    assert_eq!(m.on(waiting(), at(20)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Busy(None)));
}

#[test]
fn first_answer_is_awaited_for_a_part_of_the_ttl_or_a_minute() {
    for (wait, ttl, limit) in
        [(Wait::Once, 6000, 1000), (Wait::Once, 60_000, 5000), (Wait::Forever, 3_600_000, 60_000)]
    {
        let plan = Plan { wait, ttl: ms(ttl), ..plan() };
        assert_eq!(Machine::new(plan).give_up_at(), at(limit));
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
fn holder_in_a_timeout_comes_from_the_last_look() {
    let failed = |kind| Event::Unseen(Error::new(kind, "why"));
    let seen = || ClaimState::Waiting { ahead: Some(1), holder: Some(Box::default()) };
    let over = |events: Vec<Event>| {
        let mut m = waiting_machine(Plan { wait: Wait::AtMost(ms(700)), ..plan() });
        for event in [Event::State(seen())].into_iter().chain(events) {
            assert_eq!(m.on(event, at(20)), []);
        }
        assert_eq!(m.on(Event::Tick, at(700)), LEAVE);
        m
    };
    ends_as(over(vec![]), |v| matches!(v, Verdict::WaitOver(Some(_))));
    ends_as(over(vec![failed(ErrorKind::Unavailable)]), |v| matches!(v, Verdict::WaitOver(None)));
    for news in [window(20_000), Event::State(seen())] {
        let m = over(vec![failed(ErrorKind::Denied), news]);
        ends_as(m, |v| matches!(v, Verdict::WaitOver(Some(_))));
    }
    // A service that refuses further requests is not a busy lock.
    let m = over(vec![failed(ErrorKind::Denied)]);
    ends_as(m, |v| matches!(v, Verdict::Failed(e) if e.kind == ErrorKind::Denied));
}

#[test]
fn silent_service_is_abandoned_after_a_minute() {
    let mut m = Machine::new(plan());
    assert_eq!(m.on(refused(ErrorKind::Unavailable), at(100)), []);
    assert_eq!(m.wake_at(), at(350));
    assert_eq!(m.on(Event::Tick, at(350)), [Action::Enter]);
    assert_eq!(m.on(refused(ErrorKind::Unavailable), at(59_800)), []);
    assert_eq!(m.on(Event::Tick, at(59_999)), []);
    assert_eq!(m.on(Event::Tick, m.wake_at()), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::NotReached(Some(e)) if e.kind == ErrorKind::Unavailable));
}

#[test]
fn a_refusing_service_is_waited_for_to_the_end() {
    let mut m = Machine::new(Plan { wait: Wait::AtMost(ms(700)), ..plan() });
    assert_eq!(m.on(refused(ErrorKind::Unavailable), at(500)), []);
    assert_eq!(m.wake_at(), at(700));
    assert_eq!(m.on(Event::Tick, at(700)), LEAVE, "an attempt without time tells nothing");
    ends_as(m, |v| matches!(v, Verdict::NotReached(Some(_))));
}

#[test]
fn a_later_keeper_has_the_whole_minute_for_its_first_answer() {
    let mut m = Machine::new(plan());
    assert_eq!(m.begin(true, at(70_000)), [Action::Enter]);
    assert_eq!(m.give_up_at(), at(130_000));
    assert_eq!(m.on(refused(ErrorKind::Unavailable), at(70_001)), [], "it tries again");
    let mut m = Machine::new(Plan { wait: Wait::AtMost(ms(80_000)), ..plan() });
    assert_eq!(m.begin(true, at(70_000)), [Action::Enter]);
    assert_eq!(m.give_up_at(), at(80_000), "the wait counts from the start of dlock");
}

#[test]
fn wait_over_while_suspended_times_out() {
    let plan = Plan { wait: Wait::AtMost(ms(700)), ..plan() };
    let mut m = Machine::new(plan);
    assert_eq!(m.begin(true, at(700)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::WaitOver(None)));
    assert_eq!(Machine::new(plan).begin(true, at(699)), [Action::Enter]);
    assert_eq!(Machine::new(plan).begin(false, at(700)), [Action::Enter], "the first keeper asks once");
    let once = Machine::new(Plan { wait: Wait::Once, ..plan }).begin(true, at(60_000));
    assert_eq!(once, [Action::Enter]);
}

#[test]
fn a_full_service_is_waited_for_as_long_as_the_wait_is() {
    let mut m = Machine::new(plan());
    for time in [100, 59_800, 90_000, 7_200_000] {
        assert_eq!(m.on(refused(ErrorKind::Full), at(time)), []);
        assert_eq!(m.wake_at(), at(time + 250));
        assert_eq!(m.on(Event::Tick, at(time + 250)), [Action::Enter]);
    }
    // The service may also be gone for a while.
    assert_eq!(m.on(refused(ErrorKind::Unavailable), at(7_300_000)), []);
    // A full service is not a busy lock.
    let mut m = Machine::new(Plan { wait: Wait::AtMost(ms(700)), ..plan() });
    assert_eq!(m.on(refused(ErrorKind::Full), at(100)), []);
    assert_eq!(m.on(Event::Tick, at(350)), [Action::Enter]);
    assert_eq!(m.on(refused(ErrorKind::Full), at(700)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::NotReached(Some(e)) if e.kind == ErrorKind::Full));
    let mut m = Machine::new(Plan { wait: Wait::Once, ..plan() });
    assert_eq!(m.on(refused(ErrorKind::Full), at(100)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Failed(e) if e.kind == ErrorKind::Full));
}

#[test]
fn unanswered_attempt_is_no_busy_lock() {
    for wait in [Wait::Forever, Wait::Once, Wait::AtMost(ms(700))] {
        let mut m = Machine::new(Plan { wait, ..plan() });
        assert_eq!(m.on(Event::Tick, m.wake_at()), LEAVE);
        ends_as(m, |v| matches!(v, Verdict::NotReached(None)));
    }
}

#[test]
fn attempt_gives_its_own_reason_at_its_deadline() {
    for wait in [Wait::Once, Wait::AtMost(ms(700))] {
        let mut m = Machine::new(Plan { wait, ..plan() });
        let over = m.give_up_at();
        assert!(m.wake_at() > over, "no timer races the attempt's own");
        assert_eq!(m.on(Event::Tick, over), []);
        assert_eq!(m.on(refused(ErrorKind::Unavailable), over), LEAVE);
        ends_as(m, |v| matches!(v, Verdict::NotReached(Some(_)) | Verdict::Failed(_)));
    }
    // If the last attempt gives no reason, the reason of the attempt before counts.
    let mut m = Machine::new(Plan { wait: Wait::AtMost(ms(700)), ..plan() });
    m.on(refused(ErrorKind::Unavailable), at(100));
    assert_eq!(m.on(Event::Tick, at(350)), [Action::Enter]);
    assert_eq!(m.on(Event::Tick, m.wake_at()), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::NotReached(Some(e)) if e.kind == ErrorKind::Unavailable));
}

#[test]
fn waiter_unable_to_rejoin_in_time_times_out() {
    for last in [refused(ErrorKind::Unavailable), Event::Tick] {
        let mut m = waiting_machine(Plan { wait: Wait::AtMost(ms(700)), ..plan() });
        assert_eq!(m.on(lost(), at(20)), [Action::EnterAgain(LossReason::SessionEnded)]);
        let now = m.wake_at();
        assert_eq!(m.on(last, now), LEAVE);
        ends_as(m, |v| matches!(v, Verdict::WaitOver(None)));
    }
}

#[test]
fn try_with_a_lost_entry_is_busy() {
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
fn run_without_a_claim_withdraws_an_earlier_entry() {
    for (last, wanted) in [
        (
            (|| refused(ErrorKind::Denied)) as fn() -> Event,
            (|v| matches!(v, Verdict::Failed(_))) as fn(&Verdict) -> bool,
        ),
        (|| Event::Unneeded(ms(9)), |v| matches!(v, Verdict::Skipped(_))),
    ] {
        let mut m = Machine::new(plan());
        assert_eq!(m.on(refused(ErrorKind::Unavailable), at(1)), []);
        assert_eq!(m.on(Event::Tick, at(251)), [Action::Enter]);
        assert_eq!(m.on(last(), at(300)), LEAVE);
        assert!(m.may_have_entered());
        ends_as(m, wanted);
        let mut m = Machine::new(plan());
        assert_eq!(m.on(last(), at(1)), LEAVE);
        assert!(!m.may_have_entered(), "it asked first");
    }
}

#[test]
fn before_the_command_runs_an_ending_signal_leaves_the_queue() {
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
fn superseding_waiter_enters_once() {
    let superseding = || waiting_machine(Plan { supersede: true, ..plan() });
    let mut m = superseding();
    assert_eq!(m.on(lost(), at(20)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::PlaceLost(Some(LossReason::SessionEnded))));
    let mut m = superseding();
    assert_eq!(m.on(signal(Signal::TSTP), at(20)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::PlaceLost(None)));
    let mut m = machine(Plan { supersede: true, ..plan() }, vec![Event::Entered, window(20_000), held()]);
    assert_eq!(m.on(Event::Go, at(18_001)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::PlaceLost(None)));
}

#[test]
fn a_hold_lost_before_the_start_joins_again() {
    let mut m = machine(plan(), vec![Event::Entered, window(20_000), held()]);
    assert_eq!(m.on(lost(), at(20)), [Action::EnterAgain(LossReason::SessionEnded)]);
    assert_eq!(m.held_at, None);
}

#[test]
fn claim_refused_while_waiting_leaves() {
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
    let mut m = machine(plan(), vec![Event::Entered, window(20_000), held()]);
    let by = Holder::default();
    assert_eq!(m.on(Event::State(ClaimState::Superseded { by }), at(20)), LEAVE, "before the command starts");
    let mut m = waiting_machine(plan());
    assert_eq!(m.on(asked(), at(20)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Broken { ran: false, .. }));
    let mut m = waiting_machine(plan());
    let forced = ClaimState::Lost(LossReason::Evicted(Some(Holder::default())));
    assert_eq!(m.on(Event::State(forced), at(20)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Broken { ran: false, .. }));
}

#[test]
fn late_front_gets_no_command() {
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
fn late_grant_is_held_only_after_a_confirmed_renewal() {
    let mut m = waiting_machine(plan());
    m.on(window(20_000), at(20));
    // After an outage: so late that the command would have to be stopped at once.
    assert_eq!(m.on(held(), at(19_000)), []);
    assert_eq!((&m.phase, m.held_at, m.grant()), (&Phase::Confirming, None, None));
    assert_eq!(m.on(Event::Go, at(19_100)), [], "nothing starts");
    assert_eq!(m.on(window(20_000), at(19_200)), [], "an answer to an older renewal");
    assert_eq!(m.on(window(49_000), at(19_500)), [Action::Ask]);
    assert_eq!((m.held_at, m.wake_at()), (Some(at(19_500)), at(47_000)));
    assert_eq!(m.on(Event::Go, at(19_600)), [Action::Spawn]);
}

#[test]
fn unconfirmed_hold_is_no_hold() {
    let confirming = |wait| {
        let mut m = waiting_machine(Plan { wait, ..plan() });
        m.on(window(20_000), at(20));
        assert_eq!(m.on(held(), at(12_000)), []);
        m
    };
    let mut m = confirming(Wait::Forever);
    assert_eq!(m.wake_at(), Moment::NEVER, "the service decides, not a timer");
    assert_eq!(m.on(lost(), at(19_000)), [Action::EnterAgain(LossReason::SessionEnded)]);
    assert_eq!((&m.phase, m.grant()), (&Phase::Entering, None));
    let mut m = confirming(Wait::AtMost(ms(15_000)));
    assert_eq!(m.on(Event::Tick, m.wake_at()), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::WaitOver(None)));
    let mut m = confirming(Wait::Forever);
    assert_eq!(m.on(signal(Signal::TERM), at(19_000)), LEAVE);
    let mut m = confirming(Wait::Forever);
    assert_eq!(m.on(asked(), at(19_000)), LEAVE);
}
