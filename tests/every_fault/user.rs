//! The user at a terminal: stops the job with Ctrl-Z, continues it by `bg`, takes it back by `fg`, and leaves the shell.

use std::io::{Read, Write};
use std::time::Instant;

use rustix::termios::tcgetpgrp;

use crate::enumeration::{command, process};
use crate::scene::{EVENT_AT, QUIET};
use crate::site::Site;
use crate::tracer::{NOT_YET, Tracer};

/// The prompt of the shell; no command prints it.
pub(crate) const PROMPT: &str = "@prompt@ ";

/// The next step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Suspend,
    Background,
    Foreground,
    EndCommand,
    Leave,
    LeaveAgain,
}

pub(crate) struct User<'a> {
    site: &'a Site,
    shown: String,
    step: Step,
    /// The number of prompts at the last step.
    prompts: usize,
    last_step: Instant,
}

impl<'a> User<'a> {
    pub(crate) fn of(site: &'a Site) -> Self {
        Self { site, shown: String::new(), step: Step::Suspend, prompts: 1, last_step: Instant::now() }
    }

    /// Takes the next step if it is due; a fault may keep the job from reaching it.
    pub(crate) fn advance(&mut self, tracer: &Tracer, is_faulty: bool) {
        self.look();
        let job = tracer.first();
        if job.pid == NOT_YET {
            self.last_step = Instant::now();
        } else if job.end.is_some() && self.step != Step::LeaveAgain {
            self.step = Step::Leave;
        }
        let is_quiet = tracer.last_event.elapsed() > QUIET;
        let is_prompted = self.prompts() > self.prompts;
        let due = match self.step {
            Step::Suspend => self.site.has_noted("start run") && self.foreground() == Some(job.pid),
            Step::Background | Step::Foreground | Step::LeaveAgain => is_prompted,
            Step::EndCommand => self.foreground() == Some(job.pid),
            Step::Leave => job.end.is_some(),
        };
        let is_overdue = is_faulty && !self.is_done() && self.last_step.elapsed() > EVENT_AT;
        if (due && (is_quiet || self.is_done())) || is_overdue {
            if !is_faulty {
                self.check(tracer.command);
            }
            self.act();
        }
    }

    /// Returns whether the job is back in the foreground, or is over.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.step, Step::Leave | Step::LeaveAgain)
    }

    fn act(&mut self) {
        (self.prompts, self.last_step) = (self.prompts(), Instant::now());
        self.step = match self.step {
            Step::Suspend => self.press("\x1a", Step::Background),
            Step::Background => self.press("bg\n", Step::Foreground),
            Step::Foreground => self.press("fg\n", Step::EndCommand),
            Step::EndCommand => {
                self.site.open_gate("run");
                Step::Leave
            }
            // The shell refuses once if it last saw the job stopped.
            Step::Leave | Step::LeaveAgain => self.press("exit\n", Step::LeaveAgain),
        };
    }

    fn press(&self, keys: &str, next: Step) -> Step {
        self.site.user().expect("a terminal").write_all(keys.as_bytes()).expect("a terminal that takes keys");
        next
    }

    /// Checks that Ctrl-Z has stopped the command, and that `bg` has continued it.
    fn check(&self, command: Option<i32>) {
        let state = command.and_then(process::look).map(|one| one.state);
        let is_odd = match self.step {
            Step::Background => state != Some('T'),
            Step::Foreground => !matches!(state, Some('S' | 'R')),
            _ => false,
        };
        if is_odd {
            command::note(
                &self.site.folder,
                &format!("odd terminal: the command is {state:?}: {}", self.shown),
            );
        }
    }

    fn foreground(&self) -> Option<i32> {
        tcgetpgrp(self.site.user()?).ok().map(|group| group.as_raw_nonzero().get())
    }

    fn prompts(&self) -> usize {
        self.shown.matches(PROMPT).count()
    }

    /// Reads the screen, and adds it to the output of the programs.
    fn look(&mut self) {
        let mut bytes = [0; 4096];
        while let Some(count @ 1..) = self.site.user().and_then(|mut user| user.read(&mut bytes).ok()) {
            self.shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
            self.site.write("shell.err", &self.shown);
        }
    }
}
