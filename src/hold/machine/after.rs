//! The machine's phases from the stop of the command, or its end, on.

use std::time::Duration;

use super::Machine;
use crate::hold::event::{Action, Event, Phase, StopReason};
use crate::hold::verdict::{CutShort, Verdict};
use crate::lock::{ClaimState, LossReason, Moment};
use crate::supervise::exit_status::ExitStatus;
use crate::supervise::signals::Signal;
use crate::supervise::tree_state::TreeState;

/// Ending signals closer together than this count as one: shells and service managers signal twice.
const SAME_SIGNAL: Duration = Duration::from_millis(200);

impl Machine {
    /// Stops the command for a reason of dlock's own, with the signal of the plan.
    pub(super) fn stop_itself(&mut self, reason: StopReason, now: Moment) -> Vec<Action> {
        self.stop(reason, self.plan.signal, now)
    }

    pub(super) fn stop(&mut self, reason: StopReason, signal: Signal, now: Moment) -> Vec<Action> {
        self.phase = Phase::Stopping(reason);
        self.grace_until = now + self.plan.grace;
        vec![Action::PassToGroup(signal)]
    }

    pub(super) fn kill(&mut self, reason: StopReason) -> Vec<Action> {
        self.phase = Phase::Stopping(reason);
        self.killing = true;
        vec![Action::KillTree]
    }

    pub(super) fn leave_as(&mut self, verdict: Verdict) -> Vec<Action> {
        self.phase = Phase::Leaving;
        self.verdict = Some(verdict);
        vec![Action::Leave { succeeded: false }]
    }

    pub(super) fn stopping(&mut self, event: Event, reason: StopReason, now: Moment) -> Vec<Action> {
        match event {
            _ if self.tree_gone => self.stopped(event, reason, now),
            Event::CommandEnded(outcome) => {
                self.command = Some(outcome);
                if self.killing { Vec::new() } else { vec![Action::TerminateTree] }
            }
            // While members of the tree live the keeper continues to renew, if there is a lease left to renew.
            Event::TreeRemains(tree) => {
                let reason = match reason {
                    StopReason::Lost(reason) => reason,
                    _ if now >= self.kill_at() => LossReason::Expired,
                    _ => {
                        self.remains = true;
                        return Vec::new();
                    }
                };
                self.leave_as(Verdict::Lost { reason, tree })
            }
            Event::Signal { signal, everybody: false } if signal.is_ending() => {
                self.linger_until = Moment::NEVER;
                let again = self.last_ending.is_some_and(|at| now.since(at) > SAME_SIGNAL);
                if again && !self.killing {
                    return self.kill(reason);
                }
                let is_first = self.last_ending.is_none() && !self.killing && self.command.is_none();
                self.last_ending.get_or_insert(now);
                if is_first { vec![Action::PassToGroup(signal)] } else { Vec::new() }
            }
            // The command has ended. The rest of its tree is being stopped already.
            Event::State(ClaimState::AskedToLeave { by }) if reason == StopReason::CommandDied => {
                self.linger_until = Moment::NEVER;
                self.cut_short = Some(CutShort::Broken(by));
                Vec::new()
            }
            Event::Signal { signal, everybody: false } if self.command.is_none() => {
                vec![Action::Pass(signal)]
            }
            Event::State(ClaimState::Lost(lost)) if !self.killing => self.kill(StopReason::Lost(lost)),
            Event::State(ClaimState::Lost(lost)) => {
                self.phase = Phase::Stopping(StopReason::Lost(lost));
                Vec::new()
            }
            // The owner was asked to end, and releases the lock first: waiting for the owner to end would be waiting
            // for itself.
            Event::Released
                if !self.killing && matches!(reason, StopReason::Asked | StopReason::Broken(_)) =>
            {
                self.released()
            }
            Event::FrontGone => self.kill(StopReason::FrontGone),
            // The lease is over: one last round of SIGKILL shows what remains.
            Event::Tick if now >= self.kill_at() && self.remains => {
                self.remains = false;
                vec![Action::KillTree]
            }
            Event::Tick if now >= self.kill_at() && !self.killing => self.kill(StopReason::RunningOut),
            Event::Tick if now >= self.grace_until && !self.killing => self.kill(reason),
            _ => Vec::new(),
        }
    }

    /// The tree is gone. For nested runs outside of it the machine can only wait, as long as the lock is held.
    fn stopped(&mut self, event: Event, reason: StopReason, now: Moment) -> Vec<Action> {
        let reason = match (event, reason) {
            (Event::State(ClaimState::Lost(lost)), _) => StopReason::Lost(lost),
            (Event::Tick, _) | (_, StopReason::RunningOut) if now >= self.kill_at() => {
                StopReason::Lost(LossReason::Expired)
            }
            (Event::FrontGone, _) => StopReason::FrontGone,
            (_, reason) => reason,
        };
        self.phase = Phase::Stopping(reason.clone());
        let command = self.command.unwrap_or(ExitStatus::Signaled(Signal::KILL));
        self.leave_as(match reason {
            StopReason::Lost(reason) => Verdict::Lost { reason, tree: TreeState::Gone },
            StopReason::CommandDied => return self.linger(),
            _ if !self.marks_gone => return Vec::new(),
            StopReason::RunningOut => Verdict::Lost { reason: LossReason::Expired, tree: TreeState::Gone },
            StopReason::Asked => Verdict::Interrupted(command),
            StopReason::MaxRun => Verdict::MaxRun,
            StopReason::Broken(by) => Verdict::Broken { by, ran: true },
            StopReason::FrontGone => Verdict::Abandoned,
        })
    }

    /// The owner released the lock under an adopted process that runs on: only nested runs still need it.
    pub(super) fn released(&mut self) -> Vec<Action> {
        self.command = Some(ExitStatus::Exited(0));
        self.given_back = true;
        self.linger()
    }

    /// The command and the rest of its tree are over: waits for nested runs and `--hold-at-least`.
    fn linger(&mut self) -> Vec<Action> {
        self.phase = Phase::Lingering;
        self.leave_if_nothing_is_left()
    }

    pub(super) fn lingering(&mut self, event: Event, now: Moment) -> Vec<Action> {
        match event {
            Event::TreeGone | Event::MarksGone => {}
            Event::Tick if now >= self.linger_until => self.linger_until = Moment::NEVER,
            Event::Signal { signal, everybody } if signal.is_ending() => {
                self.linger_until = Moment::NEVER;
                if self.needs_processes() && !everybody {
                    self.last_ending = Some(now);
                    let mut actions = self.stop(StopReason::Asked, signal, now);
                    actions.push(Action::TerminateTree);
                    return self.if_anybody_is_left(actions);
                }
            }
            Event::State(ClaimState::AskedToLeave { by }) => {
                self.linger_until = Moment::NEVER;
                if self.needs_processes() {
                    self.stop_itself(StopReason::Broken(by), now);
                    return self.if_anybody_is_left(vec![Action::TerminateTree]);
                }
                self.cut_short = Some(CutShort::Broken(by));
            }
            Event::State(ClaimState::Lost(reason)) => return self.lost_while_lingering(reason),
            Event::Tick if now >= self.terminate_at() && self.needs_processes() => return self.run_out(now),
            Event::Tick if now >= self.terminate_at() => {
                return self.lost_while_lingering(LossReason::Expired);
            }
            Event::Tick if now >= self.max_run_at() => {
                self.linger_until = Moment::NEVER;
                if self.needs_processes() {
                    self.stop_itself(StopReason::MaxRun, now);
                    return self.if_anybody_is_left(vec![Action::TerminateTree]);
                }
            }
            Event::FrontGone => {
                if self.needs_processes() {
                    let actions = self.kill(StopReason::FrontGone);
                    return self.if_anybody_is_left(actions);
                }
                return self.leave_as(Verdict::Abandoned);
            }
            _ => return Vec::new(),
        }
        self.leave_if_nothing_is_left()
    }

    /// Returns `actions`, which are for the tree; none if the tree is gone and only nested runs elsewhere need the
    /// hold.
    fn if_anybody_is_left(&self, actions: Vec<Action>) -> Vec<Action> {
        if self.tree_gone { Vec::new() } else { actions }
    }

    /// The lease runs out while processes of the tree outlive the command: stops them as it would stop the command.
    fn run_out(&mut self, now: Moment) -> Vec<Action> {
        self.stop_itself(StopReason::RunningOut, now);
        self.grace_until = self.kill_at();
        if now >= self.kill_at() {
            return self.stopping(Event::Tick, StopReason::RunningOut, now);
        }
        self.if_anybody_is_left(vec![Action::TerminateTree])
    }

    /// The lock is lost after the command has ended. If other processes needed it, kills them. If not, the status of
    /// the command stays.
    fn lost_while_lingering(&mut self, reason: LossReason) -> Vec<Action> {
        if self.needs_processes() {
            if self.tree_gone {
                return self.leave_as(Verdict::Lost { reason, tree: TreeState::Gone });
            }
            return self.kill(StopReason::Lost(reason));
        }
        self.cut_short = Some(CutShort::Lost(reason));
        let command = self.command.unwrap_or(ExitStatus::Exited(0));
        self.leave_as(Verdict::Ran(command))
    }

    /// Returns whether a process that outlived the command needs the hold.
    fn needs_processes(&self) -> bool {
        !self.marks_gone || self.awaits_tree()
    }

    pub(super) fn leave_if_nothing_is_left(&mut self) -> Vec<Action> {
        if self.needs_processes() || !self.linger_until.is_never() {
            return Vec::new();
        }
        let command = self.command.unwrap_or(ExitStatus::Exited(0));
        self.phase = Phase::Leaving;
        self.verdict = Some(Verdict::Ran(command));
        vec![Action::Leave { succeeded: command == ExitStatus::Exited(0) && !self.given_back }]
    }
}
