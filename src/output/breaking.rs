//! What `break` asks and says, on the terminal and on standard output.

use super::{Party, wrap};

/// The question before `count` claims on `lock` are ended, or removed by force, on a terminal of `width` columns.
pub fn question(count: usize, force: bool, lock: &str, width: Option<usize>) -> String {
    let text = match (count, force) {
        (1, false) => format!("End this claim and its command, and let the next one have {lock}? [y/N]"),
        (n, false) => format!("End these {n} claims on {lock} and their commands? [y/N]"),
        (1, true) => format!(
            "Remove this claim from {lock} at once? Its command may keep running alongside the next holder's. [y/N]"
        ),
        (n, true) => format!(
            "Remove these {n} claims from {lock} at once? Their commands may keep running alongside the next holder's. [y/N]"
        ),
    };
    // The answer stands behind it.
    wrap::lines(&text, width.map(|width| width.saturating_sub(" y".len()))).join("\n") + " "
}

/// Which way a claim went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// Its owner was asked to end it.
    Asked,
    /// It was removed.
    Removed,
    /// It was another program's, and was removed.
    RemovedForeign,
    /// It waited, and its entry was removed.
    RemovedWaiter,
    /// It was a lease without a process, and was removed.
    RemovedDetached,
}

/// What became of the claim of `party` on `lock`: a line.
pub fn done(how: How, party: &Party, lock: &str) -> String {
    // "asked ... for 2m16s to leave" would read as asking for so long.
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
    use std::time::Duration;

    #[test]
    fn many_claims_are_counted() {
        assert_eq!(question(4, false, "x", None), "End these 4 claims on x and their commands? [y/N] ");
        assert!(question(1, false, "x", None).starts_with("End this claim and its command,"));
        assert!(question(2, true, "x", None).starts_with("Remove these 2 claims from x at once?"));
    }

    #[test]
    fn a_narrow_terminal_breaks_no_word() {
        assert_eq!(
            question(3, false, "deploy", Some(40)),
            "End these 3 claims on deploy and their\ncommands? [y/N] "
        );
    }

    #[test]
    fn how_long_it_held_is_not_how_long_it_was_asked() {
        let since = Some(Duration::from_secs(136));
        let party = Party { user: Some("root".into()), host: Some("vm".into()), since, ..Party::default() };
        assert_eq!(done(How::Asked, &party, "x"), "asked root@vm to leave x\n");
    }
}
