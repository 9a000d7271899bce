//! The claim's state, as last seen.

use std::future::pending;
use std::sync::Arc;

use crate::backend::Claim;
use crate::lock::{ClaimState, Moment, Result};

/// The claim, and its state as last seen.
pub(super) struct Following {
    pub(super) claim: Option<Arc<dyn Claim>>,
    pub(super) seen: Option<ClaimState>,
    /// When to ask for the state again after a failure.
    pub(super) retry_at: Moment,
    /// Since when the service has refused to show the state.
    pub(super) refused_since: Option<Moment>,
}

impl Following {
    pub(super) fn nothing() -> Self {
        Self { claim: None, seen: None, retry_at: Moment::NEVER, refused_since: None }
    }

    /// Waits for the claim's next state. Waits for ever without a claim, and during a pause after a failure.
    pub(super) async fn changed(&self) -> Result<ClaimState> {
        match &self.claim {
            Some(claim) if self.retry_at.is_never() => claim.changed(self.seen.as_ref()).await,
            _ => pending().await,
        }
    }
}
