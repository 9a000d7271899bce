//! The table of the machine, cell by cell: [`waiting`] up to the command, [`running`] while it runs, and [`outliving`]
//! it.

#[path = "outliving_tests.rs"]
mod outliving;
#[path = "running_tests.rs"]
mod running;
#[path = "waiting_tests.rs"]
mod waiting;

use std::time::Duration;

use super::*;
use crate::lock::{Error, ErrorKind, FencingToken, Granted, Holder, LossReason};
use crate::supervise::signals::Signal;

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
        signal: Signal::TERM,
        grace: ms(5000),
        max_run: None,
        hold_at_least: Duration::ZERO,
        supersede: false,
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
    Event::Renewed(Window {
        begin_until: at(end * 3 / 5),
        terminate_at: at(end - 2000),
        kill_at: at(end - 1000),
        guard_at: at(end - 500),
    })
}

fn refused(kind: ErrorKind) -> Event {
    Event::Refused(Error::new(kind, "why"))
}

/// Returns a machine after `events`, with a lease that is renewed until 20 s.
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
    assert_eq!(machine.phase, Phase::Running);
    machine
}

fn exited(status: u8) -> Event {
    Event::CommandEnded(ExitStatus::Exited(status))
}

const LEAVE: [Action; 1] = [Action::Leave { succeeded: false }];

#[track_caller]
fn ends_as(mut machine: Machine, wanted: impl Fn(&Verdict) -> bool) {
    machine.on(Event::Left, at(19_999));
    assert_eq!(machine.phase, Phase::Over);
    let verdict = machine.verdict.expect("a verdict");
    assert!(wanted(&verdict), "{verdict:?}");
}
