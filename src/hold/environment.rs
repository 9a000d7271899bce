//! The environment of the command.

use serde::{Deserialize, Serialize};

use crate::lock::{ClaimId, FencingToken, Grant, Granted, LockName, Mode};
use crate::supervise::mark::MarkAddress;

/// The variable in which nested runs find the holds that they run under.
pub const HELD: &str = "DLOCK_HELD";

/// One hold that a process runs under. [`HELD`] lists them, outermost first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeldRecord {
    /// [`crate::backend::ServiceClient::identity`] of the service.
    pub service: String,
    /// The claim.
    pub claim: String,
    /// The mode.
    pub mode: String,
    /// The locks.
    pub names: Vec<String>,
    /// The fencing token of each lock.
    pub tokens: Vec<u64>,
    /// The slot of each lock, if the mode has slots.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<u32>,
    /// Where a nested run sets its mark.
    pub mark: Option<MarkAddress>,
    /// The adopted process that the lock is held for, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<i32>,
}

impl HeldRecord {
    /// Returns the claim, if its text is valid.
    pub fn claim(&self) -> Option<ClaimId> {
        self.claim.parse().ok()
    }

    /// Returns the claim and its grant of `name`, if it has that lock in a mode that covers `wanted`.
    pub fn covering(&self, name: &LockName, wanted: Mode) -> Option<(ClaimId, Granted)> {
        let at = self.names.iter().position(|n| n == name.as_str())?;
        let mode: Mode = self.mode.parse().ok()?;
        let token = FencingToken::new(*self.tokens.get(at)?)?;
        mode.covers(wanted).then_some((self.claim()?, Granted { token, slot: self.slots.get(at).copied() }))
    }

    /// Returns whether the hold was for `process` and is known to be over: its keeper, on the same host, takes no marks
    /// any more. Such records are dropped, or a script that acquires and releases again and again would collect them.
    pub fn is_over_for(&self, process: i32) -> bool {
        self.process == Some(process) && self.mark.as_ref().is_some_and(MarkAddress::takes_none)
    }
}

/// Returns the holds that this process runs under. A text that dlock did not write counts as none.
pub fn held() -> Vec<HeldRecord> {
    // Read first: to build its error for an empty text the parser probes the processor's features, which costs a tenth
    // of a millisecond in a virtual machine.
    let Ok(text) = std::env::var(HELD) else { return Vec::new() };
    serde_json::from_str(&text).unwrap_or_default()
}

/// Every variable that dlock sets for a command. dlock does not pass on those of an outer run: an outer slot, for
/// example, would be wrong for the inner one.
pub const NAMES: [&str; 8] = [
    "DLOCK_NAME",
    "DLOCK_CLAIM",
    "DLOCK_TOKEN",
    "DLOCK_MODE",
    "DLOCK_SLOT",
    "DLOCK_NAMES",
    "DLOCK_TOKENS",
    HELD,
];

/// Returns the variables for a command under `grant` of `claim`. `outer` are the holds around this run, `inner` is its
/// own one, if it has one.
pub fn variables(
    names: &[LockName],
    claim: ClaimId,
    mode: Mode,
    grant: &Grant,
    outer: &[HeldRecord],
    inner: Option<&HeldRecord>,
) -> Vec<(&'static str, String)> {
    let tokens: Vec<String> = grant.names.iter().map(|g| g.token.to_string()).collect();
    let every_name: Vec<&str> = names.iter().map(LockName::as_str).collect();
    // An exclusive grant proves that earlier claims on the same locks are over. A shell that acquires leases again and again
    // would collect such records until it could start no program.
    let is_over = |held: &&HeldRecord| {
        let same = |inner: &HeldRecord| (&held.service, &held.names) == (&inner.service, &inner.names);
        mode == Mode::Exclusive && inner.is_some_and(same)
    };
    let chain: Vec<&HeldRecord> = outer.iter().filter(|held| !is_over(held)).chain(inner).collect();
    let [name, claim_variable, token, mode_variable, slot, names_variable, tokens_variable, held] = NAMES;
    let mut variables = vec![
        (name, every_name.first().map_or(String::new(), ToString::to_string)),
        (claim_variable, claim.to_string()),
        (token, tokens.first().cloned().unwrap_or_default()),
        (mode_variable, mode.to_string()),
        (names_variable, every_name.join("\n")),
        (tokens_variable, tokens.join("\n")),
        (held, serde_json::to_string(&chain).unwrap_or_default()),
    ];
    if let Some(number) = grant.names.first().and_then(|g| g.slot) {
        variables.push((slot, number.to_string()));
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::mark::MarkBoard;

    fn over_for_7(mark: MarkAddress) -> bool {
        let text = r#"{"service":"s","claim":"c","mode":"exclusive","names":["x"],"tokens":[1],"process":7}"#;
        let record: HeldRecord = serde_json::from_str(text).expect("a record");
        HeldRecord { mark: Some(mark), ..record }.is_over_for(7)
    }

    fn address(path: &str, like: &MarkAddress) -> MarkAddress {
        let mut address = serde_json::to_value(like).expect("an address");
        address["path"] = path.into();
        serde_json::from_value(address).expect("an address")
    }

    #[test]
    fn earlier_holds_of_the_same_locks_are_left_out() {
        let hold = |claim: &str, name: &str| {
            let (claim, names) = (claim.to_owned(), vec![name.to_owned()]);
            let (service, mode) = ("s".to_owned(), "exclusive".to_owned());
            HeldRecord {
                service,
                claim,
                mode,
                names,
                tokens: vec![1],
                slots: vec![],
                mark: None,
                process: None,
            }
        };
        let (outer, inner) = ([hold("1", "x"), hold("2", "y")], hold("3", "x"));
        let grant = Grant { names: Vec::new(), counts_from: crate::lock::Moment::NEVER };
        let printed = |mode, inner| {
            let variables = variables(&[], ClaimId::from_number(3), mode, &grant, &outer, inner);
            let (_, text) = variables.into_iter().find(|(name, _)| *name == HELD).expect("the holds");
            let holds: Vec<HeldRecord> = serde_json::from_str(&text).expect("records");
            holds.into_iter().map(|hold| hold.claim).collect::<Vec<_>>()
        };
        assert_eq!(printed(Mode::Exclusive, Some(&inner)), ["2", "3"]);
        assert_eq!(printed(Mode::Shared, Some(&inner)), ["1", "2", "3"], "they may hold together");
        assert_eq!(printed(Mode::Exclusive, None), ["1", "2"], "it runs under them");
    }

    #[test]
    fn a_hold_is_over_only_if_its_board_is_known_to_take_no_mark() {
        let board = MarkBoard::new().expect("a pipe").0;
        let there = board.address().expect("an address");
        assert!(!over_for_7(there.clone()), "it takes a mark");
        // The system cannot look there, which is different from finding nothing.
        let unknown = format!("/proc/{}/fd/3", "1".repeat(5000));
        assert!(!over_for_7(address(&unknown, &there)), "it is unknown");
        assert!(over_for_7(address("/proc/self/fd/3", &there)), "no address of dlock's");
        assert!(over_for_7(address(&format!("/proc/{}/fd/3", i32::MAX), &there)), "no such process");
        assert!(over_for_7(address(&format!("/proc/{}/fd/0", std::process::id()), &there)), "another file");
        assert!(board.try_clear());
        assert!(over_for_7(there), "cleared");
    }
}
