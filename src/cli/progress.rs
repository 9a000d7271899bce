//! Prints the progress of a hold.

use std::time::SystemTime;

use rustix::termios::tcgetpgrp;

use crate::clock;
use crate::hold::{Notice, Progress, Stage};
use crate::lock::{Entry, Moment};
use crate::output::live::Live;
use crate::output::{Message, Ms, Party, Printer, ServicePlace, Verbosity, sanitise, writer};
use crate::supervise::start::Start;

use super::ending::cannot_end;
use super::notify::Heartbeat;

/// The width of a terminal that does not report one.
const WIDTH: usize = 80;

/// Turns notices into messages and the live line.
pub(super) struct ProgressPrinter<'a> {
    printer: Printer,
    lock: String,
    service: ServicePlace,
    /// Whether dlock waits for a busy lock.
    waits: bool,
    told_waiting: bool,
    /// Whether the shorter TTL was reported, or no TTL was set.
    told_ttl: bool,
    live: Option<Live>,
    /// The notifications of the service manager.
    pub(super) heartbeat: Option<Heartbeat<'a>>,
}

impl ProgressPrinter<'_> {
    /// Returns a printer of the progress of `lock` (see [`crate::output::message::names`]). The live line is shown if standard
    /// error is a terminal and dlock is in the foreground.
    pub(super) fn new(
        printer: Printer,
        lock: String,
        service: ServicePlace,
        waits: bool,
        start: &Start,
        began: Moment,
        asked_for_ttl: bool,
    ) -> Self {
        let quiet = printer.verbosity == Verbosity::Quiet;
        let on_terminal = start.terminal.is_some() && writer::is_terminal();
        let live = (waits && !quiet && on_terminal).then(|| {
            let group = start.group;
            let device = start.terminal.as_ref().and_then(|t| t.device.try_clone().ok());
            let foreground = move || {
                let present = device.as_ref().and_then(|d| tcgetpgrp(d).ok());
                present.is_some_and(|pid| pid.as_raw_nonzero().get() == group)
            };
            Live::new(Box::new(foreground), lock.clone(), began)
        });
        let (told_waiting, told_ttl) = (false, !asked_for_ttl);
        Self { printer, lock, service, waits, told_waiting, told_ttl, live, heartbeat: None }
    }

    /// Prints `message`, and removes the live line before it.
    pub(super) fn say(&mut self, message: &Message) {
        if self.printer.shows(message) {
            self.erase();
            self.printer.print(message);
        }
    }

    /// Removes the live line.
    pub(super) fn erase(&mut self) {
        if let Some(erasure) = self.live.as_mut().and_then(Live::erase) {
            writer::messages().last(erasure);
        }
    }

    fn waiting(&mut self, ahead: Option<u32>, holder: Option<&Entry>) {
        self.heartbeat.iter_mut().for_each(|beat| beat.waits(ahead));
        if let Some(live) = &mut self.live {
            live.update(ahead, holder);
        } else if self.waits && !std::mem::replace(&mut self.told_waiting, true) {
            let holder = holder.map(|entry| Party::of(entry, SystemTime::now()));
            let (lock, service) = (self.lock.clone(), self.service.clone());
            self.say(&Message::Waiting { lock, service, holder, ahead });
        }
    }

    fn held(&mut self, waited: std::time::Duration, token: String) {
        self.erase();
        (self.live, self.heartbeat) = (None, None);
        let (lock, service) = (self.lock.clone(), self.service.clone());
        self.say(&Message::Acquired { lock, service, waited_ms: Ms(waited), token });
        // The command is about to write to the same stream.
        let _unread = writer::messages().finish(writer::BRIEF);
    }
}

impl Progress for ProgressPrinter<'_> {
    fn notice(&mut self, notice: Notice<'_>) {
        let lock = || self.lock.clone();
        // The advice is printed when dlock gives up.
        let text = |error: &crate::lock::Error| sanitise::text(&error.reason.what().to_string());
        match notice {
            Notice::Waiting { ahead, holder } => self.waiting(ahead, holder),
            Notice::Held { waited, grant } => {
                let token = grant.names.first().map_or_else(String::new, |g| g.token.to_string());
                self.held(waited, token);
            }
            Notice::Started(pid) => self.say(&Message::Started { lock: lock(), pid }),
            // A claim may enter the queue again.
            Notice::ShorterTtl { .. } if std::mem::replace(&mut self.told_ttl, true) => {}
            Notice::ShorterTtl { asked, granted } => {
                let backend = self.service.backend;
                let (asked_ms, granted_ms) = (Ms(asked), Ms(granted));
                self.say(&Message::ShorterTtl { lock: lock(), asked_ms, granted_ms, backend });
            }
            Notice::Nested(claim) => {
                self.say(&Message::Nested { lock: lock(), claim: claim.to_string() });
            }
            Notice::KeptByNested => self.say(&Message::KeptByNested { lock: lock() }),
            Notice::EnteredAgain(reason) => {
                let reason = sanitise::text(&reason.to_string());
                self.say(&Message::Rejoined { lock: lock(), reason });
            }
            Notice::Doubtful { error, left: Some(left), command_ended } => {
                let (reason, left_ms) = (text(error), Ms(left));
                self.say(&Message::Doubtful { lock: lock(), reason, left_ms, command_ended });
            }
            Notice::Doubtful { error, left: None, .. } => {
                self.say(&Message::Warned { reason: sanitise::text(&error.to_string()) });
            }
            Notice::CannotEnd(tree) => {
                if let Some(message) = cannot_end(&self.lock, tree, false) {
                    self.say(&message);
                }
            }
            Notice::NotReached(error) => {
                let (backend, address) = (self.service.backend, sanitise::text(&self.service.place));
                let reason = error.map(text);
                self.say(&Message::NotReached { lock: self.lock.clone(), backend, address, reason });
            }
            Notice::Risk(risk) => {
                let (what, remedy) = (sanitise::text(&risk.what), risk.remedy.as_deref().map(sanitise::text));
                self.say(&Message::Risk { what, remedy });
            }
            Notice::NotLeft { error, stage, ends_within } => {
                let (lock, reason, ends_within_ms) = (lock(), text(error), ends_within.map(Ms));
                self.say(&match stage {
                    Stage::Requested => Message::WithdrawalFailed { lock, reason, ends_within_ms },
                    Stage::Waiting => Message::LeaveFailed { lock, reason, ends_within_ms },
                    Stage::Held => Message::ReleaseFailed { lock, reason, ends_within_ms },
                });
            }
        }
    }

    /// Returns whether to print risks: not into the mails of cron, because each run of the service has the same risks.
    fn tells_risks(&self) -> bool {
        match self.printer.verbosity {
            Verbosity::Quiet => false,
            Verbosity::Normal => writer::is_terminal(),
            Verbosity::Verbose => true,
        }
    }

    fn wake_at(&self) -> Moment {
        let live = self.live.as_ref().map_or(Moment::NEVER, |live| live.next);
        live.min(self.heartbeat.as_ref().map_or(Moment::NEVER, |beat| beat.next))
    }

    fn tick(&mut self) {
        self.heartbeat.iter_mut().for_each(Heartbeat::tick);
        if let Some(live) = &mut self.live
            && let Some(line) = live.draw(clock::now(), SystemTime::now(), writer::columns().unwrap_or(WIDTH))
        {
            writer::messages().draw(line);
        }
    }
}
