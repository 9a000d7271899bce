//! Compares the leaders that an observer was shown with the notes of the leaders' own commands.

use std::time::Duration;

use serde_json::Value;

use crate::life::Seen;
use crate::oracle::Start;
use crate::servers::relay::fault::{Fault, TTL};
use crate::shape::Struck;
use crate::status::words;

/// The statuses with which an observer may give up.
const DOCUMENTED: [i32; 1] = [69];

/// A line of the observer's output: a leader, or no leader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shown {
    pub(crate) claim: String,
    pub(crate) value: String,
    pub(crate) token: Option<u64>,
}

/// The observations of an observer.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) shown: Vec<Option<Shown>>,
    /// Its status, if it ended before the life did.
    pub(crate) gave_up: Option<i32>,
    pub(crate) said: String,
}

/// Reads the output of `leader --follow --json`.
pub(crate) fn read(printed: &str) -> Vec<Option<Shown>> {
    let one = |line: &str| {
        let object: Value = serde_json::from_str(line).expect("an object a line");
        let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
        let token = object["token"].as_str().and_then(|token| token.parse().ok());
        object.is_object().then(|| Shown { claim: text("claim"), value: text("value"), token })
    };
    printed.lines().map(one).collect()
}

impl Seen {
    /// The observer was shown the true history: every term that lasted, in the order of the terms, each of them once,
    /// and the absence of a leader at the end.
    pub(crate) fn history(&self, found: &mut Vec<String>) {
        let Some(observed) = &self.observed else { return };
        words(&observed.said, found);
        if let Some(code) = observed.gave_up {
            if !DOCUMENTED.contains(&code) || !self.is_out_of_reach() || observed.said.is_empty() {
                found.push(format!("observer: gave up with {code}; it said {:?}", observed.said.trim()));
            }
        } else if observed.shown.last() != Some(&None) && !self.misses_some() {
            found.push(format!(
                "observer: was not shown the end of the last term: {:?}",
                observed.shown.last()
            ));
        }
        // Best effort, as everything there.
        if observed.gave_up.is_none() && self.service.kind.has_queue() {
            self.order_shown(observed, found);
        }
    }

    /// Returns whether the observer was without the service for so long that it may have missed something.
    fn misses_some(&self) -> bool {
        // A connection to a server that is silent is probed after 20 s.
        let is_silent = self.fault() == Some(Fault::Silence);
        self.shape.struck == Struck::Observer && (is_silent || self.is_out_of_reach())
    }

    fn order_shown(&self, observed: &Observed, found: &mut Vec<String>) {
        let mut terms: Vec<&Shown> = Vec::new();
        for shown in observed.shown.iter().flatten() {
            match terms.iter().position(|term| term.claim == shown.claim) {
                None => terms.push(shown),
                // The same leader, before its token was known.
                Some(at) if at + 1 == terms.len() => terms[at] = shown,
                // The entry of a late request leads for a TTL, if it is alone.
                Some(_) if self.may_come_late() && shown.value == "claim" => {}
                Some(_) => found.push(format!("history: {} came again", shown.value)),
            }
        }
        let starts = self.starts();
        let mut at = 0;
        let mut seen = Vec::new();
        for term in terms {
            let is_it = |start: &Start| {
                start.who == term.value && term.token.is_none_or(|token| token == start.token)
            };
            match starts.iter().skip(at).position(is_it) {
                Some(further) => {
                    at += further + 1;
                    seen.push(at - 1);
                }
                // It may have held without a notice of it.
                None if self.is_out_of_reach() && !starts.iter().any(is_it) => {}
                None => {
                    found.push(format!(
                        "history: {} with {:?} is not what happened then",
                        term.value, term.token
                    ));
                }
            }
        }
        let is_struck = self.shape.struck == Struck::Observer;
        let late = self.fault().filter(|_| is_struck).map_or(Duration::ZERO, Fault::delay);
        for (number, start) in starts.iter().enumerate() {
            let length = self.end_after(start).map(|end| end.saturating_sub(start.at));
            // A short term may have been missed, also one that ended before an answer arrived.
            let lasted = length.is_none_or(|length| length > TTL / 2 + late);
            if lasted && !self.misses_some() && !seen.contains(&number) {
                found.push(format!("history: the term of {} with {} was not shown", start.who, start.token));
            }
        }
    }
}
