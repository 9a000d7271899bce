//! `dlock elect`: a run whose label is the value, and which may repeat.

use std::time::Duration;

use super::settings::RunSettings;
use crate::election;
use crate::hold::{HoldEnd, Verdict};

/// Returns the pause before the next campaign, if there is one. `before` is the pause before this one, if it was not the first.
///
/// `None` after a request to end, a lost place in the queue, a command that cannot be executed, or while processes of
/// the command may still run. A service that was reached once may be unreachable for a while.
pub(super) fn stands_again(
    settings: &RunSettings,
    ended: &HoldEnd,
    before: Option<Duration>,
) -> Option<Duration> {
    if !settings.forever || ended.told_to_end {
        return None;
    }
    let goes_on = match &ended.verdict {
        Verdict::Ran(_) | Verdict::Broken { .. } | Verdict::MaxRun => true,
        Verdict::Lost { tree, .. } => tree.is_gone(),
        Verdict::NotReached(_) => before.is_some(),
        Verdict::Failed(error) => before.is_some() && error.is_transient(),
        _ => false,
    };
    goes_on.then(|| election::pause_after(ended.held.unwrap_or_default(), before.unwrap_or_default()))
}
