//! How the claim stands, as it was last seen.

use std::future::pending;
use std::sync::Arc;

use crate::backend::Claim;
use crate::lock::{ClaimState, Moment, Result};

/// The claim, and how it was last seen to stand.
pub(super) struct Following {
    pub(super) claim: Option<Arc<dyn Claim>>,
    pub(super) seen: Option<ClaimState>,
    /// When its state is asked for again, after that has failed.
    pub(super) retry_at: Moment,
    /// Since when the service has refused to say how it stands.
    pub(super) refused_since: Option<Moment>,
}

impl Following {
    /// That of no claim yet.
    pub(super) fn nothing() -> Self {
        Self { claim: None, seen: None, retry_at: Moment::NEVER, refused_since: None }
    }

    /// The claim's next state, if there is a claim.
    pub(super) async fn changed(&self) -> Result<ClaimState> {
        match &self.claim {
            Some(claim) if self.retry_at.is_never() => claim.changed(self.seen.as_ref()).await,
            _ => pending().await,
        }
    }
}
