//! Judges a run with a fault: the observed processes against the promises, and the messages of dlock against the
//! observations.

use serde_json::Value;

use crate::call::Class;
use crate::enumeration::command::{OWN, overlaps};
use crate::point::{Fault, Point};
use crate::scene::{Seen, is_normal};
use crate::shape::{Event, Shape};
use crate::site::Site;
use crate::sys::Change;
use crate::tracer::{End, Role};

/// The exit statuses of dlock itself in the manual, without 70 (a defect).
const DOCUMENTED: [i32; 10] = [64, 69, 71, 73, 75, 76, 77, 124, 126, 127];

/// The run to judge.
pub(crate) struct Case<'a> {
    pub(crate) shape: &'static Shape,
    pub(crate) point: Option<&'a Point>,
    pub(crate) seen: &'a Seen,
    pub(crate) site: &'a Site,
    /// The files that a run without faults leaves; `None` while they are being determined.
    pub(crate) usual_files: Option<&'a [String]>,
}

impl Case<'_> {
    /// Returns everything that is wrong.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.exclusion(&mut found);
        self.next_one(&mut found);
        self.status(&mut found);
        self.words(&mut found);
        self.remains(&mut found);
        found
    }

    fn fault(&self) -> Option<Fault> {
        self.point.map(|point| point.fault)
    }

    fn struck(&self, role: Role, faults: &[Fault]) -> bool {
        self.seen.hit.is_some()
            && self.point.is_some_and(|point| point.role == role && faults.contains(&point.fault))
    }

    fn noted(&self, what: &str) -> bool {
        self.site.has_noted(what)
    }

    /// No two trees run at the same time, and no process lives without a guard.
    fn exclusion(&self, found: &mut Vec<String>) {
        // A caller that frees the lock by force accepts the consequences.
        if !self.shape.frees_the_lock() && !self.reported_survivors() {
            found.extend(overlaps(&self.site.log()));
        }
        if !self.seen.unguarded.is_empty() && !self.reported_survivors() {
            found.push(format!(
                "unguarded: without front and keeper lives {}",
                self.seen.unguarded.join(", ")
            ));
        }
        if self.site.times_noted("start run") > 1 && !self.shape.stands_again() {
            found.push("started twice: the command".to_owned());
        }
    }

    /// Returns whether dlock reported processes that it cannot kill, because it may not signal them or cannot find
    /// them. A call that an older kernel or a filter of system calls lacks is no reason: dlock has another way.
    fn reported_survivors(&self) -> bool {
        let said = self.site.read("run.err");
        matches!(self.fault(), Some(Fault::Lasting(class, _)) if class != Class::Newer)
            && (said.contains("cannot verify that all") || said.contains("cannot kill process"))
    }

    /// Returns whether the lock of a script may be kept for ever.
    fn may_stay_locked(&self) -> bool {
        self.noted("start run") && self.fault().is_some_and(|fault| self.shape.may_keep(fault))
    }

    /// Every process ends, and the next run gets the lock soon.
    fn next_one(&self, found: &mut Vec<String>) {
        if !self.reported_survivors() && !self.may_stay_locked() {
            found.extend(self.seen.stuck.iter().map(|stuck| format!("no end: {stuck}")));
        }
        if let (Some(gone), Some(began)) = (self.seen.all_gone, self.seen.next_began) {
            let late = began.saturating_duration_since(gone);
            if late > self.shape.next_within() {
                found.push(format!("late: the next one had to wait {late:?} when all was over"));
            }
        }
        match self.seen.next_ended.map(|end| end.change) {
            None | Some(Change::Exited(0)) => {}
            Some(other) => {
                let said = self.site.read("next.err");
                found.push(format!("the next one came to {other:?}: {}", said.trim()));
            }
        }
    }

    fn status(&self, found: &mut Vec<String>) {
        let is_killed = |end: End| end.change == Change::Killed(libc::SIGKILL);
        if self.seen.keeper_outlived && !self.seen.front.is_some_and(is_killed) {
            found.push("outlives: the front had ended, and the keeper had not".to_owned());
        }
        found.extend(self.site.log().into_iter().filter(|line| line.starts_with("odd ")));
        let Some(end) = self.seen.first else { return };
        // A command that is killed before its execution is killed nevertheless.
        let killed = end.change == Change::Killed(libc::SIGKILL)
            && [Role::Caller, Role::Front, Role::Launch]
                .iter()
                .any(|role| self.struck(*role, &[Fault::Kill]));
        // When the end of the last term's command and the signal coincide, either can be the first.
        let ended_first =
            self.shape.stands_again() && self.each_came_to_its_end() && end.change == Change::Exited(OWN);
        if killed || is_normal(self.shape, end) || ended_first {
            return self.truth_of_status(end.change, found);
        }
        if self.fault().is_none() || self.seen.hit.is_none() {
            return found.push(format!("status without a fault: {:?}", end.change));
        }
        // A short pause changes nothing.
        if self.fault() == Some(Fault::Pause) {
            return found.push(format!("pause: changed the end to {:?}", end.change));
        }
        // musl crashes without memory for its own tables, before the program begins.
        let is_first = self.point.is_some_and(|point| point.number == 1 && point.call == "mmap");
        if (is_first && end.change == Change::Killed(libc::SIGSEGV)) || self.lacks_a_thread_record() {
            return;
        }
        let Change::Exited(code) = end.change else {
            return found.push(format!("status: not documented, {:?}", end.change));
        };
        let own = code == OWN && !matches!(self.shape.command, "long" | "deaf");
        if !own && !DOCUMENTED.contains(&code) {
            found.push(format!("status: not documented, {code}"));
        }
        if (code == 75 && !self.shape.held) || (code == 124 && self.shape.name != "max-run") {
            found.push(format!("status: {code} is not what happened"));
        }
        self.truth_of_status(end.change, found);
        // A command that exited before the fault keeps its status.
        if self.ended_before_the_fault() && !own && !self.shape.stands_again() {
            found.push(format!("status: the command had ended by itself, and dlock exits with {code}"));
        }
        if !own && !self.said_why() {
            found.push(format!("silent: status {code} without a line that says why"));
        }
    }

    /// Returns whether the standard library aborted: it takes the record of a thread from the C library, not from the program's
    /// allocator.
    fn lacks_a_thread_record(&self) -> bool {
        self.site.read("run.err").starts_with("memory allocation of 48 bytes failed\n")
    }

    fn truth_of_status(&self, end: Change, found: &mut Vec<String>) {
        if end == Change::Exited(OWN) && !self.noted("end run") {
            found.push("status: the command's own, but it did not come to its end".to_owned());
        }
    }

    fn said_why(&self) -> bool {
        let lost = self.seen.hit.as_ref().is_some_and(|hit| hit.errors_lost);
        lost || self.site.read("run.err").lines().any(|line| line.starts_with("dlock: "))
    }

    /// Returns whether the command had exited when the fault struck.
    fn ended_before_the_fault(&self) -> bool {
        let over = |state| matches!(state, 'Z' | 'X');
        let is_over = self.seen.hit.as_ref().and_then(|hit| hit.command).is_some_and(over);
        self.noted("end run") && self.each_came_to_its_end() && is_over
    }

    /// Returns whether every command that was started exited without a kill.
    fn each_came_to_its_end(&self) -> bool {
        let noted = |what| self.site.times_noted(what);
        noted("start run") == noted("end run")
    }

    /// The messages of dlock are true.
    fn words(&self, found: &mut Vec<String>) {
        if self.lacks_a_thread_record() {
            return;
        }
        let said = self.site.read("run.err");
        // With several terms, the message is about the last one.
        let started = self.noted("start run") && !self.shape.stands_again();
        // The message is not about the keeper of the first term.
        let keeper_ended_well = !self.shape.stands_again()
            && matches!(self.seen.keeper.map(|end| end.change), Some(Change::Exited(0)));
        let taken = matches!(self.shape.event, Event::Remove | Event::Delete | Event::Silence);
        let frozen = matches!(self.fault(), Some(Fault::Stop | Fault::Pause | Fault::Delay(_)));
        // A text in a message, the condition under which it is false, and the reason.
        let claims: &[(&str, bool, &str)] = &[
            ("the command was stopped", !self.seen.executed, "it was never executed"),
            ("the command was stopped", self.ended_before_the_fault(), "it had ended by itself"),
            ("(--max-run) and was stopped", !self.seen.executed, "it was never executed"),
            ("(--max-run) and was stopped", self.shape.name != "max-run", "there is no --max-run"),
            ("the command was not started", started, "it was started"),
            ("cannot find the command", started, "it was started"),
            ("cannot execute", started, "it was started"),
            (" is busy", !self.shape.held, "no other run held it"),
            ("lease-keeper of dlock died", keeper_ended_well, "it ended well"),
            ("stopped and the lease expired", !frozen && !taken, "no signal stopped it"),
            ("was removed", !taken, "no event removed it"),
            ("panicked", true, "a defect"),
            ("memory allocation of", true, "a defect"),
            ("cannot kill process", self.could_end_all(), "nothing kept it from it"),
        ];
        for line in said.lines() {
            let is_unsure = line.contains("while starting, or never started");
            for (claim, wrong, why) in claims {
                if *wrong && line.contains(claim) && !is_unsure {
                    found.push(format!("words: {why}, but {line:?}"));
                }
            }
            // The C library ends a program that has no memory for its own tables.
            if line.starts_with("Fatal glibc error") && line.contains("memory") {
                continue;
            }
            if !line.starts_with("dlock: ") && !line.contains("panicked") && !line.contains("allocation of") {
                found.push(format!("words: not dlock's: {line:?}"));
            }
        }
    }

    /// Returns whether no signal and no access to /proc failed.
    fn could_end_all(&self) -> bool {
        matches!(self.fault(), None | Some(Fault::Kill | Fault::Stop | Fault::Pause | Fault::Delay(_)))
    }

    /// Nothing remains.
    fn remains(&self, found: &mut Vec<String>) {
        let files = self.site.leftovers();
        if let Some(usual) = self.usual_files.filter(|_| self.seen.stuck.is_empty()) {
            let is_unfinished_report = |file: &str| {
                let killed = matches!(self.fault(), Some(Fault::Kill));
                killed && self.shape.name == "report" && file.starts_with(".dlock-")
            };
            let is_more = |file: &&String| !usual.contains(file) && !is_unfinished_report(file);
            let more: Vec<_> = files.iter().filter(is_more).cloned().collect();
            if !more.is_empty() {
                found.push(format!("left: {}", more.join(", ")));
            }
        }
        let status = self.site.read("status.out");
        let object: Value = serde_json::from_str(&status).unwrap_or_default();
        let empty = |key: &str| object[key].as_array().is_some_and(Vec::is_empty);
        if self.seen.stuck.is_empty() && !self.shape.careless && !(empty("holders") && empty("waiters")) {
            found.push(format!(
                "left in the queue: {}{}",
                status.trim(),
                self.site.read("status.err").trim()
            ));
        }
        self.report(found);
    }

    /// A report is complete, and states the status with which dlock exited.
    fn report(&self, found: &mut Vec<String>) {
        let Ok(text) = std::fs::read_to_string(self.site.report()) else { return };
        let object: Value = serde_json::from_str(&text).unwrap_or_default();
        if !object.is_object() {
            return found.push(format!("report: not whole: {text:?}"));
        }
        let Some(Change::Exited(code)) = self.seen.first.map(|end| end.change) else { return };
        if object["exit_code"] != code {
            found.push(format!("report: says exit_code {}, it was {code}", object["exit_code"]));
        }
    }
}
