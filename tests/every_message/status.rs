//! Judges the end of the claim and the messages about it, by the notes of its command.

use std::time::Duration;

use crate::enumeration::Normal;
use crate::enumeration::command::OWN;
use crate::life::{Ended, Seen};
use crate::oracle::{REFUSED, has_left};
use crate::servers::relay::fault::{Fault, TTL};
use crate::shape::{Company, Event, Verb};

/// The documented exit statuses of dlock itself that can occur here.
const DOCUMENTED: [i32; 4] = [69, 75, 76, OWN];

/// The signals that kill a script which has lost its lock.
const STOPPED_BY: [i32; 2] = [libc::SIGTERM, libc::SIGKILL];

/// Checks the messages of dlock.
pub(crate) fn words(said: &str, found: &mut Vec<String>) {
    for line in said.lines() {
        if !line.starts_with("dlock: ") || line.contains("defect") || line.contains("panicked") {
            found.push(format!("words: {line:?}"));
        }
        // The holder is queried past the relays.
        if line.contains("still holds") {
            found.push(format!("words: nothing kept it there, but {line:?}"));
        }
    }
}

impl Seen {
    /// Returns whether it ended as without a fault.
    fn is_normal(&self, claim: &Ended) -> bool {
        match self.shape.ends() {
            Normal::Exit(code) => claim.code == Some(code),
            Normal::Signal(signal) => claim.signal == Some(signal),
        }
    }

    pub(crate) fn status(&self, claim: &Ended, found: &mut Vec<String>) {
        let said = claim.said.trim();
        words(said, found);
        if !has_left(claim) && !self.is_outage() {
            found.push(format!("release: not confirmed though the service was there: {said:?}"));
        }
        if self.is_normal(claim) {
            if claim.code == Some(OWN) && self.end("claim").is_none() {
                found.push("status: the command's own, but it did not come to its end".to_owned());
            }
            if self.shape.event != Event::None && !self.is_outage() {
                self.until_the_event(found);
            }
            return;
        }
        let Some(code) = claim.code else {
            let was_stopped = claim.signal.is_some_and(|signal| STOPPED_BY.contains(&signal));
            if !self.shape.is_for_script() || !was_stopped || !self.is_outage() {
                found.push(format!("status: the signal {:?}; it said {said:?}", claim.signal));
            }
            return;
        };
        if self.shape.company == Company::Rival && code == REFUSED && self.start("claim").is_none() {
            return;
        }
        if !DOCUMENTED.contains(&code) {
            found.push(format!("status: {code}; it said {said:?}"));
        } else if !self.is_outage() && !self.was_released_before(said) && !self.was_cut_off(code) {
            found.push(format!("lost: status {code} though the service was there; it said {said:?}"));
        }
        if said.is_empty() {
            found.push(format!("silent: status {code} without a line that says why"));
        }
        // For a script, this is the message of its `release`; for repeated campaigns, that of the last one.
        if self.shape.is_for_script() || self.shape.stands_again() {
            return;
        }
        if self.end("claim").is_some() {
            found.push(format!("status: the command had ended by itself, and dlock exits with {code}"));
        }
        if (code == 76) != self.start("claim").is_some() {
            found.push(format!("status: {code} is not what happened; it said {said:?}"));
        }
    }

    /// It held until the event from outside, which alone ends it.
    fn until_the_event(&self, found: &mut Vec<String>) {
        let starts: Vec<_> = self.starts().into_iter().filter(|start| start.who == "claim").collect();
        if !self.log.iter().any(|line| line.starts_with("event ")) {
            found.push("lost: it had ended before anything happened to it".to_owned());
        }
        let wanted = if self.shape.stands_again() { 2 } else { 1 };
        if starts.len() != wanted {
            found.push(format!("stuck: the claim held {} times of {wanted}", starts.len()));
        }
        for (start, next) in starts.iter().zip(starts.iter().skip(1)) {
            if self.end_after(start).is_none_or(|end| end > next.at) {
                found.push("lost: a term was over before its command".to_owned());
            }
        }
    }

    /// Returns whether the claim is gone for a reason other than its release: `release` released it without an answer,
    /// and finds nothing on its next attempt; or the lease, of which little is left after the script's work, expired
    /// meanwhile.
    fn was_released_before(&self, said: &str) -> bool {
        let may_be = self.shape.is_for_script() && self.fault().is_some() && self.end("claim").is_some();
        let last = said.lines().last().unwrap_or_default();
        let ran_out = self.shape.verb == Verb::Detach && last.contains(" does not hold ");
        may_be && (ran_out || last.contains(" any more"))
    }

    /// Returns whether a command of a script had no answer, such as `release`: it makes each request twice, and a burst
    /// cuts both.
    fn was_cut_off(&self, code: i32) -> bool {
        let has_lease = self.shape.verb == Verb::Detach || self.start("claim").is_some();
        code == 69 && self.shape.is_for_script() && has_lease && self.fault() == Some(Fault::Burst)
    }

    /// The answers to a script about its lease are true.
    pub(crate) fn leases(&self, found: &mut Vec<String>) {
        for line in &self.log {
            let words: Vec<&str> = line.split(' ').collect();
            let ["renew" | "renew-again" | "release", told, begun, looked, holds] = words[..] else {
                continue;
            };
            let [begun, looked] =
                [begun, looked].map(|time| Duration::from_micros(time.parse().expect("a number")));
            let is_false = match (words[0], told, holds) {
                // The check came some time later.
                ("renew-again", "0", "gone") => looked < begun + TTL,
                ("renew", "0", "gone") | ("release", "0", "holds") | (_, "76", "holds") => true,
                _ => false,
            };
            if is_false {
                found.push(format!("false: {} answered {told}, and its claim {holds}", words[0]));
            }
        }
    }
}
