//! `dlock elect`: a run whose label is the value, and which may begin again.

use std::time::Duration;

use super::settings::RunSettings;
use crate::election;
use crate::hold::{HoldEnd, Verdict};

/// How often and when a candidate stood.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Candidacy {
    /// Whether it has stood before.
    pub(super) again: bool,
    /// The pause before it stood this time.
    pub(super) pause: Duration,
}

/// After which pause the candidate stands again that ended so, if it does.
///
/// It does not where it was told to end, where it gave up its place or never had one, where the command cannot be executed,
/// and where something of it may still run. A service that was there and is gone is waited for.
pub(super) fn stands_again(settings: &RunSettings, ended: &HoldEnd, before: Candidacy) -> Option<Duration> {
    if !settings.forever || ended.told_to_end {
        return None;
    }
    let goes_on = match &ended.verdict {
        Verdict::Ran(_) | Verdict::Broken { .. } | Verdict::MaxRun => true,
        Verdict::Lost { tree, .. } => tree.is_gone(),
        Verdict::NotReached(_) => before.again,
        Verdict::Failed(error) => before.again && error.is_transient(),
        _ => false,
    };
    goes_on.then(|| election::pause_after(ended.held.unwrap_or_default(), before.pause))
}
