//! The claim's state, as last seen.

use std::sync::Arc;

use super::waits::if_any;
use crate::backend::Claim;
use crate::lock::{ClaimState, Moment, Result};

/// The claim, and its state as last seen.
#[derive(Default)]
pub(super) struct Following {
    pub(super) claim: Option<Arc<dyn Claim>>,
    pub(super) seen: Option<ClaimState>,
    /// When to ask for the state again after a failure.
    pub(super) retry_at: Moment,
    /// Since when the service has refused to show the state.
    pub(super) refused_since: Option<Moment>,
}

impl Following {
    /// Waits for the claim's next state. Waits for ever without a claim, and during a pause after a failure.
    pub(super) async fn changed(&self) -> Result<ClaimState> {
        let claim = self.claim.as_ref().filter(|_| self.retry_at.is_never());
        if_any(claim.map(|claim| claim.changed(self.seen.as_ref()))).await
    }
}
