//! From the end of a hold to the end of dlock: exit status, message, report.

use std::io;
use std::time::SystemTime;

use rustix::io::Errno;

use super::connect;
use super::exit_code::{ExitCode, Failure};
use super::settings::RunSettings;
use super::unreached;
use crate::backend::service::Address;
use crate::hold::{CutShort, HoldEnd, Verdict};
use crate::lock::{Entry, Error, ErrorKind, Holder, LossReason};
use crate::output::message::names;
use crate::output::report::{Outcome, Report};
use crate::output::{Message, Ms, Party, agree, sanitise};
use crate::supervise::exit_status::ExitStatus;
use crate::supervise::failure::{CommandFate, KeeperFailure, WhyFailed};
use crate::supervise::limits;
use crate::supervise::signals::Signal;
use crate::supervise::tree_state::TreeState;

/// Returns the message about a tree under `lock` that may still have processes.
pub(super) fn cannot_end(lock: &str, tree: TreeState, lease_lost: bool) -> Option<Message> {
    let lock = lock.to_owned();
    match tree {
        TreeState::Gone => None,
        TreeState::Alive(pids) => {
            let named: Vec<u32> = pids.named().iter().filter_map(|pid| u32::try_from(*pid).ok()).collect();
            let lacks_kill = pids.named().iter().any(|pid| limits::lacks_kill(*pid));
            let more = pids.count() - named.len();
            Some(Message::CannotEnd { lock, more, pids: Some(named), lease_lost, lacks_kill })
        }
        TreeState::Unknown => {
            Some(Message::CannotEnd { lock, pids: None, more: 0, lease_lost, lacks_kill: false })
        }
    }
}

/// How dlock ends.
#[derive(Debug)]
pub(super) struct Ending {
    /// The exit status or signal.
    pub(super) outcome: ExitStatus,
    /// The outcome in the report.
    pub(super) reported: Outcome,
    /// The message.
    pub(super) message: Option<Message>,
}

impl Ending {
    fn new(outcome: ExitStatus, reported: Outcome, message: impl Into<Option<Message>>) -> Self {
        Self { outcome, reported, message: message.into() }
    }

    fn error(code: ExitCode, message: impl Into<Option<Message>>) -> Self {
        Self::new(code.into(), Outcome::Error, message)
    }

    /// Returns the ending of an attempt that failed before it began.
    pub(super) fn failure(error: &anyhow::Error) -> Self {
        let Failure { code, message } = Failure::from(error);
        Self::error(code, *message)
    }

    /// Returns the ending of a wait that `signal` ended.
    pub(super) fn signaled(signal: Signal) -> Self {
        Self::new(ExitStatus::Signaled(signal), Outcome::Signal, None::<Message>)
    }

    /// Returns the ending of a wait for a service that neither answered nor gave a reason; `perhaps` is the likely reason.
    fn unanswered(lock: &str, address: &dyn Address, perhaps: &str) -> Self {
        let (backend, place) = (address.service().name, sanitise::text(&address.place()));
        let reason = format!(
            "{backend} at {place} did not answer in time{perhaps}; cannot tell whether {lock} {} free",
            agree(lock, "is", "are")
        );
        Self::error(ExitCode::Unavailable, Message::failed(reason))
    }

    /// Returns the ending of a hold of the lock at `address`.
    pub(super) fn of(settings: &RunSettings, address: &dyn Address, ended: &HoldEnd) -> Self {
        let (lock, service) = (names(settings.names()), connect::service(address));
        let busy = |reported, message| Self::new(settings.busy(), reported, message);
        let party =
            |holder: &Option<Box<Entry>>| holder.as_ref().map(|entry| Party::of(entry, SystemTime::now()));
        match &ended.verdict {
            Verdict::Ran(outcome) => {
                let message = ended.cut_short.as_ref().map(|why| match why {
                    CutShort::Lost(reason) => {
                        let reason = Some(sanitise::text(&reason.to_string()));
                        Message::HoldCutShort { lock, by: None, reason }
                    }
                    CutShort::Broken(by) => Message::HoldCutShort { lock, by: Some(by.into()), reason: None },
                });
                Self::new(*outcome, Outcome::Ran, message)
            }
            Verdict::Interrupted(outcome) => Self::new(*outcome, Outcome::Signal, None::<Message>),
            Verdict::Signalled(signal) => Self::signaled(*signal),
            Verdict::Busy(holder) => {
                busy(Outcome::Busy, Message::Busy { lock, service, holder: party(holder) })
            }
            Verdict::WaitOver(holder) => {
                let (waited_ms, holder) = (Ms(ended.waited), party(holder));
                busy(Outcome::Timeout, Message::WaitRanOut { lock, service, waited_ms, holder })
            }
            Verdict::Superseded(by) => busy(Outcome::Superseded, Message::Superseded { lock, by: by.into() }),
            Verdict::PlaceLost(reason) => {
                let reason = reason.as_ref().map_or("suspended".to_owned(), ToString::to_string);
                busy(Outcome::Busy, Message::PlaceLost { lock, reason: sanitise::text(&reason) })
            }
            Verdict::Broken { by, ran } => Self::broken(settings, lock, by, *ran),
            Verdict::Lost { reason, tree } => Self::lost(lock, reason, *tree, true),
            Verdict::MaxRun => {
                let limit_ms = Ms(settings.plan.max_run.unwrap_or_default());
                Self::new(ExitCode::MaxRun.into(), Outcome::MaxRun, Message::MaxRun { lock, limit_ms })
            }
            Verdict::Skipped(ago) => {
                let once_per_ms = Ms(settings.once_per().unwrap_or_default());
                let message = Message::Skipped { lock, ago_ms: Ms(*ago), once_per_ms };
                Self::new(ExitStatus::Exited(0), Outcome::Skipped, message)
            }
            Verdict::NotExecuted(error) => Self::not_executed(settings, error),
            Verdict::NotReached(Some(error)) => {
                Self::not_reached(error, unreached::gave_up(settings.plan.wait))
            }
            Verdict::NotReached(None) => Self::unanswered(&lock, address, ""),
            Verdict::Failed(error) if error.is_transient() => Self::not_reached(error, None),
            Verdict::Failed(error) => {
                let reason = sanitise::text(&error.reason.to_string());
                match error.kind {
                    ErrorKind::Deadlock => busy(Outcome::Deadlock, Message::WouldDeadlock { lock, reason }),
                    kind => Self::error(kind.into(), Message::failed(sanitise::text(&error.to_string()))),
                }
            }
            // The front receives no report of these.
            Verdict::Suspended | Verdict::Abandoned | Verdict::LeftAlone => {
                Self::new(ExitStatus::Exited(0), Outcome::Error, None::<Message>)
            }
        }
    }

    /// Returns the ending of a claim that `by` broke or replaced; `ran` is whether the command had started.
    fn broken(settings: &RunSettings, lock: String, by: &Holder, ran: bool) -> Self {
        let replaced = settings.args.replace && by.replace;
        let by = Party::from(by);
        let (reported, message) = match (replaced, ran) {
            (true, true) => (Outcome::Replaced, Message::Replaced { lock, by }),
            // To other clients it was still a waiter.
            (true, false) => (Outcome::Superseded, Message::Superseded { lock, by }),
            (false, _) => (Outcome::Broken, Message::Broken { lock, by, command_ran: ran }),
        };
        Self::new(if ran { ExitCode::Lost.into() } else { settings.busy() }, reported, message)
    }

    fn lost(lock: String, reason: &LossReason, tree: TreeState, lease_lost: bool) -> Self {
        let message = cannot_end(&lock, tree, lease_lost).unwrap_or_else(|| Message::Lost {
            lock,
            reason: sanitise::text(&reason.to_string()),
            command_ran: true,
        });
        Self::new(ExitCode::Lost.into(), Outcome::Lost, message)
    }

    /// Returns the ending of a wait for a service that was not reached, or could not serve.
    fn not_reached(error: &Error, gave_up: Option<String>) -> Self {
        Self::error(error.kind.into(), unreached::message(error, gave_up, true))
    }

    fn not_executed(settings: &RunSettings, error: &io::Error) -> Self {
        let command = settings.first_word.clone();
        let code = match Errno::from_io_error(error) {
            Some(Errno::NOENT | Errno::NOTDIR) => {
                return Self::error(ExitCode::NotFound, Message::CommandNotFound { command });
            }
            Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE) => ExitCode::System,
            _ => ExitCode::CannotExecute,
        };
        Self::error(code, Message::CannotExecute { command, reason: error.to_string() })
    }

    /// Returns the ending after the keeper failed. `kept` is whether the front keeps the lock.
    pub(super) fn keeper_failed(
        settings: &RunSettings,
        address: &dyn Address,
        failure: &KeeperFailure,
        kept: bool,
    ) -> Self {
        if let Some(signal) = failure.ended_by {
            return Self::signaled(signal);
        }
        let lock = names(settings.names());
        if !failure.tree.is_gone() {
            return Self::lost(lock, &LossReason::SessionEnded, failure.tree, !kept);
        }
        match failure.command {
            // The command had exited. Only the hold ended early.
            CommandFate::Ended(outcome) => {
                Self::new(outcome, Outcome::Ran, Message::HoldCutShort { lock, by: None, reason: None })
            }
            CommandFate::WasEnded | CommandFate::Starting => {
                let surely_ran = failure.command == CommandFate::WasEnded;
                let message = match failure.why {
                    WhyFailed::Stalled => Message::KeeperStopped { lock, surely_ran },
                    _ => Message::KeeperDied { lock, surely_ran },
                };
                Self::new(ExitCode::Lost.into(), Outcome::Lost, message)
            }
            CommandFate::NotStarted => match failure.why {
                // The keeper has printed the reason.
                WhyFailed::Exited(70) => Self::error(ExitCode::Defect, None::<Message>),
                WhyFailed::Exited(71) => Self::error(ExitCode::System, None::<Message>),
                WhyFailed::Mute => Self::unanswered(&lock, address, ""),
                WhyFailed::Stalled => Self::unanswered(&lock, address, " (the lease-keeper was stopped)"),
                WhyFailed::Died | WhyFailed::Exited(_) => {
                    let reason = format!(
                        "the lease-keeper was killed while waiting for {lock}; the command was not started"
                    );
                    Self::error(ExitCode::System, Message::failed(reason))
                }
            },
        }
    }

    /// Returns the report of a run with this ending. `ended` is missing if only the front knows of the end.
    pub(super) fn report(&self, settings: &RunSettings, backend: &str, ended: Option<&HoldEnd>) -> Report {
        let (exit_code, signal) = match self.outcome {
            ExitStatus::Exited(status) => (Some(status), None),
            ExitStatus::Signaled(signal) => (None, Some(signal.to_string())),
        };
        let tokens = ended.and_then(|ended| ended.grant.as_ref()).map(|grant| &grant.names);
        let token = |n: usize| Some(tokens?.get(n)?.token.to_string());
        let claim = ended.map(|ended| ended.claim.to_string());
        Report {
            outcome: self.reported,
            exit_code,
            signal,
            waited_ms: Ms(ended.map(|ended| ended.waited).unwrap_or_default()),
            held_ms: ended.and_then(|ended| ended.held).map(Ms),
            lock: settings.names().iter().map(|name| Some(name.to_string())).collect(),
            backend: backend.to_owned(),
            mode: settings.mode.to_string(),
            claim: vec![claim; settings.names().len()],
            token: (0..settings.names().len()).map(token).collect(),
            error: self.message.as_ref().map(ToString::to_string),
        }
    }
}
