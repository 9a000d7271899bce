//! From the start of the command on.

use super::*;
use crate::supervise::signals::Signal;

#[test]
fn a_signal_goes_to_the_command_once() {
    let mut m = running_machine(plan());
    let usr1 = Signal::new(10).expect("exists");
    assert_eq!(m.on(signal(usr1), at(20)), [Action::Pass(usr1)]);
    assert_eq!(m.on(from_terminal(usr1), at(20)), []);
    assert_eq!(m.on(from_terminal(Signal::INT), at(20)), [], "Ctrl-C has reached it already");
    assert_eq!(m.phase, Phase::Running, "and starts no grace");
}

#[test]
fn an_ending_signal_starts_the_grace() {
    let mut m = running_machine(plan());
    m.on(Event::MarksGone, at(10));
    assert_eq!(m.on(signal(Signal::INT), at(1000)), [Action::PassToGroup(Signal::INT)]);
    assert_eq!(m.wake_at(), at(6000));
    assert_eq!(m.on(Event::Tick, at(5999)), []);
    assert_eq!(m.on(Event::Tick, at(6000)), [Action::KillTree]);
    assert_eq!(m.on(Event::CommandEnded(ExitStatus::Signaled(Signal::KILL)), at(6001)), []);
    assert_eq!(m.on(Event::TreeGone, at(6002)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Interrupted(ExitStatus::Signaled(Signal::KILL))));
}

#[test]
fn processes_outside_the_group_are_terminated_at_the_end() {
    let mut m = running_machine(plan());
    m.on(Event::MarksGone, at(10));
    m.on(signal(Signal::TERM), at(1000));
    assert_eq!(m.on(exited(0), at(1100)), [Action::TerminateTree]);
    assert_eq!(m.on(Event::Tick, at(6000)), [Action::KillTree]);
    assert_eq!(m.on(Event::TreeGone, at(6001)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Interrupted(ExitStatus::Exited(0))));
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
fn release_during_an_end_request_spares_the_command() {
    for reason in [signal(Signal::TERM), asked()] {
        let mut m = running_machine(plan());
        m.on(reason, at(1000));
        assert_eq!(m.on(Event::Released, at(1100)), [], "nested runs are waited for");
        assert_eq!(m.phase, Phase::Lingering);
        assert_eq!(m.on(Event::Tick, at(6000)), [], "the grace is over, and no process is killed");
        assert_eq!(m.on(Event::MarksGone, at(6001)), [Action::Leave { succeeded: false }]);
        ends_as(m, |v| matches!(v, Verdict::Ran(ExitStatus::Exited(0))));
    }
}

#[test]
fn release_spares_no_tree_under_kill_or_without_a_lease() {
    let mut killed = running_machine(plan());
    killed.on(signal(Signal::TERM), at(1000));
    assert_eq!(killed.on(Event::Tick, at(6000)), [Action::KillTree]);
    let mut expiring = running_machine(plan());
    assert_eq!(expiring.on(Event::Tick, at(18_000)), [Action::PassToGroup(Signal::TERM)]);
    for mut m in [killed, expiring] {
        assert_eq!(m.on(Event::Released, at(18_001)), []);
        assert!(matches!(&m.phase, Phase::Stopping(_)));
    }
}

#[test]
fn a_loss_kills_every_process_of_the_command_at_once() {
    let killed = || Event::CommandEnded(ExitStatus::Signaled(Signal::KILL));
    for (whole_tree, before) in [
        (false, vec![]),
        (false, vec![signal(Signal::TERM)]),
        (false, vec![killed()]),
        (true, vec![Event::MarksGone, exited(0)]),
    ] {
        let mut m = running_machine(Plan { whole_tree, ..plan() });
        for event in before {
            m.on(event, at(20));
        }
        assert_eq!(m.on(lost(), at(30)), [Action::KillTree]);
        assert_eq!(m.on(Event::TreeGone, at(31)), LEAVE);
        ends_as(m, |v| matches!(v, Verdict::Lost { reason: LossReason::SessionEnded, .. }));
    }
}

#[test]
fn expiring_lease_terminates_then_kills_before_its_end() {
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
    m.on(Event::MarksGone, at(10));
    assert_eq!(m.on(asked(), at(1000)), [Action::PassToGroup(Signal::TERM)]);
    assert_eq!(m.on(Event::Tick, at(6000)), [Action::KillTree]);
    m.on(Event::TreeGone, at(6001));
    ends_as(m, |v| matches!(v, Verdict::Broken { ran: true, .. }));
}

#[test]
fn max_run_counts_from_the_hold() {
    let mut m = running_machine(Plan { max_run: Some(ms(2000)), ..plan() });
    m.on(Event::MarksGone, at(10));
    assert_eq!(m.wake_at(), at(2010));
    assert_eq!(m.on(Event::Tick, at(2010)), [Action::PassToGroup(Signal::TERM)]);
    m.on(exited(0), at(2020));
    m.on(Event::TreeGone, at(2020));
    ends_as(m, |v| matches!(v, Verdict::MaxRun));
}

#[test]
fn stop_by_dlock_sends_the_configured_signal_first() {
    let int = || Plan { signal: Signal::INT, max_run: Some(ms(2000)), ..plan() };
    for (event, when) in [(asked(), 1000), (Event::Tick, 2010)] {
        let mut m = running_machine(int());
        assert_eq!(m.on(event, at(when)), [Action::PassToGroup(Signal::INT)]);
        assert_eq!(m.on(exited(0), at(when + 1)), [Action::TerminateTree], "the rest as ever");
    }
    let mut m = running_machine(Plan { max_run: None, ..int() });
    assert_eq!(m.on(Event::Tick, at(18_000)), [Action::PassToGroup(Signal::INT)], "the lease runs out");
    let mut m = running_machine(int());
    assert_eq!(m.on(signal(Signal::TERM), at(20)), [Action::PassToGroup(Signal::TERM)], "passed on as it is");
}

#[test]
fn first_ending_signal_is_passed_on_during_a_stop() {
    let mut m = running_machine(plan());
    assert_eq!(m.on(asked(), at(1000)), [Action::PassToGroup(Signal::TERM)]);
    assert_eq!(m.on(signal(Signal::HUP), at(1100)), [Action::PassToGroup(Signal::HUP)]);
    assert_eq!(m.on(signal(Signal::HUP), at(2000)), [Action::KillTree]);
    let mut ended = running_machine(plan());
    ended.on(asked(), at(1000));
    ended.on(exited(0), at(1010));
    assert_eq!(ended.on(signal(Signal::TERM), at(1100)), [], "the rest has its signal");
}

#[test]
fn a_dead_front_ends_the_tree() {
    let mut m = running_machine(plan());
    m.on(Event::MarksGone, at(10));
    assert_eq!(m.on(Event::FrontGone, at(20)), [Action::KillTree]);
    assert_eq!(m.on(Event::TreeGone, at(21)), LEAVE);
    ends_as(m, |v| matches!(v, Verdict::Abandoned));
    let mut m = waiting_machine(plan());
    assert_eq!(m.on(Event::FrontGone, at(20)), LEAVE);
}
