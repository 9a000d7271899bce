//! The texts of `break`.

use super::Party;

/// Returns the question before dlock ends `count` claims on `lock`, or removes them by force.
pub fn question(count: usize, force: bool, lock: &str) -> String {
    match (count, force) {
        (1, false) => format!("End this claim and its command, and let the next one have {lock}? [y/N] "),
        (n, false) => format!("End these {n} claims on {lock} and their commands? [y/N] "),
        (1, true) => format!(
            "Remove this claim from {lock} at once? Its command may keep running alongside the next holder's. [y/N] "
        ),
        (n, true) => format!(
            "Remove these {n} claims from {lock} at once? Their commands may keep running alongside the next holder's. [y/N] "
        ),
    }
}

/// How `break` ended a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// It asked the owner to leave.
    Asked,
    /// It removed the entry of a holder.
    Removed,
    /// It removed the entry of another program.
    RemovedForeign,
    /// It removed the entry of a waiter.
    RemovedWaiter,
    /// It removed a lease without a process.
    RemovedDetached,
}

/// Returns the line about the claim of `party` on `lock`.
pub fn done(how: How, party: &Party, lock: &str) -> String {
    // "asked ... for 2m16s to leave" would read as if the asking took so long.
    let party = Party { since: None, ..party.clone() };
    match how {
        How::Asked => format!("asked {party} to leave {lock}\n"),
        How::Removed => {
            format!("removed {party} from {lock}; until its command has exited, two commands may overlap\n")
        }
        How::RemovedWaiter => format!("removed waiter {party} from {lock}\n"),
        How::RemovedForeign => {
            format!("removed {party} from {lock}; its command keeps running, so two commands may overlap\n")
        }
        How::RemovedDetached => format!(
            "removed {party} from {lock}; it was a detached lease (acquire --detach), so dlock has no process to stop\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Ms;
    use std::time::Duration;

    #[test]
    fn many_claims_are_counted() {
        assert_eq!(question(4, false, "x"), "End these 4 claims on x and their commands? [y/N] ");
        assert!(question(1, false, "x").starts_with("End this claim and its command,"));
        assert!(question(2, true, "x").starts_with("Remove these 2 claims from x at once?"));
    }

    #[test]
    fn how_long_it_held_is_not_how_long_it_was_asked() {
        let since = Some(Ms(Duration::from_secs(136)));
        let party = Party { user: Some("root".into()), host: Some("vm".into()), since, ..Party::default() };
        assert_eq!(done(How::Asked, &party, "x"), "asked root@vm to leave x\n");
    }
}
