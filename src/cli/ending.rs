//! From how a hold ended to how dlock ends: status, sentence, report.

use std::io;

use rustix::io::Errno;

use super::exit_code::{ExitCode, Failure};
use super::settings::RunSettings;
use super::unreached;
use crate::backend::service::Address;
use crate::hold::{CutShort, HoldEnd, Verdict};
use crate::lock::{Entry, Error, ErrorKind, Holder, LossReason};
use crate::output::message::names;
use crate::output::report::{self, Report};
use crate::output::{Message, Party, sanitise};
use crate::supervise::exit_status::ExitStatus;
use crate::supervise::failure::{CommandFate, KeeperFailure, WhyFailed};
use crate::supervise::limits;
use crate::supervise::tree_state::TreeState;

/// What is said of a tree that is not known to be gone.
pub(super) fn cannot_end(tree: TreeState, lease_lost: bool) -> Option<Message> {
    match tree {
        TreeState::Gone => None,
        TreeState::Alive(pids) => {
            let named: Vec<u32> = pids.named().iter().filter_map(|pid| u32::try_from(*pid).ok()).collect();
            let lacks_kill = pids.named().iter().any(|pid| limits::lacks_kill(*pid));
            let more = pids.count() - named.len();
            Some(Message::CannotEnd { more, pids: Some(named), lease_lost, lacks_kill })
        }
        TreeState::Unknown => Some(Message::CannotEnd { pids: None, more: 0, lease_lost, lacks_kill: false }),
    }
}

/// What is said of a hold that was to outlast its command, and did not.
fn cut_short(lock: String, why: &CutShort) -> Message {
    match why {
        CutShort::Lost(reason) => {
            Message::HoldCutShort { lock, by: None, reason: Some(sanitise::text(&reason.to_string())) }
        }
        CutShort::Broken(by) => Message::HoldCutShort { lock, by: Some(Party::from(by)), reason: None },
    }
}

/// How dlock ends.
#[derive(Debug)]
pub(super) struct Ending {
    /// Its status or signal.
    pub(super) outcome: ExitStatus,
    /// What the report calls it.
    pub(super) reported: report::Outcome,
    /// What is said.
    pub(super) message: Option<Message>,
}

impl Ending {
    fn silent(outcome: ExitStatus, reported: report::Outcome) -> Self {
        Self { outcome, reported, message: None }
    }

    fn code(code: ExitCode, reported: report::Outcome, message: Message) -> Self {
        Self { outcome: ExitStatus::Exited(code.number()), reported, message: Some(message) }
    }

    /// An attempt that failed before it began.
    pub(super) fn failure(failure: &Failure) -> Self {
        let message = Some((*failure.message).clone());
        Self { outcome: ExitStatus::Exited(failure.code), reported: report::Outcome::Error, message }
    }

    /// Nobody has answered, and the service has not said why; `perhaps` is why.
    fn unanswered(lock: &str, address: &dyn Address, perhaps: &str) -> Self {
        let (backend, place) = (address.service().name, sanitise::text(&address.place()));
        let reason = format!(
            "{backend} at {place} did not answer in time{perhaps}; cannot tell whether {lock} is free"
        );
        Self::code(ExitCode::Unavailable, report::Outcome::Error, Message::failed(reason))
    }

    /// The ending of a hold of the lock at `address`.
    pub(super) fn of(settings: &RunSettings, address: &dyn Address, ended: &HoldEnd) -> Self {
        let lock = names(&settings.names);
        let busy = |reported, message| Self {
            outcome: ExitStatus::Exited(settings.busy_exit_code),
            reported,
            message: Some(message),
        };
        let party = |holder: &Option<Box<Entry>>| {
            holder.as_ref().map(|entry| Party::of(entry, std::time::SystemTime::now()))
        };
        match &ended.verdict {
            Verdict::Ran(outcome) => Self::ran(lock, *outcome, ended.cut_short.as_ref()),
            Verdict::Interrupted(outcome) => Self::silent(*outcome, report::Outcome::Signal),
            Verdict::Signalled(signal) => {
                Self::silent(ExitStatus::Signaled(*signal), report::Outcome::Signal)
            }
            Verdict::Busy(holder) => {
                busy(report::Outcome::Busy, Message::Busy { lock, holder: party(holder) })
            }
            Verdict::WaitOver(holder) => busy(
                report::Outcome::Timeout,
                Message::WaitRanOut { lock, waited: ended.waited, holder: party(holder) },
            ),
            Verdict::Superseded(by) => {
                busy(report::Outcome::Superseded, Message::Superseded { lock, by: by.into() })
            }
            Verdict::PlaceLost(Some(reason)) => Self::place_lost(settings, &reason.to_string()),
            Verdict::PlaceLost(None) => Self::place_lost(settings, "suspended"),
            Verdict::Broken { by, ran } => Self::broken(settings, lock, by, *ran),
            Verdict::Lost { reason, tree } => Self::lost(lock, reason, *tree),
            Verdict::MaxRun => Self::code(
                ExitCode::MaxRun,
                report::Outcome::MaxRun,
                Message::MaxRun { lock, limit: settings.max_run.unwrap_or_default() },
            ),
            Verdict::Skipped(ago) => Self {
                outcome: ExitStatus::Exited(0),
                reported: report::Outcome::Skipped,
                message: Some(Message::Skipped {
                    lock,
                    ago: *ago,
                    once_per: settings.once_per.unwrap_or_default(),
                }),
            },
            Verdict::NotExecuted(error) => Self::not_executed(settings, error),
            Verdict::NotReached(Some(error)) => {
                Self::not_reached(error, address, unreached::gave_up(settings.wait))
            }
            Verdict::Failed(error) if error.is_transient() => Self::not_reached(error, address, None),
            Verdict::Failed(error) => Self::failed(settings, lock, error),
            Verdict::NotReached(None) => Self::unanswered(&lock, address, ""),
            // Nobody is told of these.
            Verdict::Suspended | Verdict::Abandoned | Verdict::LeftAlone => {
                Self::silent(ExitStatus::Exited(0), report::Outcome::Error)
            }
        }
    }

    /// A waiter with `--supersede` or `--replace` that would have to enter again, for this reason.
    pub(super) fn place_lost(settings: &RunSettings, reason: &str) -> Self {
        let (lock, reason) = (names(&settings.names), sanitise::text(reason));
        Self {
            outcome: ExitStatus::Exited(settings.busy_exit_code),
            reported: report::Outcome::Busy,
            message: Some(Message::PlaceLost { lock, reason }),
        }
    }

    /// A claim that `by` broke or replaced; `ran` is whether the command had started.
    fn broken(settings: &RunSettings, lock: String, by: &Holder, ran: bool) -> Self {
        let replaced = settings.replace && by.replace;
        let by = Party::from(by);
        let (reported, message) = match (replaced, ran) {
            (true, true) => (report::Outcome::Replaced, Message::Replaced { lock, by }),
            // It had its turn and has not begun: a waiter still, as far as others could see.
            (true, false) => (report::Outcome::Superseded, Message::Superseded { lock, by }),
            (false, _) => (report::Outcome::Broken, Message::Broken { lock, by, command_ran: ran }),
        };
        let code = if ran { ExitCode::Lost.number() } else { settings.busy_exit_code };
        Self { outcome: ExitStatus::Exited(code), reported, message: Some(message) }
    }

    fn ran(lock: String, outcome: ExitStatus, why: Option<&CutShort>) -> Self {
        let message = why.map(|why| cut_short(lock, why));
        Self { outcome, reported: report::Outcome::Ran, message }
    }

    fn lost(lock: String, reason: &LossReason, tree: TreeState) -> Self {
        let lost = || Message::Lost { lock, reason: sanitise::text(&reason.to_string()), command_ran: true };
        Self::code(ExitCode::Lost, report::Outcome::Lost, cannot_end(tree, true).unwrap_or_else(lost))
    }

    fn failed(settings: &RunSettings, lock: String, error: &Error) -> Self {
        let reason = sanitise::text(&error.reason.to_string());
        if error.kind == ErrorKind::Deadlock {
            return Self {
                outcome: ExitStatus::Exited(settings.busy_exit_code),
                reported: report::Outcome::Deadlock,
                message: Some(Message::WouldDeadlock { lock, reason }),
            };
        }
        let message = Message::failed(sanitise::text(&error.to_string()));
        Self::code(error.kind.into(), report::Outcome::Error, message)
    }

    /// Nobody could be asked, or nobody who could do anything.
    fn not_reached(error: &Error, address: &dyn Address, gave_up: Option<String>) -> Self {
        let message = unreached::message(error, gave_up, Some(&address.place()));
        Self::code(error.kind.into(), report::Outcome::Error, message)
    }

    fn not_executed(settings: &RunSettings, error: &io::Error) -> Self {
        let command = settings.command.first_word();
        let scarce = [Errno::AGAIN, Errno::NOMEM, Errno::MFILE, Errno::NFILE];
        let (code, message) = match Errno::from_io_error(error) {
            Some(Errno::NOENT | Errno::NOTDIR) => (ExitCode::NotFound, Message::CommandNotFound { command }),
            Some(errno) if scarce.contains(&errno) => {
                (ExitCode::System, Message::CannotExecute { command, reason: error.to_string() })
            }
            _ => (ExitCode::CannotExecute, Message::CannotExecute { command, reason: error.to_string() }),
        };
        Self::code(code, report::Outcome::Error, message)
    }

    /// The ending after the keeper failed.
    pub(super) fn keeper_failed(
        settings: &RunSettings,
        address: &dyn Address,
        failure: &KeeperFailure,
    ) -> Self {
        let lock = names(&settings.names);
        if !failure.tree.is_gone() {
            return Self::lost(lock, &LossReason::SessionEnded, failure.tree);
        }
        match failure.command {
            // Its work was done; only the hold ended early.
            CommandFate::Ended(outcome) => {
                let message = Some(Message::HoldCutShort { lock, by: None, reason: None });
                Self { outcome, reported: report::Outcome::Ran, message }
            }
            CommandFate::WasEnded | CommandFate::Starting => {
                let surely_ran = failure.command == CommandFate::WasEnded;
                let message = match failure.why {
                    WhyFailed::Stalled => Message::KeeperStopped { lock, surely_ran },
                    _ => Message::KeeperDied { lock, surely_ran },
                };
                Self::code(ExitCode::Lost, report::Outcome::Lost, message)
            }
            CommandFate::NotStarted => Self::not_started(&lock, address, failure.why),
        }
    }

    /// The ending after the keeper failed before it had started the command.
    fn not_started(lock: &str, address: &dyn Address, why: WhyFailed) -> Self {
        match why {
            // It has said itself what was wrong.
            WhyFailed::Exited(70) => {
                Self::silent(ExitStatus::Exited(ExitCode::Defect.number()), report::Outcome::Error)
            }
            WhyFailed::Exited(71) => {
                Self::silent(ExitStatus::Exited(ExitCode::System.number()), report::Outcome::Error)
            }
            WhyFailed::Mute => Self::unanswered(lock, address, ""),
            WhyFailed::Stalled => Self::unanswered(lock, address, " (the lease-keeper was stopped)"),
            WhyFailed::Died(_) | WhyFailed::Exited(_) => Self::code(
                ExitCode::System,
                report::Outcome::Error,
                Message::failed(format!(
                    "the lease-keeper was killed while waiting for {lock}; the command was not started"
                )),
            ),
        }
    }

    /// The report of a run that ended so; `ended` is missing if only the front knows of it.
    pub(super) fn report(&self, settings: &RunSettings, backend: &str, ended: Option<&HoldEnd>) -> Report {
        let (exit_code, signal) = match self.outcome {
            ExitStatus::Exited(status) => (Some(status), None),
            ExitStatus::Signaled(signal) => (None, Some(signal.to_string())),
        };
        let grant = ended.and_then(|e| e.grant.as_ref());
        Report {
            outcome: self.reported,
            exit_code,
            signal,
            waited: ended.map(|e| e.waited).unwrap_or_default(),
            held: ended.and_then(|e| e.held),
            locks: settings.names.clone(),
            backend: Some(backend.to_owned()),
            mode: settings.mode,
            claim: ended.map(|e| e.claim),
            tokens: grant.map(|g| g.names.iter().map(|n| n.token).collect()).unwrap_or_default(),
            error: self.message.as_ref().map(ToString::to_string),
        }
    }
}
