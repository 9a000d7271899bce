//! The sentence of each message.

use std::fmt;
use std::time::Duration;

use super::{Message, Party, ServicePlace, unfound};
use crate::lock::duration::short;

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { .. }
            | Self::Warned { .. }
            | Self::Risk { .. }
            | Self::LinesDropped { .. }
            | Self::NoLocks { .. }
            | Self::PathAsName { .. }
            | Self::NotWritten { .. } => self.fmt_general(f),
            Self::At(located) => located.message.fmt_waiting(f, Some(&located.service)),
            Self::Waiting { .. }
            | Self::NotReached { .. }
            | Self::Rejoined { .. }
            | Self::Acquired { .. }
            | Self::ShorterTtl { .. }
            | Self::Busy { .. }
            | Self::WaitRanOut { .. }
            | Self::Superseded { .. }
            | Self::PlaceLost { .. }
            | Self::WouldDeadlock { .. }
            | Self::StandsAgain { .. }
            | Self::Skipped { .. }
            | Self::Nested { .. }
            | Self::KeptByNested { .. } => self.fmt_waiting(f, None),
            Self::ReleaseFailed { .. } | Self::LeaveFailed { .. } | Self::WithdrawalFailed { .. } => {
                self.fmt_release(f)
            }
            Self::Lost { .. }
            | Self::Broken { .. }
            | Self::Replaced { .. }
            | Self::HoldCutShort { .. }
            | Self::Doubtful { .. }
            | Self::MaxRun { .. }
            | Self::CommandNotFound { .. }
            | Self::CannotExecute { .. }
            | Self::CannotEnd { .. }
            | Self::KeeperDied { .. }
            | Self::KeeperStopped { .. }
            | Self::Started { .. }
            | Self::Finished { .. }
            | Self::TreeHidden { .. } => self.fmt_running(f),
        }
    }
}

impl Message {
    fn fmt_general(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { reason, .. } | Self::Warned { reason } => f.write_str(reason),
            Self::Risk { what, remedy } => {
                f.write_str(what)?;
                remedy.as_ref().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
            }
            Self::LinesDropped { count } => {
                let lines = if *count == 1 { "line" } else { "lines" };
                write!(f, "dropped {count} {lines} here, since nobody read standard error")
            }
            Self::NotWritten { what, path, reason } => {
                write!(f, "cannot write the {what} to {path}: {reason}; the exit status is not changed by it")
            }
            Self::PathAsName { lock, directory, file } => write!(
                f,
                "{lock} is taken as a name, not as that file; to lock the file: --endpoint {directory} --name {file}"
            ),
            Self::NoLocks { prefix, service } => {
                f.write_str("no lock is held or waited for")?;
                if !prefix.is_empty() {
                    write!(f, " whose name starts with {prefix}")?;
                }
                write!(f, " ({})", service.looked())
            }
            _ => Err(fmt::Error),
        }
    }

    fn fmt_waiting(&self, f: &mut fmt::Formatter<'_>, service: Option<&ServicePlace>) -> fmt::Result {
        let at = service.map(|service| format!(" ({})", service.name())).unwrap_or_default();
        match self {
            Self::Waiting { lock, holder, ahead } => {
                write!(f, "waiting for {lock}{at}")?;
                held_by(f, ": ", holder.as_ref())?;
                match ahead {
                    Some(n) if *n > 1 => write!(f, ", {n} ahead"),
                    _ => Ok(()),
                }
            }
            Self::NotReached { lock, backend, address, reason } => {
                write!(f, "{backend} at {address} has not answered yet")?;
                reason.as_ref().map_or(Ok(()), |reason| write!(f, " ({reason})"))?;
                write!(f, "; still trying to get {lock}")
            }
            Self::Rejoined { lock, reason } => {
                write!(f, "lost the place in the queue for {lock} ({reason}); rejoined at the end")
            }
            Self::Acquired { lock, waited, token } => {
                write!(f, "acquired {lock}{at} after {}, token {token}", short(*waited))
            }
            Self::ShorterTtl { lock, asked, granted, backend } => write!(
                f,
                "the ttl of {lock} is {}, not {}: {backend} grants no more",
                short(*granted),
                short(*asked)
            ),
            Self::Busy { lock, holder } => {
                write!(f, "{lock} is busy{at}")?;
                held_by(f, ": ", holder.as_ref())
            }
            Self::WaitRanOut { lock, waited, holder } => {
                write!(f, "gave up waiting for {lock}{at} after {}", short(*waited))?;
                held_by(f, ": ", holder.as_ref())
            }
            Self::Superseded { lock, by } => write!(f, "left the queue for {lock}: superseded by {by}"),
            Self::PlaceLost { lock, reason } => write!(
                f,
                "lost the place in the queue for {lock} ({reason}); with --supersede or --replace dlock does not rejoin, since \
                 a newer run may have come"
            ),
            Self::WouldDeadlock { lock, reason } => write!(f, "waiting for {lock} would never end: {reason}"),
            Self::StandsAgain { lock, held, pause } => {
                if let Some(held) = held {
                    write!(f, "the term as leader of {lock} ended after {}; ", short(*held))?;
                }
                write!(f, "standing again for {lock}")?;
                if pause.is_zero() { Ok(()) } else { write!(f, " in {}", short(*pause)) }
            }
            Self::Skipped { lock, ago, once_per } => write!(
                f,
                "not run: a run under {lock} that acquired it {} ago succeeded, and --once-per is {}",
                short(*ago),
                short(*once_per)
            ),
            Self::Nested { lock, claim } => {
                write!(f, "running under the outer hold of {lock}, claim {claim}")
            }
            Self::KeptByNested { lock } => {
                write!(f, "{lock} stays locked until the runs nested in it have ended")
            }
            _ => Err(fmt::Error),
        }
    }

    fn fmt_release(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReleaseFailed { lock, reason, ends_within } => {
                write!(f, "cannot release {lock}: {reason}; it ends {}", ends(*ends_within))
            }
            Self::LeaveFailed { lock, reason, ends_within } => {
                write!(
                    f,
                    "cannot leave the queue for {lock}: {reason}; the place in it ends {}",
                    ends(*ends_within)
                )
            }
            Self::WithdrawalFailed { lock, reason, ends_within } => {
                write!(
                    f,
                    "cannot withdraw the request for {lock}: {reason}; if it was granted, it ends {}",
                    ends(*ends_within)
                )
            }
            _ => Err(fmt::Error),
        }
    }

    fn fmt_running(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fate = |ran: &bool| if *ran { "the command was ended" } else { "the command was not started" };
        match self {
            Self::Lost { lock, reason, command_ran } => {
                write!(f, "lost {lock}: {reason}; {}", fate(command_ran))
            }
            Self::Broken { lock, by, command_ran } => {
                write!(f, "the claim on {lock} was broken by {by}; {}", fate(command_ran))
            }
            Self::Replaced { lock, by } => {
                write!(f, "replaced under {lock} by {by}; the command was ended")
            }
            Self::HoldCutShort { lock, by, reason } => cut_short(f, lock, by.as_ref(), reason.as_deref()),
            Self::Doubtful { lock, reason, left, command_ended } => write!(
                f,
                "cannot renew {lock}: {reason}; {} in {} unless a renewal succeeds",
                if *command_ended { "the lock will be lost" } else { "the command will be ended" },
                short(*left)
            ),
            Self::MaxRun { lock, limit } => {
                write!(f, "the command held {lock} for {} (--max-run) and was ended", short(*limit))
            }
            Self::CommandNotFound { command } if command.is_empty() => f.write_str("the command is empty"),
            Self::CommandNotFound { command } => {
                write!(f, "cannot find the command {command}{}", unfound::advice(command))
            }
            Self::CannotExecute { command, reason } => write!(f, "cannot execute {command}: {reason}"),
            Self::CannotEnd { pids, more, lease_lost, lacks_kill } => {
                match pids {
                    Some(pids) => {
                        let pids: Vec<_> = pids.iter().map(u32::to_string).collect();
                        write!(f, "cannot end {}", pids.join(", "))?;
                        if *more > 0 {
                            write!(f, " and {more} more")?;
                        }
                    }
                    None => f.write_str("cannot tell whether all that the command started has ended")?,
                }
                f.write_str(if *lease_lost {
                    ": the lock is lost and they may run beside the next holder's command; end them by hand"
                } else {
                    ": dlock keeps the lock until they are gone; end them by hand"
                })?;
                f.write_str(if *lacks_kill {
                    ", or give dlock CAP_KILL (docker run --cap-add KILL)"
                } else {
                    ""
                })
            }
            Self::KeeperDied { lock, surely_ran } => {
                write!(f, "the process of dlock that renewed {lock} died; {}", ended(*surely_ran))
            }
            Self::KeeperStopped { lock, surely_ran } => write!(
                f,
                "the process of dlock that renewed {lock} stopped and the lease ran out; {}",
                ended(*surely_ran)
            ),
            Self::Started { lock, pid } => write!(f, "started the command under {lock}, pid {pid}"),
            Self::Finished { lock, held, outcome, released } => {
                write!(f, "the command {outcome} after {} under {lock}", short(*held))?;
                f.write_str(if *released { "; the lock was released" } else { "" })
            }
            Self::TreeHidden { reason } => {
                write!(f, "only the command's process group can be ended, not all its descendants: {reason}")
            }
            _ => Err(fmt::Error),
        }
    }
}

fn ended(surely_ran: bool) -> &'static str {
    if surely_ran {
        "the command was ended"
    } else {
        "the command, which was about to start, was ended or never started"
    }
}

/// Of a hold that was to outlast its command.
fn cut_short(
    f: &mut fmt::Formatter<'_>,
    lock: &str,
    by: Option<&Party>,
    reason: Option<&str>,
) -> fmt::Result {
    match (by, reason) {
        (Some(by), _) => write!(f, "the claim on {lock} was broken after the command had ended, by {by}"),
        (None, Some(reason)) => write!(f, "lost {lock} after the command had ended: {reason}"),
        (None, None) => write!(
            f,
            "the process of dlock that held {lock} after the command had ended was killed or stopped"
        ),
    }
}

fn held_by(f: &mut fmt::Formatter<'_>, lead: &str, holder: Option<&Party>) -> fmt::Result {
    holder.map_or(Ok(()), |holder| write!(f, "{lead}held by {holder}"))
}

fn ends(ttl: Option<Duration>) -> String {
    ttl.map_or_else(|| "with this process".to_owned(), |ttl| format!("by itself within {}", short(ttl)))
}
